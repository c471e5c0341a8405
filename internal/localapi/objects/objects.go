// Package objects brings the API to what the manifest folder says: it applies
// every document but pods with server-side apply, and deletes what left the
// folder, also what left it while nobody ran.
//
// It reads and writes the API only. What it manages carries the label
// [Label] and has [Manager] among its field managers; both together, because a
// label alone can be written by anybody. An object that was there before is
// adopted: when it leaves the folder, the folder's fields are given up and the
// object stays.
//
// An Applier has one goroutine, its Run. It never deletes on the word of a set
// that nobody has: it waits for the first Update.
package objects

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"

	"github.com/holdfast-dev/holdfast/internal/manifest"
)

const (
	// Manager is the field manager of everything that comes from the folder.
	Manager = "holdfast-manifests"
	// Label marks the objects that come from the folder; its value is
	// LabelValue, or LabelAdopted for an object that was there before.
	Label = "holdfast.dev/manifest"
	// LabelValue marks an object that the folder made.
	LabelValue = "folder"
	// LabelAdopted marks an object that the folder took over.
	LabelAdopted = "adopted"
	// FileAnnotation holds the file, from the folder down, that an object comes
	// from.
	FileAnnotation = "holdfast.dev/manifest-file"
)

// Config says where to apply.
type Config struct {
	// Client may do everything with the supported kinds. Required.
	Client dynamic.Interface
	// Period is how often everything is applied again, whoever changed it.
	// Default 5 min.
	Period time.Duration
	// Retry is the pause after a failure; it doubles up to MaxRetry. Defaults 1 s
	// and 1 min.
	Retry, MaxRetry time.Duration
	// Log gets what is created, changed and deleted. Required.
	Log *slog.Logger
	// Report receives all faults whenever they are others than before. It is
	// called from Run. Required.
	Report func(faults []manifest.Fault)
}

func (c Config) withDefaults() Config {
	if c.Period == 0 {
		c.Period = 5 * time.Minute
	}
	if c.Retry == 0 {
		c.Retry = time.Second
	}
	if c.MaxRetry == 0 {
		c.MaxRetry = time.Minute
	}
	return c
}

// An Applier applies documents.
type Applier struct {
	cfg  Config
	wake chan struct{} // capacity 1: documents are there

	mu struct {
		sync.Mutex
		docs []manifest.Document
	}

	// Run's own.
	applied map[manifest.Key]manifest.Document // what the API has taken
	faults  []manifest.Fault
}

// New returns an Applier. It starts nothing.
func New(cfg Config) *Applier {
	return &Applier{cfg: cfg.withDefaults(), wake: make(chan struct{}, 1), applied: map[manifest.Key]manifest.Document{}}
}

// Update takes the documents that are in force now; pods among them are left to
// others. It never blocks. It is not to be called while nobody knows what is in
// force: what is not in docs is deleted.
func (a *Applier) Update(docs []manifest.Document) {
	a.mu.Lock()
	a.mu.docs = docs
	a.mu.Unlock()
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

func (a *Applier) docs() []manifest.Document {
	a.mu.Lock()
	defer a.mu.Unlock()
	docs := slices.DeleteFunc(slices.Clone(a.mu.docs), func(d manifest.Document) bool {
		_, isPod := d.Object.(*corev1.Pod)
		return isPod
	})
	slices.SortStableFunc(docs, func(x, y manifest.Document) int { return order(x.Key.Kind) - order(y.Key.Kind) })
	return docs
}

// Run applies each Update until ctx is done. It returns nil then, and leaves
// everything as it is.
func (a *Applier) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-a.wake:
	}
	period := time.NewTicker(a.cfg.Period)
	defer period.Stop()
	pause := a.cfg.Retry
	for {
		var again <-chan time.Time
		if a.pass(ctx, a.docs()) {
			pause = a.cfg.Retry
		} else {
			again = time.After(pause)
			pause = min(2*pause, a.cfg.MaxRetry)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-again:
		case <-a.wake:
			pause = a.cfg.Retry
		case <-period.C:
			clear(a.applied) // apply everything anew
		}
	}
}

// pass brings the API to docs as far as it goes, and reports whether nothing is
// left to do.
func (a *Applier) pass(ctx context.Context, docs []manifest.Document) bool {
	var faults []manifest.Fault
	for _, d := range docs {
		if was, ok := a.applied[d.Key]; ok && was.Equal(d) {
			continue
		}
		if err := a.apply(ctx, d); err != nil {
			if ctx.Err() != nil {
				return false
			}
			delete(a.applied, d.Key)
			faults = append(faults, faultsOf(d, err)...)
			continue
		}
		a.applied[d.Key] = d
	}
	pruned := a.prune(ctx, docs)
	if ctx.Err() != nil {
		return false
	}
	a.report(faults)
	return len(faults) == 0 && pruned
}

// report hands on faults that are others than before, and keeps the time of
// those that are the same.
func (a *Applier) report(faults []manifest.Fault) {
	for i := range faults {
		faults[i].Since = time.Now()
		if j := slices.IndexFunc(a.faults, faults[i].Same); j >= 0 {
			faults[i].Since = a.faults[j].Since
		}
	}
	if slices.Equal(a.faults, faults) {
		return
	}
	for _, f := range faults {
		if !slices.ContainsFunc(a.faults, f.Same) {
			a.cfg.Log.Warn("the API did not take a manifest", "fault", f.String())
		}
	}
	a.faults = faults
	a.cfg.Report(slices.Clone(faults))
}
