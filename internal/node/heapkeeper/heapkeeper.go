// Package heapkeeper keeps the process small once the node runs.
//
// A start makes a hundred megabytes of garbage, and Go's collector, which lets
// the heap double before it works, would keep the room for it for ever: an idle
// node allocates so little that it hardly collects again. A Keeper leaves the
// start alone, for speed, then makes the collector work sooner, and now and
// then returns to the kernel what can be returned, if it is worth a
// collection.
//
// It reads and sets the runtime of the whole process, so a process has one at
// most. A user's GOGC is left as it is.
package heapkeeper

import (
	"context"
	"log/slog"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// gcPercent lets the heap grow by half between two collections: on an
	// idle node that is one in some minutes, of 30 ms or so.
	gcPercent = 50
	// worthwhile is how many bytes must be gained for a collection out of
	// turn.
	worthwhile = 6 << 20
	// settle is when the first look is taken: by then the pods that were
	// adopted or started with the node run.
	settle = 5 * time.Second
	// period is from then on.
	period = time.Minute
)

// A Config says when and how loud. Both fields are required.
type Config struct {
	// Ready is closed when the start is over.
	Ready <-chan struct{}
	// Log is told what was returned, at debug level.
	Log *slog.Logger
}

// A Keeper keeps one process small.
type Keeper struct {
	cfg  Config
	gain func() int64 // about how many bytes free would return
	free func()
}

// New returns a Keeper that does nothing yet.
func New(cfg Config) *Keeper {
	return &Keeper{cfg: cfg, gain: gain, free: debug.FreeOSMemory}
}

// Run keeps the process small from the moment that the node is ready until ctx
// is done. It returns nil.
func (k *Keeper) Run(ctx context.Context) error {
	select {
	case <-k.cfg.Ready:
	case <-ctx.Done():
		return nil
	}
	if os.Getenv("GOGC") == "" {
		before := debug.SetGCPercent(gcPercent)
		defer debug.SetGCPercent(before)
	}
	for wait := settle; ; wait = period {
		k.look()
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil
		}
	}
}

// look returns memory if enough can be returned.
func (k *Keeper) look() {
	before := k.gain()
	if before < worthwhile {
		return
	}
	k.free()
	k.cfg.Log.Debug("Memory is returned to the kernel", "freed", before-k.gain())
}

// measured are the metrics that gain reads.
var measured = [...]string{
	"/memory/classes/heap/free:bytes",    // could be returned at once
	"/memory/classes/heap/objects:bytes", // in use
	"/gc/heap/live:bytes",                // was in use after the last collection
}

// gain is about how many bytes a collection would return: what is free, and
// what came since the last collection, which is mostly garbage.
func gain() int64 {
	var samples [len(measured)]metrics.Sample
	for i, name := range measured {
		samples[i].Name = name
	}
	metrics.Read(samples[:])
	free, objects, live := samples[0].Value.Uint64(), samples[1].Value.Uint64(), samples[2].Value.Uint64()
	return int64(free) + max(0, int64(objects)-int64(live))
}
