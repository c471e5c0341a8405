package podrun

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/crilog"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podfiles"
	"github.com/holdfast-dev/holdfast/internal/wake"
)

// lookPeriod is how often a follower looks for the log of another run of its
// container without being told of a change.
const lookPeriod = 200 * time.Millisecond

// logs writes what the containers of a pod write, until finish was called and
// all is written.
type logs struct {
	folder    string
	out       *console
	followers []*follower
}

func newLogs(folder string, pod *v1.Pod, out io.Writer) *logs {
	l := &logs{folder: podfiles.LogFolder(folder, pod.Namespace, pod.Name, pod.UID), out: &console{w: bufio.NewWriter(out)}}
	var names []string
	for _, c := range pod.Spec.InitContainers {
		names = append(names, c.Name)
	}
	for _, c := range pod.Spec.Containers {
		names = append(names, c.Name)
	}
	for _, name := range names {
		prefix := ""
		if len(names) > 1 {
			prefix = "[" + name + "] "
		}
		l.followers = append(l.followers, &follower{
			folder: filepath.Join(l.folder, name), name: name, last: -1, bell: wake.NewBell(), lines: &lines{out: l.out, prefix: prefix},
		})
	}
	return l
}

// run follows all containers. It returns early if nobody takes what it writes.
func (l *logs) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	for _, f := range l.followers {
		all.Go(func() {
			if err := f.run(ctx); err != nil {
				cancel(fmt.Errorf("write the log of container %s: %w", f.name, err))
			}
		})
	}
	all.Wait()
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return &Failure{CodeFailed, err}
	}
	return nil
}

// see takes in a newer status of the pod.
func (l *logs) see(pod *v1.Pod) {
	for _, c := range statuses(pod) {
		for _, f := range l.followers {
			if f.name == c.Name {
				f.see(c)
			}
		}
	}
}

// finish says that no container runs any more, nor will.
func (l *logs) finish() {
	for _, f := range l.followers {
		f.finish()
	}
}

// A follower writes the logs of one container's runs, one after the other.
type follower struct {
	folder, name string
	lines        *lines
	bell         wake.Bell
	last         int // run that was written; run's own

	mu struct {
		sync.Mutex
		status v1.ContainerStatus
		final  bool
	}
}

func (f *follower) see(status v1.ContainerStatus) {
	f.mu.Lock()
	f.mu.status = status
	f.mu.Unlock()
	f.bell.Ring()
}

func (f *follower) finish() {
	f.mu.Lock()
	f.mu.final = true
	f.mu.Unlock()
	f.bell.Ring()
}

func (f *follower) run(ctx context.Context) error {
	tick := time.NewTicker(lookPeriod)
	defer tick.Stop()
	for {
		final := f.isFinal() // asked first: what was written before it is seen below
		if next, ok := f.next(); ok {
			if err := f.write(ctx, next); err != nil {
				return err
			}
			f.last = next
			continue
		}
		if final {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-f.bell:
		case <-tick.C:
		}
	}
}

func (f *follower) isFinal() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.final
}

// next returns the run after the last one that has a log.
func (f *follower) next() (int, bool) {
	entries, err := os.ReadDir(f.folder)
	if err != nil {
		return 0, false // not yet, or not any more
	}
	next, found := 0, false
	for _, e := range entries {
		base, isLog := strings.CutSuffix(e.Name(), ".log")
		n, err := strconv.Atoi(base)
		if isLog && err == nil && n > f.last && (!found || n < next) {
			next, found = n, true
		}
	}
	return next, found
}

// write writes the log of one run until that has ended.
func (f *follower) write(ctx context.Context, run int) error {
	path := filepath.Join(f.folder, strconv.Itoa(run)+".log")
	err := crilog.Read(ctx, crilog.Options{
		Open:   func() (*os.File, error) { return os.Open(path) },
		Stdout: f.lines, Stderr: f.lines, Flush: f.lines.out.flush,
		Running: func() bool { return f.running(run) }, Wake: f.bell,
	})
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, context.Canceled) {
		err = nil
	}
	return errors.Join(err, f.lines.end())
}

// running reports whether a run of the container may still write.
func (f *follower) running(run int) bool {
	f.mu.Lock()
	final, s := f.mu.final, f.mu.status
	f.mu.Unlock()
	count := int(s.RestartCount)
	if final || count > run || count == run && (s.State.Terminated != nil || s.State.Waiting != nil && s.LastTerminationState.Terminated != nil) {
		return false
	}
	last := f.last
	f.last = run
	_, another := f.next()
	f.last = last
	return !another
}

// A console is where all containers write to, line by line.
type console struct {
	mu  sync.Mutex
	w   *bufio.Writer
	err error // of an earlier flush
}

func (c *console) flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.w.Flush(); err != nil {
		c.err = err
	}
}

// line writes a whole line.
func (c *console) line(prefix string, text []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	_, err := c.w.WriteString(prefix)
	if err == nil {
		_, err = c.w.Write(text)
	}
	return err
}

// maxLine is the most bytes of one line that are kept back until its end is
// there.
const maxLine = 1 << 20

// lines gathers what one container writes, so that its lines are not mixed with
// those of others. It is for one goroutine.
type lines struct {
	out    *console
	prefix string
	rest   []byte
}

// Write takes a part of a line, or lines.
func (l *lines) Write(p []byte) (int, error) {
	n := len(p)
	for {
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			break
		}
		l.rest = append(l.rest, p[:end+1]...)
		p = p[end+1:]
		if err := l.pass(); err != nil {
			return 0, err
		}
	}
	if l.rest = append(l.rest, p...); len(l.rest) > maxLine {
		l.rest = append(l.rest, '\n')
		return n, l.pass()
	}
	return n, nil
}

func (l *lines) pass() error {
	err := l.out.line(l.prefix, l.rest)
	l.rest = l.rest[:0]
	return err
}

// end writes a last line that has no end.
func (l *lines) end() error {
	var err error
	if len(l.rest) > 0 {
		l.rest = append(l.rest, '\n')
		err = l.pass()
	}
	l.out.flush()
	return errors.Join(err, l.out.failure())
}

func (c *console) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}
