package logrotate

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
	"github.com/holdfast-dev/holdfast/internal/kubelet/runtest"
)

// A host is a runtime and the folder that it writes logs to: what it has not
// opened anew it writes to under the file's new name.
type host struct {
	mu      sync.Mutex
	files   map[string]string // content
	open    map[string]string // by container: the name of the file that it writes to
	running []observed.ContainerStatus
	reopen  error // what opening anew answers
	late    bool  // and it does it all the same
	reopens int
	busy    int // compressions under way
	most    int
}

func newHost(ids ...string) *host {
	h := &host{files: map[string]string{}, open: map[string]string{}}
	for _, id := range ids {
		h.files[id], h.open[id] = "", id
		h.running = append(h.running, observed.ContainerStatus{ID: id, LogPath: id, State: observed.Running})
	}
	return h
}

func (h *host) write(id, text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.files[h.open[id]] += text
}

func (h *host) Containers() []observed.ContainerStatus {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.running)
}

func (h *host) ReopenLog(_ context.Context, id string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reopens++
	if h.reopen != nil && !h.late {
		return h.reopen
	}
	if _, ok := h.files[id]; !ok {
		h.files[id] = ""
	}
	h.open[id] = id
	return h.reopen
}

func (h *host) LogSize(path string) (int64, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	text, ok := h.files[path]
	if !ok {
		return 0, fs.ErrNotExist
	}
	return int64(len(text)), nil
}

func (h *host) RotatedLogs(path string) ([]string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.DeleteFunc(slices.Collect(maps.Keys(h.files)), func(name string) bool { return !strings.HasPrefix(name, path+".") }), nil
}

func (h *host) RenameLog(from, to string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.files[to]; ok {
		return fs.ErrExist
	}
	h.files[to] = h.files[from]
	delete(h.files, from)
	for id, name := range h.open {
		if name == from {
			h.open[id] = to
		}
	}
	return nil
}

func (h *host) CompressLog(path string) error {
	h.mu.Lock()
	h.busy++
	h.most = max(h.most, h.busy)
	h.mu.Unlock()
	time.Sleep(time.Second)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.busy--
	h.files[path+".gz"] = h.files[path]
	delete(h.files, path)
	return nil
}

func (h *host) RemoveFile(path string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.files, path)
	return nil
}

func (h *host) do(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
}

// want compares the files, those of time stamps with # for the stamp.
func (h *host) want(t *testing.T, want map[string]string) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	got := map[string]string{}
	for i, name := range slices.Sorted(maps.Keys(h.files)) {
		short := name
		if parts := strings.Split(name, "."); len(parts) > 1 {
			parts[1] = string(rune('0' + i))
			short = strings.Join(parts, ".")
		}
		got[short] = h.files[name]
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Error(diff)
	}
}

func start(t *testing.T, h *host, policy Policy) (stop func()) {
	t.Helper()
	r := New(Config{
		Policy: policy, Runtime: h, Reader: h, Writer: h, Containers: h.Containers,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	stop = runtest.Start(t, r.Run)
	synctest.Wait()
	return stop
}

func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

var small = Policy{MaxSize: 5, MaxFiles: 3, Workers: 1, Interval: 10 * time.Second}

func TestRotates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost("a")
		start(t, h, small)
		h.write("a", "1111")
		after(10 * time.Second)
		h.want(t, map[string]string{"a": "1111"})
		h.write("a", "1")
		after(10 * time.Second)
		h.want(t, map[string]string{"a": "", "a.1": "11111"})
		h.write("a", "22222")
		after(12 * time.Second)
		h.want(t, map[string]string{"a": "", "a.1.gz": "11111", "a.2": "22222"})
		h.write("a", "33333")
		after(12 * time.Second)
		h.want(t, map[string]string{"a": "", "a.1.gz": "22222", "a.2": "33333"})
	})
}

func TestDoesNotRotate(t *testing.T) {
	for name, test := range map[string]struct {
		policy Policy
		change func(h *host)
	}{
		"when told never to":        {Policy{MaxSize: -1, MaxFiles: 3, Workers: 1, Interval: time.Second}, func(*host) {}},
		"what does not run":         {small, func(h *host) { h.running = nil }},
		"what has no log":           {small, func(h *host) { h.running[0].LogPath = "" }},
		"below the default of 10Mi": {Policy{}, func(*host) {}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost("a")
				test.change(h)
				h.write("a", "too long")
				start(t, h, test.policy)
				after(time.Minute)
				h.want(t, map[string]string{"a": "too long"})
			})
		})
	}
}

// TestInterrupted has the agent die between the rename and the opening anew:
// the container writes to the old file, and the next agent finishes the work.
func TestInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost("a")
		h.write("a", "11111")
		if err := h.RenameLog("a", "a.20260101-000000"); err != nil {
			t.Fatal(err)
		}
		h.write("a", "2")
		start(t, h, small)
		h.write("a", "3")
		h.want(t, map[string]string{"a": "3", "a.1": "111112"})
	})
}

func TestRuntimeDoesNotReopen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost("a")
		h.write("a", "11111")
		h.reopen = errors.New("the runtime is away")
		start(t, h, small)
		h.want(t, map[string]string{"a": "11111"}) // where readers look for it
		h.do(func() { h.reopen = nil })
		h.write("a", "2")
		after(10 * time.Second)
		h.want(t, map[string]string{"a": "", "a.1": "111112"})
	})
}

// TestReopensAfterAll has the runtime open the log anew though the answer is an
// error: the new log must not be overwritten.
func TestReopensAfterAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost("a")
		h.write("a", "11111")
		h.reopen, h.late = context.DeadlineExceeded, true
		start(t, h, small)
		h.write("a", "2")
		h.want(t, map[string]string{"a": "2", "a.1": "11111"})
	})
}

func TestWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost("a", "b", "c", "d")
		for _, c := range h.running {
			h.files[c.ID+".20260101-000000"] = "old"
			h.write(c.ID, "too long")
		}
		start(t, h, Policy{MaxSize: 5, MaxFiles: 5, Workers: 2, Interval: 10 * time.Second})
		after(5 * time.Second)
		if h.reopens != 4 || h.most != 2 {
			t.Errorf("%d logs rotated, %d at once; want 4, 2", h.reopens, h.most)
		}
	})
}

func TestStopsBetweenLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost("a", "b")
		for _, c := range h.running {
			h.files[c.ID+".20260101-000000"] = "old"
			h.write(c.ID, "too long")
		}
		stop := start(t, h, Policy{MaxSize: 5, MaxFiles: 5, Workers: 1, Interval: 10 * time.Second})
		stop() // while the first is compressed: that one is finished
		if h.reopens != 1 {
			t.Errorf("%d logs rotated, want the one in hand", h.reopens)
		}
	})
}
