// Package crilog reads the log files that container runtimes write: one line
// an entry, `<RFC 3339 time> <stdout|stderr> <tags> <text>`, where the tag P
// says that the text is a part of a line that later entries finish.
//
// Reading only: files are opened by the caller's function, so that the caller
// decides which folder they may be in. Following survives rotation by rename
// and by truncation. No goroutine outlives a call.
package crilog

import (
	"bytes"
	"errors"
	"fmt"
	"time"
)

// A Stream names where an entry was written to.
type Stream string

// The two streams of a container.
const (
	Stdout Stream = "stdout"
	Stderr Stream = "stderr"
)

// An Entry is one line of a log file.
type Entry struct {
	Time    time.Time
	Stream  Stream
	Partial bool   // the line goes on in the stream's next entry
	Text    []byte // without the newline; a part of the parsed line
}

// errNotEntry is wrapped by what Parse returns.
var errNotEntry = errors.New("not a CRI log line")

// Parse reads one line, with or without its newline. Tags after the first are
// allowed and ignored, as the format reserves them.
func Parse(line []byte) (Entry, error) {
	line = bytes.TrimSuffix(line, []byte{'\n'})
	stamp, rest, ok := bytes.Cut(line, []byte{' '})
	if !ok {
		return Entry{}, fmt.Errorf("%w: no time", errNotEntry)
	}
	at, err := time.Parse(time.RFC3339Nano, string(stamp))
	if err != nil {
		return Entry{}, fmt.Errorf("%w: time %q", errNotEntry, stamp)
	}
	stream, rest, ok := bytes.Cut(rest, []byte{' '})
	if !ok || (Stream(stream) != Stdout && Stream(stream) != Stderr) {
		return Entry{}, fmt.Errorf("%w: stream %q", errNotEntry, stream)
	}
	tags, text, ok := bytes.Cut(rest, []byte{' '})
	if !ok {
		return Entry{}, fmt.Errorf("%w: no tags", errNotEntry)
	}
	first, _, _ := bytes.Cut(tags, []byte{':'})
	return Entry{Time: at, Stream: Stream(stream), Partial: string(first) == "P", Text: text}, nil
}
