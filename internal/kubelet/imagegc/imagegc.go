// Package imagegc removes images that nobody uses: those unused for too long,
// and, when the filesystem of images is too full, the longest unused ones until
// there is room again.
//
// It reads the runtime's images and containers and the names of images in the
// pods that are wanted. An image stays as long as any container, running or
// dead, uses it, a wanted pod names it (so that the pod can start again where
// nothing can be pulled), the runtime makes sandboxes of it, or the runtime has
// it pinned. Nothing is removed before it is known which pods are wanted.
//
// One look is made at a time, whoever asks for it. When an image was last used
// is known since the agent's start, to the precision of the period, as for
// upstream's kubelet.
package imagegc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/record"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/reason"
)

// runtime is the container runtime. Calls may be concurrent with anything.
type runtime interface {
	Images(ctx context.Context) ([]*runtimeapi.Image, error)
	// UsedImages returns IDs and names of the images that containers are of.
	UsedImages(ctx context.Context) ([]string, error)
	// SandboxImage returns what sandboxes are made of; empty: not known.
	SandboxImage(ctx context.Context) (string, error)
	RemoveImage(ctx context.Context, ref string) error
}

// Config says what goes and whom to ask. Required but what says otherwise.
type Config struct {
	Policy  Policy // zero: DefaultPolicy
	Runtime runtime
	// Space returns the filesystem that holds images.
	Space func(ctx context.Context) (Space, error)
	// Wanted returns the names of the images that wanted pods name. Not known:
	// not every source of pods has been seen, and nothing is removed.
	Wanted  func() (names []string, known bool)
	Events  record.EventRecorder
	Node    *v1.ObjectReference // which events are about
	Metrics prometheus.Registerer
	Log     *slog.Logger

	// Listed is told at each look which images there were at a time, before any is
	// removed. Nil: nobody is.
	Listed func(images []*runtimeapi.Image, at time.Time)

	Period time.Duration // between two looks; default 5 min, as upstream's
}

// A Collector removes images.
type Collector struct {
	cfg     Config
	turn    chan struct{} // holds one value while nobody looks; guards the fields below
	records map[string]history
	began   time.Time // of the first look
	removed *prometheus.CounterVec

	mu struct {
		sync.Mutex
		err error // why images are not collected; nil: they are, or it failed just once
	}
}

// Why an image was removed, in the metric's words.
const (
	byAge   = "age"
	bySpace = "space"
)

// New returns a Collector that does nothing until Run.
func New(cfg Config) *Collector {
	if cfg.Policy == (Policy{}) {
		cfg.Policy = DefaultPolicy()
	}
	cfg.Period = cmp.Or(cfg.Period, 5*time.Minute)
	if cfg.Listed == nil {
		cfg.Listed = func([]*runtimeapi.Image, time.Time) {}
	}
	c := &Collector{
		cfg:  cfg,
		turn: make(chan struct{}, 1),
		removed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_image_garbage_collected_total",
			Help: "Images removed because they were unused for too long (age) or to make room (space).",
		}, []string{"reason"}),
	}
	c.turn <- struct{}{}
	cfg.Metrics.MustRegister(c.removed)
	return c
}

// errUnknown is returned by what would remove images while it is not known
// which pods are wanted.
var errUnknown = errors.New("not every source of pods has been seen yet")

// retryUnknown is how soon a look that came too early is made again.
const retryUnknown = time.Second

// Run looks at once and then once a period, until ctx is done.
func (c *Collector) Run(ctx context.Context) error {
	failing := false
	for {
		wait := c.cfg.Period
		err := c.collect(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errUnknown):
			wait = retryUnknown
		case err == nil && failing:
			c.cfg.Log.Info("images are collected again")
			c.setErr(nil)
			failing = false
		case err != nil && failing: // once may be a runtime that restarts
			c.cfg.Log.Error("collection of images failed again", "err", err)
			c.cfg.Events.Event(c.cfg.Node, v1.EventTypeWarning, reason.ImageGCFailed, err.Error())
			c.setErr(err)
		case err != nil:
			c.cfg.Log.Warn("collection of images failed, trying again", "err", err, "wait", wait)
			failing = true
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
}

// Err returns why images are not collected, or why that makes too little room,
// once it has failed twice in a row; nil: all is well.
func (c *Collector) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.err
}

func (c *Collector) setErr(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.err = err
}

// DeleteUnused removes, now and whatever room there is, every image that
// nothing keeps and that is older than the policy's minimum age. It may be
// called while Run runs.
func (c *Collector) DeleteUnused(ctx context.Context) error {
	release, err := c.take(ctx)
	if err != nil {
		return err
	}
	defer release()
	now := time.Now()
	candidates, err := c.look(ctx, now)
	if err != nil {
		return err
	}
	_, err = c.free(ctx, removable(candidates, c.cfg.Policy.MinAge, now), math.MaxInt64, bySpace)
	return err
}

func (c *Collector) take(ctx context.Context) (release func(), err error) {
	select {
	case <-c.turn:
		return func() { c.turn <- struct{}{} }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// collect removes what is too old, and then what is too much.
func (c *Collector) collect(ctx context.Context) error {
	release, err := c.take(ctx)
	if err != nil {
		return err
	}
	defer release()
	now := time.Now()
	candidates, err := c.look(ctx, now)
	if err != nil || c.cfg.Policy.off() {
		return err
	}
	old, candidates := tooOld(candidates, c.cfg.Policy.MaxAge, now, c.began)
	if _, err := c.free(ctx, old, math.MaxInt64, byAge); err != nil {
		return fmt.Errorf("remove images unused for %v: %w", c.cfg.Policy.MaxAge, err)
	}
	return c.makeRoom(ctx, candidates, now)
}

// makeRoom removes images if the filesystem is fuller than the policy says.
func (c *Collector) makeRoom(ctx context.Context, candidates []candidate, now time.Time) error {
	space, err := c.cfg.Space(ctx)
	if err != nil {
		return fmt.Errorf("read the image filesystem: %w", err)
	}
	if space.Capacity <= 0 {
		err := errors.New("invalid capacity 0 on image filesystem")
		c.cfg.Events.Event(c.cfg.Node, v1.EventTypeWarning, reason.InvalidDiskCapacity, err.Error())
		return err
	}
	excess := c.cfg.Policy.excess(space)
	if excess == 0 {
		return nil
	}
	freed, err := c.free(ctx, removable(candidates, c.cfg.Policy.MinAge, now), excess, bySpace)
	if err != nil {
		return fmt.Errorf("make room on the image filesystem: freed %d of %d bytes: %w", freed, excess, err)
	}
	if freed < excess {
		err := fmt.Errorf("the image filesystem is too full (%d%% of %s used): removing all unused images freed %d bytes of the %d wanted; "+
			"look at what fills it: images in use, logs, volumes or other data", space.usedPercent(), bytesText(space.Capacity), freed, excess)
		c.cfg.Events.Event(c.cfg.Node, v1.EventTypeWarning, reason.FreeDiskSpaceFailed, err.Error())
		return err
	}
	return nil
}

// look brings the records up to date and returns what may go. The caller has
// the turn.
func (c *Collector) look(ctx context.Context, now time.Time) ([]candidate, error) {
	wanted, known := c.cfg.Wanted()
	if !known {
		return nil, errUnknown
	}
	images, err := c.cfg.Runtime.Images(ctx)
	if err != nil {
		return nil, err
	}
	c.cfg.Listed(images, now)
	used, err := c.cfg.Runtime.UsedImages(ctx)
	if err != nil {
		return nil, err
	}
	sandbox, err := c.cfg.Runtime.SandboxImage(ctx)
	if err != nil {
		return nil, err
	}
	kept := sets.New[string]()
	for _, ref := range append(append(used, wanted...), sandbox) {
		if ref != "" {
			kept.Insert(names(ref)...)
		}
	}
	first := c.records == nil
	if first {
		c.began = now
	}
	var candidates []candidate
	c.records, candidates = survey(c.records, view{images: images, kept: kept, at: now}, first)
	return candidates, nil
}

// free removes images until so many bytes are freed. An image that cannot be
// removed does not keep others.
func (c *Collector) free(ctx context.Context, candidates []candidate, bytes int64, why string) (freed int64, err error) {
	var errs []error
	for _, image := range candidates {
		if freed >= bytes || ctx.Err() != nil {
			break
		}
		if err := c.cfg.Runtime.RemoveImage(ctx, image.id); err != nil {
			errs = append(errs, err)
			continue
		}
		c.cfg.Log.Info("unused image removed", "image", image.id, "bytes", image.size, "reason", why)
		delete(c.records, image.id)
		c.removed.WithLabelValues(why).Inc()
		freed += image.size
	}
	return freed, errors.Join(append(errs, ctx.Err())...)
}

// bytesText writes a number of bytes for people.
func bytesText(n int64) string {
	const gibi = 1 << 30
	if n < gibi {
		return fmt.Sprintf("%.0f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/gibi)
}
