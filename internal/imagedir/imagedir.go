// Package imagedir keeps the images of a folder of image archives on a container
// runtime, so that a machine without a registry has them: it imports an archive
// when it appears or changes, and pins its images against being collected as
// unused.
//
// It reads the folder and writes the state file, which says what was imported,
// so that a restart imports nothing again. A file is taken once it has settled:
// one that is still being copied is no error. A file that is broken takes
// nothing away: what it gave before stays. When a file is removed its images
// stay, and are no longer pinned.
//
// What to do is decided by the pure function [plan]. Run owns all state, in one
// goroutine; Report and Imported are called from it, one call at a time.
// Archives may be called from any goroutine.
package imagedir

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-dev/holdfast/internal/manifest"
	"github.com/holdfast-dev/holdfast/internal/ociimage"
)

const (
	// period is how often the folder is looked at without any event.
	period = 20 * time.Second
	// checkPeriod is how often the runtime is asked whether it still has the
	// images.
	checkPeriod = time.Minute
	// settle is how long a file must be unchanged to be taken, or gone to be
	// forgotten.
	settle = 2 * time.Second
	// patience is how long a file that is not whole may be on its way without
	// a change.
	patience = 10 * time.Second
	// noise is how long events are gathered before the folder is looked at: a
	// copy makes thousands.
	noise = 300 * time.Millisecond
	// firstRetry and maxRetry bound the pauses after the runtime did not take an
	// archive.
	firstRetry = 10 * time.Second
	maxRetry   = 10 * time.Minute
)

// runtime takes images. Its methods are called one at a time.
type runtime interface {
	// Image returns the ID of the image under a name, and whether it is pinned;
	// an empty ID if there is none.
	Image(ctx context.Context, ref string) (id string, pinned bool, err error)
	// Import imports an archive of the given images and pins them. When it
	// returns, pods can use them.
	Import(ctx context.Context, archive io.Reader, images []ociimage.Named) error
	// Pin says whether the image under a name may be collected as unused.
	Pin(ctx context.Context, ref string, pinned bool) error
}

// Config says what to watch and what to do with it.
type Config struct {
	// Dir is the folder, absolute. It need not exist.
	Dir string
	// StateFile says what was imported, over a restart. Its folder must exist.
	StateFile string
	// Runtime takes the images; nil: none does, and Unused says why, and what to
	// do instead, of each archive.
	Runtime runtime
	Unused  Unused
	// Report takes everything that is wrong, whenever that is something else.
	Report func(faults []manifest.Fault)
	// Imported is told the full names of images that have just come.
	Imported func(refs []string)
	// Metrics takes the collectors; nil means none.
	Metrics prometheus.Registerer
	// Log gets one line for each import, and for each fault that comes or goes.
	Log *slog.Logger
}

// Unused says why no archive is imported.
type Unused struct{ Message, Hint string }

// A State says how an archive is.
type State string

// The states of an archive.
const (
	Waiting   State = "waiting" // to be whole
	Importing State = "importing"
	Imported  State = "imported"
	Wrong     State = "wrong" // a fault says why; what it gave before stays
)

// An Archive is one file of the folder.
type Archive struct {
	File   string   // its name in the folder
	Images []string // the full names that it gave
	State  State
}

// A Dir watches one folder.
type Dir struct {
	cfg     Config
	log     *slog.Logger
	metrics *metrics
	watch   watch
	period  time.Duration // as the constant, but in tests

	// Run's own.
	files   map[string]sight
	records map[string]record
	faults  map[string]manifest.Fault // by file; "" is the folder
	ignored map[string]bool           // told of, once
	checked time.Time                 // when the runtime was last asked for the images
	told    []manifest.Fault          // what Report last took
	saved   string                    // what the state file holds

	mu struct {
		sync.Mutex
		archives []Archive
	}
}

// New returns a watcher of cfg.Dir. It starts nothing.
func New(cfg Config) *Dir {
	return &Dir{
		cfg: cfg, log: cfg.Log.With("folder", cfg.Dir), metrics: newMetrics(cfg.Metrics), watch: watch{open: fsnotify.NewWatcher}, period: period,
		files: map[string]sight{}, records: map[string]record{}, faults: map[string]manifest.Fault{}, ignored: map[string]bool{},
	}
}

// Archives returns the files of the folder by name, as they are now.
func (d *Dir) Archives() []Archive {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.mu.archives)
}

// Run watches and imports until ctx is done. It returns nil then. A state file
// of a newer release is an error: writing it over would lose what it says.
func (d *Dir) Run(ctx context.Context) error {
	defer d.watch.close()
	if err := d.restore(); err != nil {
		return err
	}
	tick := time.NewTicker(d.period)
	defer tick.Stop()
	for {
		d.watch.follow(d.cfg.Dir, d.log)
		d.scan(time.Now())
		next := d.work(ctx)
		d.publish("")
		var due <-chan time.Time
		if !next.IsZero() {
			due = time.After(time.Until(next))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-due:
		case <-d.watch.events():
			if !d.watch.gather(ctx, noise) {
				return nil
			}
		case err := <-d.watch.errors():
			d.log.Debug("watch the folder", "err", err) // events were lost: look
		}
	}
}

// work does what is due, and returns when something will be; zero is never.
func (d *Dir) work(ctx context.Context) (next time.Time) {
	if d.cfg.Runtime == nil {
		return time.Time{}
	}
	for {
		steps, next := plan(time.Now(), d.files, d.records, d.checked)
		if len(steps) == 0 || ctx.Err() != nil {
			return next
		}
		checking := false
		for _, s := range steps {
			switch s.verb {
			case load:
				d.load(ctx, s.file)
			case forget:
				d.forget(ctx, s.file)
			case check:
				checking = true
				d.check(ctx, s.file)
			}
			if ctx.Err() != nil {
				return time.Time{}
			}
			d.save()
		}
		if checking {
			d.checked = time.Now()
		}
	}
}

// publish tells the world how things are. loading is the file that is being
// imported, if any.
func (d *Dir) publish(loading string) {
	var all []Archive
	imported := 0
	for _, file := range slices.Sorted(maps.Keys(d.files)) {
		a := Archive{File: file, State: Waiting}
		r, known := d.records[file]
		for _, img := range r.Images {
			a.Images = append(a.Images, img.Ref)
		}
		_, wrong := d.faults[file]
		switch {
		case file == loading:
			a.State = Importing
		case wrong:
			a.State = Wrong
		case known && r.same(d.files[file].look):
			a.State = Imported
			imported++
		}
		all = append(all, a)
	}
	d.mu.Lock()
	d.mu.archives = all
	d.mu.Unlock()

	var faults []manifest.Fault
	for _, file := range slices.Sorted(maps.Keys(d.faults)) {
		faults = append(faults, d.faults[file])
	}
	d.metrics.observe(imported, faults)
	if slices.Equal(faults, d.told) {
		return
	}
	d.told = faults
	d.cfg.Report(faults)
}
