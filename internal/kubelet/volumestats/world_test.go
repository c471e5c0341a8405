package volumestats

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a node of pods whose volumes take what it is told.
type world struct {
	mu      sync.Mutex // guards the fields below
	pods    []*v1.Pod
	hidden  map[string]bool          // paths that are not there yet
	same    string                   // the path of all volumes; empty: each has its own
	hang    map[string]chan struct{} // paths that do not answer until it is closed
	fail    map[string]error
	calls   []string // paths, in order
	running int
	most    int           // that ran at once
	takes   time.Duration // of each call
	ill     *string       // what is wrong with all volumes
	log     bytes.Buffer
}

func newWorld() *world {
	return &world{hidden: map[string]bool{}, hang: map[string]chan struct{}{}, fail: map[string]error{}}
}

func pod(uid string, volumes ...string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod-" + uid, UID: types.UID(uid)}}
	for _, name := range volumes {
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}})
	}
	return p
}

func (w *world) set(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func (w *world) Pods() []*v1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.pods)
}

func (w *world) Paths(uid types.UID) map[string]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	paths := map[string]string{}
	for _, p := range w.pods {
		if p.UID != uid {
			continue
		}
		for _, v := range p.Spec.Volumes {
			path := fmt.Sprintf("/%s/%s", uid, v.Name)
			if w.same != "" {
				path = w.same
			}
			if !w.hidden[path] {
				paths[v.Name] = path
			}
		}
	}
	return paths
}

func (w *world) Measure(ctx context.Context, path string) (podvolumes.Usage, error) {
	w.mu.Lock()
	w.calls = append(w.calls, path)
	w.running++
	w.most = max(w.most, w.running)
	hang, takes := w.hang[path], w.takes
	w.mu.Unlock()
	if hang != nil {
		<-hang // whatever the context says
	}
	var err error
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		if hang == nil {
			err = ctx.Err()
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running--
	if err != nil {
		return podvolumes.Usage{}, err
	}
	used := uint64(len(path))
	return podvolumes.Usage{Method: podvolumes.ByWalk, UsedBytes: &used, Abnormal: w.ill}, w.fail[path]
}

func (w *world) count(path string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, c := range w.calls {
		if c == path {
			n++
		}
	}
	return n
}

func (w *world) config() Config {
	return Config{Pods: w.Pods, Paths: w, Measurer: w, Log: slog.New(slog.NewTextHandler(&w.log, nil))}
}

// run runs an Analyzer until the returned function is called, which waits for its end.
func run(t *testing.T, cfg Config) (*Analyzer, func()) {
	t.Helper()
	a := New(cfg)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := a.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	return a, func() {
		cancel()
		<-ended
	}
}

// pass lets time pass, and what is due happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
