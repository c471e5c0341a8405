// Package manifestdir watches a folder of manifests and publishes, each time it
// changes, the full set of documents that are in force and what is wrong.
//
// It reads the folder and, at start, the state file; it writes only the state
// file. Its one promise is that nothing leaves the set by mistake: a file that
// stops being readable or valid keeps what it last said, a folder that cannot be
// read keeps everything, and a document that is gone must stay gone for a while.
// The state file makes that promise hold over a restart of the agent.
//
// What to do is decided by the pure function [fold]. Run owns all state, in one
// goroutine; Publish is called from it, one call at a time.
package manifestdir

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-dev/holdfast/internal/manifest"
)

const (
	quiet   = 30 * time.Millisecond  // this long without an event, and the folder is read
	noisy   = 300 * time.Millisecond // a folder that never falls quiet is read this often
	suspect = time.Second            // how often watched folders are checked for having been replaced
)

// A Set is everything the folder says. It is the receiver's to keep and to read;
// its contents are shared and never changed.
type Set struct {
	// Documents are in force: at most one for each key, ordered by file and line.
	Documents []manifest.Document
	// Faults say what is wrong, ordered by file and line, each with the time
	// since when.
	Faults []manifest.Fault
	// Known is false until the folder was read once, in this run or in an earlier
	// one that the state file remembers. Until then Documents is empty because
	// nobody could be asked, and nothing may be removed on its word.
	Known bool
	// Kept are the documents in force that were not found good at the last
	// reading, because their file is broken or the folder could not be read.
	Kept []manifest.Key
	// Ignored are the files that are neither manifests nor hidden, from the
	// folder down.
	Ignored []string
}

// Config says what to watch.
type Config struct {
	// Dir is the folder. It need not exist.
	Dir string
	// Recursive reads nested folders too. Upstream leaves them alone.
	Recursive bool
	// Period is how often the folder is read without any event. Default 20 s, as
	// upstream's fileCheckFrequency.
	Period time.Duration
	// Settle is how long a document must be gone before it leaves the set.
	// Default 2 s.
	Settle time.Duration
	// StateFile remembers what is in force over a restart. Its folder must
	// exist; the file is written with mode 0600, because it holds Secrets.
	// Without one, a file that is broken at start says nothing.
	StateFile string
	// Parser reads the files.
	Parser *manifest.Parser
	// Check, if given, returns what else is wrong with a good document. One with
	// faults does not count, as if the parser had refused it.
	Check func(d manifest.Document) []manifest.Fault
	// Log gets one line for each fault and one when it is gone.
	Log *slog.Logger
	// Metrics takes the collectors; nil means none.
	Metrics prometheus.Registerer
	// Publish receives the set whenever it is another one. It should not block:
	// the folder is not read meanwhile.
	Publish func(ctx context.Context, s Set)
}

func (c Config) withDefaults() Config {
	if c.Period == 0 {
		c.Period = 20 * time.Second
	}
	if c.Settle == 0 {
		c.Settle = 2 * time.Second
	}
	return c
}

// A Dir watches one folder.
type Dir struct {
	cfg     Config
	log     *slog.Logger
	scanner scanner
	watch   *watch
	metrics *metrics

	state     state
	published bool      // at least one set
	began     time.Time // the first reading
	saved     []manifest.Document

	shown shown
}

// New returns a watcher of cfg.Dir. It starts nothing.
func New(cfg Config) *Dir {
	cfg = cfg.withDefaults()
	if abs, err := filepath.Abs(cfg.Dir); err == nil {
		cfg.Dir = abs // file events name whole paths
	}
	log := cfg.Log.With("folder", cfg.Dir)
	return &Dir{
		cfg:     cfg,
		log:     log,
		scanner: newScanner(cfg),
		watch:   newWatch(log),
		metrics: newMetrics(cfg.Metrics),
	}
}

// Run watches until ctx is done. It returns nil then. A state file of a newer
// release is an error: writing it over would lose what that release kept.
func (d *Dir) Run(ctx context.Context) error {
	defer d.watch.close()
	if err := d.restore(); err != nil {
		return err
	}
	d.shown.put(d.state.set, nil, time.Time{})
	period := time.NewTicker(d.cfg.Period)
	defer period.Stop()
	check := time.NewTicker(suspect)
	defer check.Stop()

	due := after(d.read(ctx))
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-period.C:
		case <-due:
		case <-check.C:
			if d.watch.replaced() {
				d.log.Debug("a watched folder was replaced")
				d.watch.close()
			} else if !d.watch.read.troubled {
				continue
			}
		case e := <-d.watch.events():
			if !d.watch.matters(e.Name) {
				continue
			}
			if !d.settleDown(ctx) {
				return nil
			}
		case err := <-d.watch.errors():
			// Events were lost: read everything.
			d.log.Debug("watch the folder", "err", err)
		}
		due = after(d.read(ctx))
	}
}

// after is time.After, or never for 0.
func after(wait time.Duration) <-chan time.Time {
	if wait <= 0 {
		return nil
	}
	return time.After(wait)
}

// settleDown waits for a pause between events: a save is several, and the first
// may be a truncation. It reports whether ctx goes on.
func (d *Dir) settleDown(ctx context.Context) bool {
	end := time.After(noisy)
	for {
		select {
		case <-ctx.Done():
			return false
		case <-d.watch.events():
		case <-end:
			return true
		case <-time.After(quiet):
			return true
		}
	}
}

// read reads the folder, decides, and publishes and saves what came of it. It
// returns after how long a decision is due even if nothing happens; 0 is never.
func (d *Dir) read(ctx context.Context) time.Duration {
	r := d.scanner.scan()
	// What was found may lie in folders that were not watched while it was read.
	if d.watch.update(r) {
		r = d.scanner.scan()
		d.watch.update(r)
	}
	now := time.Now()
	if d.began.IsZero() {
		d.began = now
	}
	next, wait := fold(d.state, r, now, d.cfg.Settle)
	// What went while nobody looked must not be started for the settle time. What
	// runs goes on meanwhile: nobody takes it for unwanted before the first set.
	if wait == 0 || r.again > 0 && r.again < wait {
		wait = r.again
	}
	waits := !d.published && wait > 0 && now.Sub(d.began) < d.cfg.Settle
	changed := !waits && (!next.equal(d.state) || !d.published)
	d.report(d.state.set, next.set)
	d.state = next
	d.shown.put(next.set, r.failed, now)
	d.save()
	if changed {
		d.published = true
		d.metrics.observe(next.set)
		d.cfg.Publish(ctx, next.set)
	}
	return wait
}

// report logs what began and what ended.
func (d *Dir) report(before, now Set) {
	old, current := identities(before.Faults), identities(now.Faults)
	for _, f := range now.Faults {
		if !old[f.Identity()] {
			d.log.Warn("a manifest is not good; what ran stays", "fault", f.String())
		}
	}
	for _, f := range before.Faults {
		if !current[f.Identity()] {
			d.log.Info("a manifest is good again, or gone", "fault", f.String())
		}
	}
	for _, name := range now.Ignored {
		if !slices.Contains(before.Ignored, name) {
			d.log.Info("not a manifest: ignored", "file", name)
		}
	}
}

func identities(faults []manifest.Fault) map[manifest.Fault]bool {
	all := make(map[manifest.Fault]bool, len(faults))
	for _, f := range faults {
		all[f.Identity()] = true
	}
	return all
}
