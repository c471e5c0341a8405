// Package csi mounts volumes by asking the drivers that bring them, over the
// node service of the Container Storage Interface.
//
// A driver is known from Register to Deregister. A volume is staged once on the
// node, by the first pod that uses it, published to each of its pods, and
// unstaged by the last:
//
//	SetUp     note who wants it ─► stage, if nobody has ─► publish ─► group ─► mark
//	TearDown  unpublish ─► unstage, if no other pod has a note ─► forget the note
//
// A raw device goes the same way, and its pod has a link to it.
//
// A note comes before the first call that it is about and goes after the last,
// so that whoever starts after a crash, between any two steps, knows what may
// be there; the calls may be repeated, which the interface demands of drivers.
// Folders and notes are upstream's, so that a node can change from one to the
// other. Secrets are read when they are needed and kept nowhere.
//
// Methods may be called by any goroutine; calls for one volume of the node wait
// for each other. Every call of a driver is bounded.
package csi

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

// PluginType is what drivers call themselves when they register.
const PluginType = "CSIPlugin"

// objects gives what the API says of drivers and volumes. A missing object is an
// error that apierrors.IsNotFound knows. What it returns must not be changed.
type objects interface {
	GetCSIDriver(ctx context.Context, name string) (*storagev1.CSIDriver, error)
	GetVolumeAttachment(ctx context.Context, name string) (*storagev1.VolumeAttachment, error)
	GetSecret(ctx context.Context, namespace, name string) (*v1.Secret, error)
	Token(ctx context.Context, namespace, serviceAccount string, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error)
}

// Config says which node this is and whom to ask.
type Config struct {
	Dir     string // the kubelet's folder; absolute
	Node    string // its name in the API
	Objects objects
	Log     *slog.Logger

	// SetGroup gives the tree at path to the volume's group, by its policy.
	SetGroup func(ctx context.Context, path string, v *podvolumes.Volume) error
	// Unmap undoes how an upstream kubelet holds the device of a pod's volume.
	Unmap func(uid types.UID, id podvolumes.ID) error
	// Changed is called when Drivers has changed. It must not block.
	Changed func()

	Metrics prometheus.Registerer // nil: calls are not counted

	// Timeout bounds each call of a driver. Default 2 minutes, upstream's.
	Timeout time.Duration
}

func (c Config) withDefaults() Config {
	c.Timeout = cmp.Or(c.Timeout, 2*time.Minute)
	if c.Changed == nil {
		c.Changed = func() {}
	}
	return c
}

// A Host has the drivers of this node mount volumes.
type Host struct {
	cfg    Config
	layout layout
	calls  *prometheus.HistogramVec
	users  users

	mu struct {
		sync.Mutex
		drivers map[string]*driver // by name
		staged  map[string]bool    // by path; by this process: they need not be staged again
		grown   map[volume]int64   // bytes to which this process had them grown when they were staged
		done    map[string]bool    // targets that this process published or looked at
		attach  map[string]bool    // by driver: what its CSIDriver said last
		locks   map[volume]*lock
	}
}

// volume is one volume of one driver, whoever uses it.
type volume struct{ driver, handle string }

// lock is held by who works on a volume. waiting, guarded by the host's lock,
// counts who has it or wants it.
type lock struct {
	held    chan struct{} // buffer 1: full while somebody has it; never closed
	waiting int
}

// New makes a Host. It asks nobody anything yet.
func New(cfg Config) *Host {
	h := &Host{cfg: cfg.withDefaults(), layout: layout{podvolumes.Layout(cfg.Dir)}}
	h.calls = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "csi_operations_seconds",
		Help:    "How long calls of CSI drivers took, by driver, method and answer",
		Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600},
	}, []string{"driver_name", "method_name", "grpc_status_code", "migrated"})
	if h.cfg.Metrics != nil {
		h.cfg.Metrics.MustRegister(h.calls)
	}
	h.users.volumes = map[string]volume{}
	h.mu.drivers = map[string]*driver{}
	h.mu.staged = map[string]bool{}
	h.mu.grown = map[volume]int64{}
	h.mu.done = map[string]bool{}
	h.mu.attach = map[string]bool{}
	h.mu.locks = map[volume]*lock{}
	return h
}

// lock waits until nobody else works on a volume.
func (h *Host) lock(ctx context.Context, v volume) (unlock func(), err error) {
	h.mu.Lock()
	l := h.mu.locks[v]
	if l == nil {
		l = &lock{held: make(chan struct{}, 1)}
		h.mu.locks[v] = l
	}
	l.waiting++
	h.mu.Unlock()
	leave := func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if l.waiting--; l.waiting == 0 {
			delete(h.mu.locks, v)
		}
	}
	select {
	case l.held <- struct{}{}:
		return func() { <-l.held; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, context.Cause(ctx)
	}
}
