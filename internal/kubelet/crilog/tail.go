package crilog

import (
	"bytes"
	"errors"
	"io"
)

// header is more than any entry has before its text.
const header = 96

// block is how much of a file is read at a time, backwards.
const block = 32 << 10

// tailStart returns the offset from which a file of the given size holds the
// last n lines. A line that a container wrote in several parts counts once; a
// last line without its end counts too.
func tailStart(f io.ReaderAt, size, n int64) (int64, error) {
	if n <= 0 {
		return size, nil
	}
	var lines int64
	buf := make([]byte, block)
	next := size // where the entry after the one looked at starts
	for right := size; right > 0; {
		left := max(right-block, 0)
		chunk := buf[:right-left]
		if _, err := f.ReadAt(chunk, left); err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		for i := len(chunk); ; {
			i = bytes.LastIndexByte(chunk[:i], '\n')
			if i < 0 {
				break
			}
			start := left + int64(i) + 1
			if start >= next {
				continue // the newline of the last entry
			}
			done, err := endsLine(f, start, next == size)
			if err != nil {
				return 0, err
			}
			if done {
				if lines++; lines > n {
					return next, nil
				}
			}
			next = start
		}
		right = left
	}
	if next > 0 { // the first entry of the file
		done, err := endsLine(f, 0, next == size)
		if err != nil {
			return 0, err
		}
		if done && lines+1 > n {
			return next, nil
		}
	}
	return 0, nil
}

// endsLine reports whether the entry at start ends a line; the last entry of a
// file always does.
func endsLine(f io.ReaderAt, start int64, last bool) (bool, error) {
	if last {
		return true, nil
	}
	buf := make([]byte, header)
	n, err := f.ReadAt(buf, start)
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	line, _, _ := bytes.Cut(buf[:n], []byte{'\n'})
	entry, err := Parse(line)
	return err == nil && !entry.Partial, nil
}
