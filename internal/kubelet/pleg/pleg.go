// Package pleg is the pod lifecycle event generator: it watches the container
// runtime and keeps the status cache true.
//
// It reads the runtime's list of all pods at every relist, its stream of
// container events where it has one, and inspects each pod that changed. It
// writes the status cache, of which it is the one writer, and sends an event
// for each pod whose sandboxes or containers changed. It promises:
//
//   - The cache is written before the event is sent, and the event carries no
//     state.
//   - Events are level-triggered. A pod has one slot: what changes before its
//     event is received is one event, and none is ever lost.
//   - Inspections run side by side, a bounded number of them, each with a
//     deadline. Pods whose inspection ran out of time share a quarter of the
//     places, so that they delay nobody. What failed is repeated until it works.
//   - The event stream is only a hint about what to inspect: events that are
//     missing, doubled, out of order or about pods that are gone do no harm. A
//     broken stream is opened again for ever. Relists find what it misses.
//
// One goroutine, Run's, owns all slots; the list, each inspection and the
// stream have one goroutine each, which hand their answers to it. All other
// methods may be called from any goroutine.
package pleg

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
)

// A runtime is what this package asks. All methods may be called at the same
// time, return when their context is done, and leave their answers to the
// caller.
type runtime interface {
	// Pods lists all pods.
	Pods(ctx context.Context) ([]observed.Pod, error)
	// Inspect returns a status with only the UID for a pod that is not there.
	Inspect(ctx context.Context, uid types.UID) (*observed.Status, error)
	// Events blocks while the stream lasts. It returns observed.ErrNoEvents if
	// the runtime has none.
	Events(ctx context.Context, take func(*runtimeapi.ContainerEventResponse)) error
}

// Config is what a Generator needs.
type Config struct {
	Runtime runtime         // required
	Cache   *observed.Cache // required
	Log     *slog.Logger    // default: nothing is logged
	// Registerer takes the metrics. Default: they are not shown.
	Registerer prometheus.Registerer
	// Period is the time from the end of a list to the next one while there is
	// no event stream, or while it misses events. Default 1 second, as
	// upstream.
	Period time.Duration
	// SlowPeriod is Period while there is an event stream. It doubles with every
	// list that finds nothing that the stream did not tell, up to IdlePeriod, the
	// longest that a missing event stays unseen, and begins anew when a pod
	// changes. Default 10 and 90 seconds, but half of Threshold at most.
	SlowPeriod, IdlePeriod time.Duration
	// Threshold is the age of the last good list from which on Healthy returns
	// an error. Default 3 minutes, as upstream. A value below twice Period
	// makes the node flap.
	Threshold time.Duration
	// InspectTimeout bounds the inspection of one pod. Default 30 seconds.
	InspectTimeout time.Duration
	// Quiet is how long the events of a pod that somebody works on may wait; see
	// the method Quiet. Default 1 second, as the lists of a runtime without events.
	Quiet time.Duration
	// Inspections is how many pods are inspected at a time. Default 16; at least 2.
	Inspections int
}

func (c Config) withDefaults() Config {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.Period = cmp.Or(c.Period, time.Second)
	c.Threshold = cmp.Or(c.Threshold, 3*time.Minute)
	longest := max(c.Threshold/2, c.Period)
	c.SlowPeriod = min(cmp.Or(c.SlowPeriod, max(10*time.Second, c.Period)), longest)
	c.IdlePeriod = max(min(cmp.Or(c.IdlePeriod, 90*time.Second), longest), c.SlowPeriod)
	c.InspectTimeout = cmp.Or(c.InspectTimeout, 30*time.Second)
	c.Quiet = cmp.Or(c.Quiet, time.Second)
	c.Inspections = cmp.Or(c.Inspections, 16)
	c.Inspections = max(c.Inspections, 2)
	return c
}

// A Generator is the pod lifecycle event generator.
type Generator struct {
	cfg     Config
	log     *slog.Logger
	metrics *metrics
	events  chan observed.Event
	inbox   inbox
	health  health
	known   known
}

// New returns a generator that does nothing until Run. It panics if the
// metrics are registered already.
func New(cfg Config) *Generator {
	cfg = cfg.withDefaults()
	g := &Generator{
		cfg:    cfg,
		log:    cfg.Log,
		events: make(chan observed.Event), // no buffer: the slots are the queue
		inbox:  newInbox(),
		health: newHealth(cfg.Threshold),
		known:  newKnown(),
	}
	g.health.name = g.known.name
	g.metrics = newMetrics(g)
	return g
}

// Events returns the channel on which Run sends an event for each pod that
// changed. It is never closed. It has one receiver.
func (g *Generator) Events() <-chan observed.Event { return g.events }

// Poke asks for an inspection of one pod that begins after this call, as after
// a sync that changed it. It does not block. The cache tells when it was done;
// an event comes only if something changed.
func (g *Generator) Poke(uid types.UID) { g.inbox.ask(uid) }

// Quiet says that the caller begins to change a pod and calls Poke when that is
// done. Until then, but for Config.Quiet at most, what the event stream tells of the
// pod brings no inspection. It does not block.
func (g *Generator) Quiet(uid types.UID) { g.inbox.hush(uid) }

// Pods returns what the runtime is known to have, sorted by UID; none before
// the first list.
func (g *Generator) Pods() []observed.Pod { return g.known.all() }
