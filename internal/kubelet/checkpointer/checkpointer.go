// Package checkpointer keeps on the disk what this node needs to start its pods
// while the API server is away, and gives it back then.
//
// It reads the admitted pods of the API, the objects, tokens and services that
// they use, the Node, and when the API last answered. It writes one file an
// object, when that changes, from its one goroutine: nobody waits for the disk.
// It looks at all there is each time, so that no message can be lost. An object
// goes from the disk when no pod uses it any more, and only once the API has said
// which pods there are.
//
//	API away at the start ─► Restore ─► pods as admitted before ─► API answers ─► what differs changes
//	                            │
//	                            └ last answer longer ago than MaxAge: only what runs already
//
// How old the checkpoint is, is the longer of two: the time since the last answer
// by the clock, and how long the node has run without one. A clock that went
// back, as that of a machine without a battery does, makes nothing old; the time
// that the node has run does all the same.
//
// All methods may be called from any goroutine.
package checkpointer

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/checkpointfile"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
	"github.com/holdfast-dev/holdfast/internal/retry"
	"github.com/holdfast-dev/holdfast/internal/wake"
)

// folder is where objects are kept.
type folder interface {
	// Check returns why nothing can be read or written now, or nil.
	Check() error
	Files() ([]checkpointfile.File, error)
	// Read returns fs.ErrNotExist for an object that was never kept.
	Read(key checkpointfile.Key) ([]byte, error)
	changer
}

type changer interface {
	Write(key checkpointfile.Key, object []byte) error
	Remove(file string) error
}

// objects are what pods use, as the API server last told. None of the calls
// blocks, and what they return is not changed.
type objects interface {
	// Seen returns what pods hold; nil stands for an object that is known to be
	// absent. What was not answered yet is not in it.
	Seen() map[podvolumes.Ref]runtime.Object
	Tokens() map[checkpointfile.Key]*authenticationv1.TokenRequest
	// SeenServices returns what pods of a namespace may see of services; ok is
	// false before the first answer. edition changes whenever any service does.
	SeenServices(namespace string) (list []*v1.Service, edition int64, ok bool)
}

// Config says what is kept, and where. Everything is required but what has a
// default.
type Config struct {
	Folder  folder
	Objects objects
	// Pods returns the API's pods that were admitted, with their newest status, and
	// whether the API has said since the start which pods there are.
	Pods func() (pods []*v1.Pod, seen bool)
	// Runs reports whether the runtime runs anything of a pod, once Listed reports
	// that this is known.
	Runs   func(uid types.UID) bool
	Listed func() bool
	// Node returns this node as the API has it, nil before it has answered.
	Node func() *v1.Node
	// Answered returns when the API last answered; zero: not since the start.
	Answered func() time.Time
	Log      *slog.Logger

	// MaxAge is for how long after the last answer of the API pods are started
	// without it. Default 7 days; negative: for ever.
	MaxAge time.Duration
	// Period is how long a change may go unseen that nobody told of. Default 10 s.
	Period time.Duration
	// Pause is the shortest time between two looks. Default 1 s.
	Pause time.Duration
	// AnswerPeriod is how often the time of the last answer is written: so much
	// older than it is the checkpoint may seem. Default 10 min.
	AnswerPeriod time.Duration
}

func (c Config) withDefaults() Config {
	c.MaxAge = cmp.Or(c.MaxAge, 7*24*time.Hour)
	c.Period = cmp.Or(c.Period, 10*time.Second)
	c.Pause = cmp.Or(c.Pause, time.Second)
	c.AnswerPeriod = cmp.Or(c.AnswerPeriod, 10*time.Minute)
	return c
}

// A Checkpointer keeps one node's checkpoint. A nil one keeps nothing: it can be
// poked, and has no faults.
type Checkpointer struct {
	cfg  Config
	wake wake.Bell

	// Of Run's goroutine alone:
	kept    map[checkpointfile.Key]kept
	strange map[string]bool // files that could not be read, by name
	scanned bool            // the folder was read once
	answer  answer          // as last written
	ended   bool            // it was told that the API is back
	began   time.Time       // when the folder was read, or the API last answered, or answer was last written

	mu struct {
		sync.Mutex
		restored restored
		node     *v1.Node            // as kept, once somebody asked for it
		unusable map[string]unusable // files that cannot be used, by name
		failure  failure             // of the last look; zero: it did all
	}
}

type failure struct {
	err   error
	since time.Time
}

// New returns a Checkpointer that has read nothing.
func New(cfg Config) *Checkpointer {
	c := &Checkpointer{
		cfg: cfg.withDefaults(), wake: wake.NewBell(),
		kept: map[checkpointfile.Key]kept{}, strange: map[string]bool{},
	}
	c.mu.unusable = map[string]unusable{}
	return c
}

// Poke has a look taken soon, because something changed. It never blocks.
func (c *Checkpointer) Poke() {
	if c != nil {
		c.wake.Ring()
	}
}

// Run keeps the disk up to date until ctx is done, and writes then what is not
// written yet.
func (c *Checkpointer) Run(ctx context.Context) error {
	timer := time.NewTicker(c.cfg.Period)
	defer timer.Stop()
	for {
		c.look()
		if !retry.Sleep(ctx, c.cfg.Pause) {
			break
		}
		select {
		case <-ctx.Done():
		case <-c.wake:
		case <-timer.C:
		}
		if ctx.Err() != nil {
			break
		}
	}
	c.look()
	return nil
}

// look brings the disk up to date, and notes how that went.
func (c *Checkpointer) look() {
	err := c.save()
	_, seen := c.cfg.Pods()
	c.mu.Lock()
	defer c.mu.Unlock()
	if seen && !c.ended {
		c.ended = true
		if n := len(c.mu.restored.pods); n > 0 {
			c.cfg.Log.Info("the API answers: pods run from the checkpoint no more", "pods", n)
		}
	}
	switch was := c.mu.failure.err; {
	case err == nil && was != nil:
		c.cfg.Log.Info("checkpoint is written again")
		c.mu.failure = failure{}
	case err != nil && was == nil:
		c.cfg.Log.Warn("checkpoint cannot be written, trying again", "err", err)
		c.mu.failure = failure{err, time.Now()}
	case err != nil:
		c.mu.failure.err = err
	}
}
