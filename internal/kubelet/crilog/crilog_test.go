package crilog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParse(t *testing.T) {
	at := time.Date(2016, 10, 6, 0, 17, 9, 669794202, time.UTC)
	tests := []struct {
		name, line string
		want       *Entry // nil: refused
	}{
		{"whole", "2016-10-06T00:17:09.669794202Z stdout F hello world\n", &Entry{at, Stdout, false, []byte("hello world")}},
		{"part", "2016-10-06T00:17:09.669794202Z stderr P hel", &Entry{at, Stderr, true, []byte("hel")}},
		{"more tags", "2016-10-06T00:17:09.669794202Z stdout P:x:y a", &Entry{at, Stdout, true, []byte("a")}},
		{"no text", "2016-10-06T00:17:09.669794202Z stdout F \n", &Entry{at, Stdout, false, []byte{}}},
		{"spaces kept", "2016-10-06T00:17:09.669794202Z stdout F  a ", &Entry{at, Stdout, false, []byte(" a ")}},
		{"no tags", "2016-10-06T00:17:09.669794202Z stdout", nil},
		{"no space after tags", "2016-10-06T00:17:09.669794202Z stdout F", nil},
		{"other stream", "2016-10-06T00:17:09.669794202Z stdin F a", nil},
		{"no time", "yesterday stdout F a", nil},
		{"nothing", "", nil},
		{"Docker's JSON", `{"log":"a\n","stream":"stdout","time":"2016-10-06T00:17:09Z"}`, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Parse([]byte(tt.line))
			if tt.want == nil {
				if !errors.Is(err, errNotEntry) {
					t.Errorf("Parse = %+v, %v, want an error", got, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(*tt.want, got); diff != "" {
				t.Errorf("entry (-want +got):\n%s", diff)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("2016-10-06T00:17:09.669794202Z stdout F hello\n"))
	f.Add([]byte("2016-10-06T00:17:09.669794202+01:00 stderr P:a  \n\n"))
	f.Fuzz(func(t *testing.T, line []byte) {
		entry, err := Parse(line)
		if err != nil {
			return
		}
		if !bytes.Contains(line, entry.Text) {
			t.Errorf("text %q is not of line %q", entry.Text, line)
		}
		tag := "F"
		if entry.Partial {
			tag = "P"
		}
		again, err := Parse(fmt.Appendf(nil, "%s %s %s %s", entry.Time.Format(time.RFC3339Nano), entry.Stream, tag, entry.Text))
		if err != nil {
			if entry.Time.Year() > 9999 || entry.Time.Year() < 0 {
				return
			}
			t.Fatalf("written again: %v", err)
		}
		if !again.Time.Equal(entry.Time) || !bytes.Equal(bytes.TrimSuffix(again.Text, []byte("\n")), bytes.TrimSuffix(entry.Text, []byte("\n"))) {
			t.Errorf("written again: %+v, want %+v", again, entry)
		}
	})
}

const sample = `2026-01-01T00:00:01Z stdout F one
2026-01-01T00:00:02Z stderr F two
2026-01-01T00:00:03Z stdout P thr
2026-01-01T00:00:03.5Z stdout F ee
2026-01-01T00:00:04Z stdout F four
`

func logFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "0.log")
	if err := os.WriteFile(path, []byte(content), 0o640); err != nil {
		t.Fatal(err)
	}
	return path
}

func opener(path string) func() (*os.File, error) {
	return func() (*os.File, error) { return os.Open(path) }
}

func TestRead(t *testing.T) {
	at := func(second int) time.Time { return time.Date(2026, 1, 1, 0, 0, second, 0, time.UTC) }
	tests := []struct {
		name    string
		content string
		opts    Options
		want    string
	}{
		{"all", sample, Options{}, "one\ntwo\nthree\nfour\n"},
		{"empty file", "", Options{}, ""},
		{"tail one", sample, Options{Tail: new(int64(1))}, "four\n"},
		{"tail counts a line in parts once", sample, Options{Tail: new(int64(2))}, "three\nfour\n"},
		{"tail three", sample, Options{Tail: new(int64(3))}, "two\nthree\nfour\n"},
		{"tail all there is", sample, Options{Tail: new(int64(4))}, "one\ntwo\nthree\nfour\n"},
		{"tail more than there is", sample, Options{Tail: new(int64(99))}, "one\ntwo\nthree\nfour\n"},
		{"tail nothing", sample, Options{Tail: new(int64(0))}, ""},
		{"tail of nothing", "", Options{Tail: new(int64(3))}, ""},
		{"tail counts an open line", sample + "2026-01-01T00:00:05Z stdout P $ ", Options{Tail: new(int64(1))}, "$ "},
		{"limit", sample, Options{Limit: new(int64(6))}, "one\ntw"},
		{"limit of nothing", sample, Options{Limit: new(int64(0))}, ""},
		{"limit past the end", sample, Options{Limit: new(int64(999))}, "one\ntwo\nthree\nfour\n"},
		{"since", sample, Options{Since: at(3)}, "three\nfour\n"},
		{"since the future", sample, Options{Since: at(30)}, ""},
		{
			"timestamps once a line", sample,
			Options{Timestamps: true, Since: at(2)},
			"2026-01-01T00:00:02.000000000Z two\n2026-01-01T00:00:03.000000000Z three\n2026-01-01T00:00:04.000000000Z four\n",
		},
		{"timestamps count for the limit", sample, Options{Timestamps: true, Limit: new(int64(32))}, "2026-01-01T00:00:01.000000000Z o"},
		{"bad line", "rubbish\n" + sample, Options{}, "one\ntwo\nthree\nfour\n"},
		{"last line without its end", sample + "2026-01-01T00:00:05Z stdout F five", Options{}, "one\ntwo\nthree\nfour\nfive\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out strings.Builder
			bad := 0
			tt.opts.Open = opener(logFile(t, tt.content))
			tt.opts.Stdout, tt.opts.Stderr = &out, &out
			tt.opts.Bad = func(error) { bad++ }
			if err := Read(t.Context(), tt.opts); err != nil {
				t.Fatal(err)
			}
			if got := out.String(); got != tt.want {
				t.Errorf("read %q, want %q", got, tt.want)
			}
			if want := strings.Count(tt.content, "rubbish"); bad != want {
				t.Errorf("%d bad lines told, want %d", bad, want)
			}
		})
	}
	t.Run("one stream", func(t *testing.T) {
		var out strings.Builder
		if err := Read(t.Context(), Options{Open: opener(logFile(t, sample)), Stderr: &out}); err != nil {
			t.Fatal(err)
		}
		if got := out.String(); got != "two\n" {
			t.Errorf("stderr = %q", got)
		}
	})
	t.Run("no file", func(t *testing.T) {
		if err := Read(t.Context(), Options{Open: opener("/nonexistent")}); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("Read = %v, want not exist", err)
		}
	})
	t.Run("a line longer than the buffer", func(t *testing.T) {
		var out strings.Builder
		long := strings.Repeat("x", 200<<10)
		path := logFile(t, "2026-01-01T00:00:01Z stdout F "+long+"\n"+sample)
		if err := Read(t.Context(), Options{Open: opener(path), Stdout: &out, Tail: new(int64(5))}); err != nil {
			t.Fatal(err)
		}
		if got, want := out.String(), long+"\none\nthree\nfour\n"; got != want {
			t.Errorf("read %d bytes, want %d", len(got), len(want))
		}
	})
}

// TestTailAgainstAll compares tails of a long file with the end of the whole.
func TestTailAgainstAll(t *testing.T) {
	var content strings.Builder
	var lines []string
	for i := range 5000 {
		text := strings.Repeat("z", i%97)
		if i%3 == 0 {
			fmt.Fprintf(&content, "2026-01-01T00:00:01Z stdout P %s\n", text)
			fmt.Fprintf(&content, "2026-01-01T00:00:01Z stdout F %d\n", i)
		} else {
			fmt.Fprintf(&content, "2026-01-01T00:00:01Z stdout F %s%d\n", text, i)
		}
		lines = append(lines, fmt.Sprintf("%s%d\n", text, i))
	}
	path := logFile(t, content.String())
	for _, n := range []int64{0, 1, 2, 3, 100, 1234, 4999, 5000, 5001} {
		var out strings.Builder
		if err := Read(t.Context(), Options{Open: opener(path), Stdout: &out, Tail: &n}); err != nil {
			t.Fatal(err)
		}
		want := strings.Join(lines[max(0, len(lines)-int(n)):], "")
		if out.String() != want {
			t.Errorf("tail %d: %d bytes, want %d", n, out.Len(), len(want))
		}
	}
}

// follower follows a file and hands out what it reads.
type follower struct {
	t       *testing.T
	running atomic.Bool
	out     *io.PipeReader
	done    chan error
	cancel  context.CancelFunc
}

func follow(t *testing.T, path string) *follower {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	in, out := io.Pipe()
	f := &follower{t: t, out: in, done: make(chan error, 1), cancel: cancel}
	f.running.Store(true)
	go func() {
		err := Read(ctx, Options{Open: opener(path), Stdout: out, Stderr: out, Running: f.running.Load})
		_ = out.CloseWithError(io.EOF) // never fails
		f.done <- err
	}()
	t.Cleanup(func() { cancel(); _ = in.Close() })
	return f
}

func (f *follower) expect(want string) {
	f.t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(f.out, got); err != nil || string(got) != want {
		f.t.Fatalf("followed %q, %v, want %q", got, err, want)
	}
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o640)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestFollow(t *testing.T) {
	path := logFile(t, sample)
	f := follow(t, path)
	f.expect("one\ntwo\nthree\nfour\n")

	t.Log("an entry that is written in two steps, then a part of a line")
	appendTo(t, path, "2026-01-01T00:00:05Z stdout F fi")
	appendTo(t, path, "ve\n2026-01-01T00:00:05Z stdout P si\n")
	f.expect("five\nsi")
	appendTo(t, path, "2026-01-01T00:00:05Z stdout F x\n")
	f.expect("x\n")

	t.Log("rotated by rename; the runtime writes to the old file until it opens the new one")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	appendTo(t, path+".1", "2026-01-01T00:00:06Z stdout F seven\n")
	f.expect("seven\n")
	appendTo(t, path+".1", "2026-01-01T00:00:06Z stdout F eight\n")
	appendTo(t, path, "2026-01-01T00:00:07Z stdout F nine\n")
	f.expect("eight\nnine\n")

	t.Log("rotated by truncation")
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	appendTo(t, path, "2026-01-01T00:00:08Z stdout F 10\n")
	f.expect("10\n")

	t.Log("the container ends after its last line")
	appendTo(t, path, "2026-01-01T00:00:09Z stdout F last\n2026-01-01T00:00:09Z stdout P prompt\n")
	f.running.Store(false)
	rest, err := io.ReadAll(f.out)
	if err != nil || string(rest) != "last\nprompt" {
		t.Errorf("the rest is %q, %v", rest, err)
	}
	if err := <-f.done; err != nil {
		t.Error(err)
	}
}

// TestFollowStaysForAWhile has the runtime write to the old file after it has
// made the new one.
func TestFollowStaysForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := logFile(t, sample)
		var out strings.Builder
		r := &reader{Options: Options{Open: opener(path), Stdout: &out}, left: -1, open: map[Stream]bool{}}
		if err := r.start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = r.file.Close() }()
		look := func(running, wantRotated bool, want string) {
			t.Helper()
			out.Reset()
			err := r.drain(t.Context())
			rotated := false
			if err == nil {
				rotated, err = r.reopen(t.Context(), running)
			}
			if err == nil {
				err = r.drain(t.Context())
			}
			if err != nil || rotated != wantRotated || out.String() != want {
				t.Errorf("rotated %v, read %q, %v; want %v, %q", rotated, out.String(), err, wantRotated, want)
			}
		}
		look(true, false, "one\nthree\nfour\n")
		rotate := func(i int) {
			if err := os.Rename(path, fmt.Sprint(path, ".", i)); err != nil {
				t.Fatal(err)
			}
			appendTo(t, path, fmt.Sprintf("2026-01-01T00:00:06Z stdout F new %d\n", i))
		}
		rotate(1)
		look(true, false, "")
		appendTo(t, path+".1", "2026-01-01T00:00:05Z stdout F late\n")
		time.Sleep(settleTime - 1)
		look(true, false, "late\n")
		appendTo(t, path+".1", "2026-01-01T00:00:05Z stdout F later\n")
		time.Sleep(time.Nanosecond)
		look(true, true, "later\nnew 1\n")
		rotate(2)
		look(true, false, "") // the while begins anew
		appendTo(t, path+".2", "2026-01-01T00:00:06Z stdout F last\n")
		look(false, true, "last\nnew 2\n") // ended: nobody writes any more
	})
}

func TestFollowEndsWithContext(t *testing.T) {
	f := follow(t, logFile(t, sample))
	f.expect("one\n")
	f.cancel()
	go func() { _, _ = io.Copy(io.Discard, f.out) }() // whatever was under way
	if err := <-f.done; !errors.Is(err, context.Canceled) {
		t.Errorf("Read = %v, want it cancelled", err)
	}
}

func TestFollowEndsWithTheReader(t *testing.T) {
	path := logFile(t, sample)
	f := follow(t, path)
	f.expect("one\n")
	if err := f.out.Close(); err != nil {
		t.Fatal(err)
	}
	appendTo(t, path, sample)
	if err := <-f.done; !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("Read = %v, want the reader gone", err)
	}
}

// TestFollowWithoutWatch follows a file in a folder that cannot be watched: it
// is gone, and the file is reached by another way.
func TestFollowWithoutWatch(t *testing.T) {
	path := logFile(t, sample)
	kept := logFile(t, "")
	if err := os.Remove(kept); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(path, kept); err != nil {
		t.Fatal(err)
	}
	first := true
	var running atomic.Bool
	running.Store(true)
	in, out := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := Read(t.Context(), Options{Stdout: out, Stderr: out, Running: running.Load, Open: func() (*os.File, error) {
			f, err := os.Open(kept)
			if first && err == nil {
				first = false
				if err := os.Rename(kept, path+".kept"); err != nil {
					return nil, err
				}
				if err := os.Remove(filepath.Dir(kept)); err != nil {
					return nil, err
				}
			}
			return f, err
		}})
		_ = out.CloseWithError(io.EOF) // never fails
		done <- err
	}()
	f := &follower{t: t, out: in}
	f.expect("one\ntwo\nthree\nfour\n")
	appendTo(t, path, "2026-01-01T00:00:05Z stdout F five\n")
	f.expect("five\n")
	running.Store(false)
	if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
		t.Errorf("the rest is %q, %v", rest, err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
