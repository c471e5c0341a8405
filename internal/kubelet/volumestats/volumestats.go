// Package volumestats keeps what every volume of every pod takes: upstream's resource
// analyzer.
//
// It measures a pod's volumes as soon as they are there and once a period from then
// on, at a moment of its own in the period, which is the same after a restart: a node
// with many pods has no burst of work, also not when it starts. What was last known
// is kept over a restart in a file.
//
// Who has to act on what pods have on the disk asks for figures of now, by Refresh:
// there is one measurement of a volume at a time, for all who want to know.
//
// Each volume is measured by itself. One that hangs costs its deadline once: it is
// marked as stale, with its last figures, and left alone until the call returns;
// neither another volume nor the end of the agent waits for it. Figures that are very
// old are dropped: what is not known is not there.
//
// One goroutine decides, a few measure. What is known may be asked for by any, and no
// question waits.
package volumestats

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
	"github.com/holdfast-dev/holdfast/internal/wake"
)

// paths knows which volumes are there. The call does not block.
type paths interface {
	// Paths returns where each of a pod's volumes is, by the pod's name for it.
	Paths(uid types.UID) map[string]string
}

// measurer measures one volume. A call may hang, whatever its context says, and is
// made for several volumes at once.
type measurer interface {
	Measure(ctx context.Context, path string) (podvolumes.Usage, error)
}

// events are sent to the API. The call does not block.
type events interface {
	Eventf(object runtime.Object, kind, reason, format string, args ...any)
}

// DefaultPeriod is upstream's.
const DefaultPeriod = time.Minute

// Config says what to measure. Required but what says otherwise.
type Config struct {
	// Pods returns the pods that the node is to run, whether or not anything of them
	// runs now. It must not block.
	Pods     func() []*v1.Pod
	Paths    paths
	Measurer measurer
	// Period is the time from one measurement of a volume to the next. Default 1m;
	// negative: nothing is measured but what Refresh asks for.
	Period time.Duration
	// Deadline is when a measurement that is not over counts as hanging: its figures are
	// stale, and another one has its place. Default 2m, as upstream's for CSI. After ten
	// times as long it is told to end: a count of very many files is over by then.
	Deadline time.Duration
	Parallel int    // how many volumes are measured at once, beside those that hang; default 2
	File     string // where figures are kept over a restart; empty: nowhere
	Metrics  prometheus.Registerer
	Events   events // get what is wrong with a volume; nil: nobody is told
	Log      *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Period = cmp.Or(c.Period, DefaultPeriod)
	c.Deadline = cmp.Or(c.Deadline, 2*time.Minute)
	c.Parallel = cmp.Or(c.Parallel, 2)
	return c
}

// An Analyzer measures the volumes of one node.
type Analyzer struct {
	cfg  Config
	off  bool // nothing is measured that nobody asks for
	bell wake.Bell
	done chan result
	took *prometheus.HistogramVec

	// The loop's own, without a lock.
	tries   map[string]*try // by path: those that have not returned
	queue   []queued        // volumes that are due, the first first
	saved   time.Time
	changed bool // since it was saved

	mu struct {
		sync.Mutex
		pods map[types.UID]map[string]*volume // by the pod's name for the volume
		// ended is closed, and another one made, when a measurement has ended or is late.
		ended chan struct{}
	}
}

// volume is one volume of one pod.
type volume struct {
	path     string
	usage    podvolumes.Usage
	measured time.Time     // zero: never
	failed   error         // the last try's error; nil: it was good, or there was none
	took     time.Duration // what the last try worked
	ended    time.Time     // when it did; zero: there was none
	due      time.Time     // zero: at once
	wanted   bool          // somebody waits for it: it is due
	trying   bool
	tries    int // that have ended, or are late
}

// queued is a volume whose turn it is.
type queued struct {
	uid  types.UID
	name string
}

// A try is one call of the measurer.
type try struct {
	cancel context.CancelFunc
	began  time.Time
	late   bool // it is past its deadline, and has given its place to others
}

// result is how a try ended.
type result struct {
	uid   types.UID
	name  string
	path  string
	usage podvolumes.Usage
	err   error
	took  time.Duration
}

// New returns an Analyzer that measures nothing before Run.
func New(cfg Config) *Analyzer {
	off := cfg.Period < 0
	if off {
		cfg.Period, cfg.File = 0, ""
	}
	a := &Analyzer{
		cfg: cfg.withDefaults(), off: off, bell: wake.NewBell(), tries: map[string]*try{},
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "kubelet_volume_metric_collection_duration_seconds",
			Help:    "How long it took to measure a volume, by the method",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"metric_source"}),
	}
	a.mu.pods = map[types.UID]map[string]*volume{}
	a.mu.ended = make(chan struct{})
	// A try that hangs may return when nobody listens any more: it must not block then.
	a.done = make(chan result)
	if a.cfg.Metrics != nil {
		a.cfg.Metrics.MustRegister(a.took)
	}
	return a
}

// Poke has the pods looked at now: there may be new ones. It never blocks.
func (a *Analyzer) Poke() { a.bell.Ring() }

// Volumes returns what is known of a pod's volumes, in the order of its spec. A volume
// of which nothing is known is left out. The size of an emptyDir is its sizeLimit, even
// where the filesystem does not hold it to that: beyond it the pod is evicted.
func (a *Analyzer) Volumes(pod *v1.Pod) []podvolumes.Measured {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	known := a.mu.pods[pod.UID]
	if len(known) == 0 {
		return nil
	}
	all := make([]podvolumes.Measured, 0, len(known))
	for i := range pod.Spec.Volumes {
		source := &pod.Spec.Volumes[i]
		v := known[source.Name]
		if v == nil || !v.isWithin(keptPeriods*a.cfg.Period, now) {
			continue
		}
		all = append(all, podvolumes.Measured{
			Name: source.Name, Usage: ofLimit(source, v.usage), Time: v.measured,
			Stale: v.failed != nil || !v.isWithin(stalePeriods*a.cfg.Period, now),
			Claim: claimOf(pod, source), Ephemeral: isEphemeral(source), Source: kindOf(source),
		})
	}
	return all
}

// isWithin reports whether a volume was measured, and no longer ago than age and what
// is between two measurements of one that takes long.
func (v *volume) isWithin(age time.Duration, now time.Time) bool {
	return !v.measured.IsZero() && now.Sub(v.measured) <= age+2*pauseFactor*v.took
}
