package cgroupfs

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// scratch is what a reader needs besides the answer.
type scratch struct {
	path   []byte
	data   []byte
	values [8]Value
}

// file reads a file of a group: nil if that cannot be. It is good until the next
// call. A file of the kernel's that is longer than the buffer is cut off.
func (s *scratch) file(dir, group, name string) []byte {
	fd := s.open(dir, group, name)
	if fd < 0 {
		return nil
	}
	n := 0
	for n < len(s.data) {
		got, err := unix.Read(fd, s.data[n:])
		if err == unix.EINTR {
			continue
		}
		if err != nil || got <= 0 {
			break
		}
		n += got
	}
	_ = unix.Close(fd) // only read
	if n == 0 {
		return nil
	}
	return s.data[:n]
}

// numbers reads the lines of a file of any length, each of which is a number.
func (s *scratch) numbers(dir, group, name string) (all []int, ok bool) {
	fd := s.open(dir, group, name)
	if fd < 0 {
		return nil, false
	}
	defer func() { _ = unix.Close(fd) }() // only read
	number := 0
	for {
		n, err := unix.Read(fd, s.data)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return nil, false
		case n <= 0:
			return all, true
		}
		for _, c := range s.data[:n] {
			if c == '\n' {
				all, number = append(all, number), 0
				continue
			}
			number = number*10 + int(c-'0')
		}
	}
}

// open opens a file without the copies that a path of strings would need.
func (s *scratch) open(dir, group, name string) int {
	if dir == "" {
		return -1
	}
	s.path = append(append(append(append(append(append(s.path[:0], dir...), '/'), group...), '/'), name...), 0)
	for {
		fd, _, errno := unix.Syscall6(unix.SYS_OPENAT, ^uintptr(0), uintptr(unsafe.Pointer(&s.path[0])), unix.O_RDONLY|unix.O_CLOEXEC, 0, 0, 0)
		switch errno {
		case 0:
			return int(fd)
		case unix.EINTR:
			continue
		default:
			return -1
		}
	}
}

func (s *scratch) number(dir, group, name string) Value {
	return parseNumber(s.file(dir, group, name))
}

// stat returns the values of names. It is good until the next call.
func (s *scratch) stat(data []byte, names []string) []Value {
	into := s.values[:len(names)]
	parseStat(data, names, into)
	return into
}
