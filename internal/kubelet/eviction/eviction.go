// Package eviction keeps a node from running out of memory, disk or process
// identifiers: it says which of them are low, gives back what nobody needs, and
// at last ends pods. It also ends pods that have more on disk than their limits
// allow.
//
// It reads how full the machine and its filesystems are, what pods use while
// that matters, and, of pods, only those that their workers keep running. It
// tells the statuses why a pod ends and asks its worker to end it. Its rules are
// the upstream kubelet's eviction manager's, but for these:
//
//   - What could not be read is not acted upon: a pod of whose use nothing is
//     known stays.
//   - Because of a disk, pods go only if what they have on it is enough to cure
//     it. A disk that others have filled takes no pod with it.
//   - A static pod goes like any other, unless its priority is critical: on a node
//     of static pods nobody would go otherwise.
//
// One goroutine looks and acts. What it says may be asked from any.
package eviction

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/lifecycle"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

// machine says how full the node is. The calls read anew and do not block.
type machine interface {
	// Free returns the memory and the process identifiers.
	Free() (stats.NodeStats, error)
	// Filesystem returns the filesystem that holds path, and its device.
	Filesystem(path string) (fs stats.FsStats, device uint64, err error)
}

// runtime is the container runtime. Calls end with their context.
type runtime interface {
	ImageFS(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error)
	// ContainerStats returns what the containers that run use.
	ContainerStats(ctx context.Context) ([]*runtimeapi.ContainerStats, error)
}

// cgroups are those of pods.
type cgroups interface {
	// Usage returns the working set in bytes, and the number of processes, of a pod.
	Usage(uid types.UID) (workingSet, processes uint64, err error)
	// WorkingSet returns the working set in bytes of all pods.
	WorkingSet() (uint64, error)
}

// logFolders are those of pods.
type logFolders interface {
	// LogUsage returns what a pod's logs take, by container. It ends with ctx, and
	// returns then what it has counted.
	LogUsage(ctx context.Context, pod *v1.Pod) (map[string]stats.FsStats, error)
}

// analyzer knows what is in volumes.
type analyzer interface {
	// Refresh has the emptyDirs of pods measured whose figures are older than age, and
	// waits for that until ctx is done.
	Refresh(ctx context.Context, age time.Duration, pods ...*v1.Pod)
	// Volumes returns what is known of a pod's volumes. It does not block.
	Volumes(pod *v1.Pod) []podvolumes.Measured
}

// workers run the pods. None of the calls blocks.
type workers interface {
	Update(req lifecycle.Request)
	Snapshot() []lifecycle.Info
}

// statuses keep why a pod has ended. The call does not block.
type statuses interface {
	End(uid types.UID, reason, message string, disrupted bool)
}

// Config holds what a Manager needs. Required but what says otherwise.
type Config struct {
	Policy  Policy
	Dir     string // the kubelet's folder: its filesystem is nodefs
	Machine machine
	Runtime runtime
	Cgroups cgroups
	// PodMemory is how many bytes all pods together may have. 0: all of the machine's.
	PodMemory int64
	Logs      logFolders
	Volumes   analyzer
	Workers   workers
	Statuses  statuses

	// Images removes the images, and Containers what is left of the containers,
	// that nobody needs. They may block, and are called from one goroutine.
	Images, Containers func(ctx context.Context) error
	// Changed is called after the conditions have changed, and must not block.
	Changed func()
	// Known is closed once all pods that run are known. Nothing is done about what is
	// low before, or before one Period is over: a source may not answer for long.
	// Nil: they are known.
	Known <-chan struct{}

	Recorder record.EventRecorder
	Node     *v1.ObjectReference // which events are about
	Metrics  prometheus.Registerer
	Log      *slog.Logger

	Period    time.Duration // between two looks; default 10 s, as upstream's
	Timeout   time.Duration // of one question to the runtime; default 5 s
	CleanWait time.Duration // how long, beyond its grace period, a pod's end is waited for before the next look; default 30 s, as upstream's
	CleanPoll time.Duration // between two looks whether it has ended; default 1 s, as upstream's
}

func (c Config) withDefaults() Config {
	c.Period = cmp.Or(c.Period, 10*time.Second)
	c.Timeout = cmp.Or(c.Timeout, 5*time.Second)
	c.CleanWait = cmp.Or(c.CleanWait, 30*time.Second)
	c.CleanPoll = cmp.Or(c.CleanPoll, time.Second)
	return c
}

// A Manager watches over one node.
type Manager struct {
	cfg     Config
	metrics metrics

	// The loop's own, without a lock.
	history history
	mounts  mounts            // as the runtime last said
	unread  map[string]string // what could not be read last time, and why

	mu struct {
		sync.Mutex
		conditions []v1.NodeConditionType
		low        []string // what is low
		trouble    string   // why that stays so; empty: nothing is low, or something is done
	}
}

// New returns a Manager that does nothing until Run.
func New(cfg Config) *Manager {
	m := &Manager{cfg: cfg.withDefaults(), metrics: newMetrics(), unread: map[string]string{}}
	m.metrics.register(cfg.Metrics)
	return m
}

// Run looks once a period, and at once after a pod has ended, until ctx is done.
func (m *Manager) Run(ctx context.Context) error {
	if m.cfg.Known != nil {
		m.look(ctx)
		m.pause(ctx, m.cfg.Known)
	}
	for ctx.Err() == nil {
		if ended := m.round(ctx); len(ended) > 0 {
			m.waitForEnd(ctx, ended)
			continue
		}
		m.pause(ctx, nil)
	}
	return nil
}

// pause waits for a period, or until early is closed.
func (m *Manager) pause(ctx context.Context, early <-chan struct{}) {
	timer := time.NewTimer(m.cfg.Period)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-early:
	case <-timer.C:
	}
}

// Conditions returns which of MemoryPressure, DiskPressure and PIDPressure the
// node has. The caller must not change it.
func (m *Manager) Conditions() []v1.NodeConditionType {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.conditions
}

// Faults returns what is low, and why nothing is done about it, for people.
func (m *Manager) Faults() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.trouble != "" {
		return []string{m.mu.trouble}
	}
	return m.mu.low
}
