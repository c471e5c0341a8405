package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/crilog"
	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
)

// serveLogs answers /containerLogs: what a container wrote. A followed log
// ends when its container has.
func (s *Server) serveLogs(w http.ResponseWriter, r *http.Request) {
	opts, err := logOptions(r.URL.Query())
	switch {
	case errors.Is(err, errDecode):
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	case err != nil:
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		return
	}
	target, ok := s.find(w, r)
	if !ok {
		return
	}
	container, err := instance(target, opts.Previous)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	dir, err := os.OpenRoot(s.cfg.LogDir)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer func() { _ = dir.Close() }()
	name, err := filepath.Rel(s.cfg.LogDir, container.LogPath)
	if err != nil || !filepath.IsLocal(name) {
		s.log.Warn("Log file is outside the log folder", "container", container.ID)
		http.Error(w, fmt.Sprintf("container %q has no log file of ours", target.container), http.StatusInternalServerError)
		return
	}
	wrote := &answer{ResponseWriter: w}
	err = crilog.Read(r.Context(), s.readOptions(target, container, opts, wrote, func() (*os.File, error) { return dir.Open(name) }))
	switch {
	case err == nil || errors.Is(err, context.Canceled):
	case errors.Is(err, fs.ErrNotExist) && !wrote.begun:
		http.Error(w, fmt.Sprintf("container %q in pod %q has no log", target.container, target.pod.Name), http.StatusNotFound)
	case !wrote.begun:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	default:
		s.log.Debug("Log was not written to its end", "container", container.ID, "err", err)
		panic(http.ErrAbortHandler) // so that the client does not take a part for the whole
	}
}

func (s *Server) readOptions(t target, container *observed.ContainerStatus, opts *v1.PodLogOptions, w *answer, open func() (*os.File, error)) crilog.Options {
	read := crilog.Options{
		Open: open, Flush: w.flush, Tail: opts.TailLines, Limit: opts.LimitBytes, Timestamps: opts.Timestamps,
		Bad: func(err error) { s.log.Debug("Log line was left out", "container", container.ID, "err", err) },
	}
	if *opts.Stream != v1.LogStreamStderr {
		read.Stdout = w
	}
	if *opts.Stream != v1.LogStreamStdout {
		read.Stderr = w
	}
	switch {
	case opts.SinceSeconds != nil:
		read.Since = time.Now().Add(-time.Duration(*opts.SinceSeconds) * time.Second)
	case opts.SinceTime != nil:
		read.Since = opts.SinceTime.Time
	}
	if opts.Follow {
		read.Running = func() bool { return s.isRunning(t, container.ID) }
	}
	return read
}

// isRunning reports whether a container still writes. While its pod cannot be
// inspected it is taken to.
func (s *Server) isRunning(t target, id string) bool {
	status, err := s.cfg.Statuses.Get(t.pod.UID)
	if err != nil {
		return true
	}
	i := slices.IndexFunc(status.Containers, func(c observed.ContainerStatus) bool { return c.ID == id })
	return i >= 0 && status.Containers[i].State == observed.Running
}

// instance picks the container whose log is wanted: the newest that has run,
// or the one before. The errors are the upstream kubelet's, which tools show
// to their users.
func instance(t target, previous bool) (*observed.ContainerStatus, error) {
	var started []*observed.ContainerStatus // newest first
	for i := range t.status.Containers {
		c := &t.status.Containers[i]
		if c.Name == t.container && (c.State == observed.Running || c.State == observed.Exited) {
			started = append(started, c)
		}
	}
	if previous {
		// A container that waits for its next start has its last run behind it.
		last := 1
		if isWaiting, _ := waiting(t.pod, t.container); isWaiting {
			last = 0
		}
		if len(started) <= last || started[last].State != observed.Exited {
			return nil, fmt.Errorf("previous terminated container %q in pod %q not found", t.container, t.pod.Name)
		}
		return started[last], nil
	}
	if len(started) == 0 {
		_, why := waiting(t.pod, t.container)
		return nil, fmt.Errorf("container %q in pod %q is waiting to start: %s", t.container, t.pod.Name, why)
	}
	return started[0], nil
}

// waiting reports whether a container waits, and for what, as its pod's status
// has it.
func waiting(pod *v1.Pod, name string) (isWaiting bool, why string) {
	for _, status := range slices.Concat(pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses, pod.Status.EphemeralContainerStatuses) {
		state := status.State.Waiting
		if status.Name != name || state == nil {
			continue
		}
		return true, cmp.Or(state.Message, state.Reason)
	}
	return false, "it was not created yet"
}

// answer is a response that knows whether it has begun.
type answer struct {
	http.ResponseWriter
	begun bool
}

// Write is that of an http.ResponseWriter. Logs are text, whatever they look like.
func (a *answer) Write(p []byte) (int, error) {
	if !a.begun {
		a.begun = true
		a.Header().Set("Content-Type", "text/plain; charset=utf-8")
		a.Header().Set("X-Content-Type-Options", "nosniff")
	}
	return a.ResponseWriter.Write(p)
}

// flush sends what was written. A log of which nothing is written yet is begun
// too: its follower knows then that it is being followed.
func (a *answer) flush() {
	_, _ = a.Write(nil)
	_ = http.NewResponseController(a.ResponseWriter).Flush() // a client that is gone shows at the next write
}
