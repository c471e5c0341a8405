// Package stats collects what the node, its pods, their containers and volumes use:
// upstream's Summary, and what is derived from it.
//
// It collects on a schedule of its own and answers from the last collection, which
// says for each figure when it was taken. However many ask, and however slow the
// runtime is, there is one collection at a time and nobody waits for one, but for the
// first. The rate of processor time, usageNanoCores, comes from two collections.
//
// Figures come from the control groups, which have them all and at once; the runtime
// is asked only for writable layers, and the analyzer for volumes. The list of pods is
// what the node should run, so that a pod whose containers are down keeps the figures
// of its volumes. What cannot be read costs its own entry, is told once and counted;
// what is not known is absent, never 0. The many series of cAdvisor's are read only for
// who asks for them, once a collection at most.
//
// One goroutine collects; what it has collected is never changed.
package stats

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/holdfast-dev/holdfast/internal/cgroupfs"
	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

// machine says how full the node is, and what it does on the network. The calls read
// anew and do not block.
type machine interface {
	Free() (statsapi.NodeStats, error)
	Filesystem(path string) (fs statsapi.FsStats, device uint64, err error)
	// Network returns the interfaces that the process has, 0 for our own.
	Network(process int) ([]statsapi.InterfaceStats, error)
	// BootTime is when the machine started.
	BootTime() (time.Time, error)

	processes
	details
	devices
}

// runtime is the container runtime. Calls end with their context.
type runtime interface {
	ImageFS(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error)
	ContainerStats(ctx context.Context) ([]*runtimeapi.ContainerStats, error)
}

// groups reads control groups.
type groups interface {
	Read(group string, r *cgroupfs.Reading) error
	ReadDetails(group string, d *cgroupfs.Details) error
	Processes(group string) (ids []int, err error)
}

// podGroups names the control groups of pods.
type podGroups interface {
	Group(pod *v1.Pod) string
	AllPods() string
}

// statuses knows what the runtime last reported of a pod.
type statuses interface {
	Get(uid types.UID) (*observed.Status, error)
}

// logs counts the logs of a pod, by container.
type logs interface {
	LogUsage(ctx context.Context, pod *v1.Pod) (map[string]statsapi.FsStats, error)
}

// volumes knows what pods' volumes take. The call does not block.
type volumes interface {
	Volumes(pod *v1.Pod) []podvolumes.Measured
}

// Config says what to collect from. Required but what says otherwise.
type Config struct {
	Node      string
	Dir       string           // the kubelet's folder: its filesystem is the node's
	Pods      func() []*v1.Pod // that the node is to run; must not block
	Statuses  statuses
	Groups    groups
	PodGroups podGroups
	Machine   machine
	Runtime   runtime
	// RuntimeSocket is where the runtime listens: the process that does is the one in the
	// Summary. Empty: there is none there.
	RuntimeSocket string
	Logs          logs
	Volumes       volumes
	Metrics       prometheus.Registerer // nil: nothing is registered
	Log           *slog.Logger

	Period  time.Duration // from one collection to the next; default 10s
	Timeout time.Duration // of one question to the runtime, and of the count of all logs; default 5s
}

func (c Config) withDefaults() Config {
	c.Period = cmp.Or(c.Period, 10*time.Second)
	c.Timeout = cmp.Or(c.Timeout, 5*time.Second)
	return c
}

// A Collector collects for one node.
type Collector struct {
	cfg    Config
	errors *prometheus.CounterVec

	last  atomic.Pointer[Collection]
	first chan struct{} // closed when last is there

	// The loop's own, without a lock.
	cpu     map[string]cpuReading       // by group
	layers  map[string]statsapi.FsStats // writable layers as last known, by container ID
	images  [2]disk                     // of images and of layers, as the runtime last said
	unread  map[string]string           // what could not be read last time, and why
	failed  bool                        // in this collection
	boot    time.Time
	reading cgroupfs.Reading
	runtime process
}

// disk is a filesystem of the runtime's.
type disk struct {
	path   string
	used   *uint64 // bytes, as the runtime counts
	inodes *uint64
}

// cpuReading is what the rate is made of.
type cpuReading struct {
	at    time.Time
	nanos uint64
}

// New returns a Collector that collects nothing before Run.
func New(cfg Config) *Collector {
	c := &Collector{
		cfg: cfg.withDefaults(), first: make(chan struct{}), cpu: map[string]cpuReading{}, layers: map[string]statsapi.FsStats{}, unread: map[string]string{},
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_stats_errors_total", Help: "Figures of the Summary that could not be read, by what they are of",
		}, []string{"part"}),
	}
	if c.cfg.Metrics != nil {
		c.cfg.Metrics.MustRegister(c.errors, series{c})
	}
	return c
}

// Run collects until ctx is done.
func (c *Collector) Run(ctx context.Context) error {
	ticker := time.NewTicker(c.cfg.Period)
	defer ticker.Stop()
	for {
		made := c.collect(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if c.last.Swap(made) == nil {
			close(c.first)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// Last returns the last collection. It waits only for the first one. The caller must
// not change it.
func (c *Collector) Last(ctx context.Context) (*Collection, error) {
	select {
	case <-c.first:
		return c.last.Load(), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// A Collection is what was collected at one time. Nothing changes it.
type Collection struct {
	Summary *statsapi.Summary
	// Failed is whether something could not be had.
	Failed bool
	// Volumes are those of each pod of the Summary, in its order.
	Volumes [][]podvolumes.Measured

	// For cAdvisor's series: what each pod of the Summary was, in its order, and a path on
	// the filesystem of writable layers.
	pods   []source
	layers string

	full, small encoded
	resource    encoded
	cadvisor    encoded
}

// source is a pod as it was collected. status is nil if nothing is known of it.
type source struct {
	pod    *v1.Pod
	status *observed.Status
}

// encoded is an answer that is made once, when the first asks for it.
type encoded struct {
	once sync.Once
	data []byte
	err  error
}
