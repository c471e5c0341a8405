// Package volumemanager mounts the volumes of pods and unmounts them again.
//
// It keeps two worlds: which pods want their volumes (told by WaitForMount and
// Unmount), and which volumes are there (found on disk at the start, then known
// from what it did). For every pod on its own it works the second towards the
// first, tries again what failed, and keeps the files of ConfigMaps, Secrets,
// projected and downward API volumes up to date while the pod runs.
//
// A pod whose volumes were there before the start keeps them until somebody
// says that it is not wanted: a restart of the agent mounts nothing twice and
// takes nothing away. If the objects behind a volume cannot be had, a pod that
// has the volume already goes on with the content it has.
//
// One goroutine at most works on a pod, so a mount that hangs stops its own pod
// and no other. All methods may be called by any goroutine.
package volumemanager

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
	"github.com/holdfast-dev/holdfast/internal/wake"
)

// mounter makes and removes volumes on the machine. Both may be repeated.
type mounter interface {
	SetUp(ctx context.Context, v *podvolumes.Volume) (path string, err error)
	TearDown(ctx context.Context, uid types.UID, id podvolumes.ID) error
}

// grower makes a volume that is set up as large as v.GrowTo says, and has the
// API told. It may be repeated.
type grower interface {
	Grow(ctx context.Context, v *podvolumes.Volume) error
}

// subPaths binds parts of volumes for containers.
type subPaths interface {
	BindSubPath(ctx context.Context, s podvolumes.SubPath) (string, error)
	CleanSubPaths(ctx context.Context, uid types.UID) error
}

// folders knows what earlier processes left on disk.
type folders interface {
	Found(ctx context.Context) ([]podvolumes.Found, error)
	Pods(ctx context.Context) ([]types.UID, error)
	RemovePod(ctx context.Context, uid types.UID) error
}

// holder keeps the objects of a pod in memory between Hold and Release.
type holder interface {
	Hold(pod *v1.Pod)
	Release(uid types.UID)
}

// Config says what a Manager works with.
type Config struct {
	Log      *slog.Logger
	Mounts   mounter
	Grower   grower // nil: no volume grows
	SubPaths subPaths
	Folders  folders
	Holder   holder
	Objects  podvolumes.Objects
	// Host returns what contents may say about the machine. It must not block.
	Host func() podvolumes.Host

	// Reported says whether the API knows that this node uses a volume. A volume
	// that can be attached is set up only then, so that nobody detaches it below
	// the pod. nil: nobody has to know. It must not block.
	Reported func(v1.UniqueVolumeName) bool
	// InUseChanged is called when InUse gives something else than before. It must
	// not block and must not call the manager.
	InUseChanged func()

	// Parallel is how many pods are worked on at once. Default 16. A pod that
	// takes longer than a few seconds does not count.
	Parallel int
	// Period is how often the content of a running pod's volumes is compared,
	// besides whenever one of its objects changes. Default 1 minute, the upstream
	// kubelet's; tokens are renewed at that grain.
	Period time.Duration
	// MaxRetry is the longest pause after failures. Default 1 minute.
	MaxRetry time.Duration
	// Resolve bounds the reads of API objects for one pod. Default 10 s.
	Resolve time.Duration

	Metrics prometheus.Registerer // nil: nobody sees them
}

func (c Config) withDefaults() Config {
	if c.Host == nil {
		c.Host = func() podvolumes.Host { return podvolumes.Host{} }
	}
	if c.Reported == nil {
		c.Reported = func(v1.UniqueVolumeName) bool { return true }
	}
	if c.InUseChanged == nil {
		c.InUseChanged = func() {}
	}
	c.Parallel = cmp.Or(c.Parallel, 16)
	c.Period = cmp.Or(c.Period, time.Minute)
	c.MaxRetry = cmp.Or(c.MaxRetry, time.Minute)
	c.Resolve = cmp.Or(c.Resolve, 10*time.Second)
	return c
}

// A Manager mounts and unmounts.
type Manager struct {
	cfg           Config
	operations    *prometheus.HistogramVec
	wake          wake.Bell     // some pod is due
	reconstructed chan struct{} // closed by Run when it knows what is on disk

	mu struct {
		sync.Mutex
		pods  map[types.UID]*podState
		inUse []v1.UniqueVolumeName // as last told
	}
}

// New makes a Manager. It looks at nothing before Run.
func New(cfg Config) *Manager {
	m := &Manager{cfg: cfg.withDefaults(), operations: newOperations(), wake: wake.NewBell(), reconstructed: make(chan struct{})}
	m.mu.pods = map[types.UID]*podState{}
	if m.cfg.Metrics != nil {
		m.cfg.Metrics.MustRegister(m.operations, collector{m})
	}
	return m
}
