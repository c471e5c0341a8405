// Package faultevents shows what is wrong with manifests as events of the node:
// a Warning when a fault begins, a Normal one when it has healed.
//
// It writes events and nothing else. A Recorder has one goroutine, its Run; an
// event that the API does not take is tried again, unless its fault has healed
// meanwhile.
package faultevents

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/manifest"
)

// Event reasons.
const (
	// ReasonInvalid is for a file or document that cannot be used as it is.
	ReasonInvalid = "InvalidManifest"
	// ReasonFailedValidation is upstream's: the object is good in itself, and is
	// a duplicate, or refused here.
	ReasonFailedValidation = "FailedValidation"
	// ReasonHealed is for a fault that is gone.
	ReasonHealed = "ManifestHealed"
	// ReasonImageArchive and ReasonImageArchiveHealed are for archives of images.
	ReasonImageArchive       = "InvalidImageArchive"
	ReasonImageArchiveHealed = "ImageArchiveHealed"
)

const (
	component  = "holdfast"
	maxMessage = 1024 // bytes; the API refuses a longer one
)

// creator creates events; client-go's CoreV1().Events(namespace) is one.
type creator interface {
	Create(ctx context.Context, event *corev1.Event, opts metav1.CreateOptions) (*corev1.Event, error)
}

// Config says where events go.
type Config struct {
	// Node is the node's name; the events are about it.
	Node string
	// Events creates events in the namespace "default", where upstream puts those
	// of nodes.
	Events creator
	// Retry is the pause after an event was not taken. Default 5 s.
	Retry time.Duration
	// Log is told when events cannot be written.
	Log *slog.Logger
}

// A Recorder turns changes of faults into events.
type Recorder struct {
	cfg  Config
	wake chan struct{} // capacity 1: faults changed

	mu struct {
		sync.Mutex
		wanted map[string][]manifest.Fault // by where they were found
	}

	// Run's own.
	shown map[string]manifest.Fault // by identity: a Warning was written
	count int                       // events so far, for their names
}

// New returns a Recorder. It starts nothing.
func New(cfg Config) *Recorder {
	if cfg.Retry == 0 {
		cfg.Retry = 5 * time.Second
	}
	r := &Recorder{cfg: cfg, wake: make(chan struct{}, 1), shown: map[string]manifest.Fault{}}
	r.mu.wanted = map[string][]manifest.Fault{}
	return r
}

// Update takes all faults that one finder knows of now; another finder's stay.
// It never blocks.
func (r *Recorder) Update(finder string, faults []manifest.Fault) {
	r.mu.Lock()
	r.mu.wanted[finder] = faults
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// wanted returns the faults of all finders by identity: what they say and
// where, but for the line, which moves with other edits.
func (r *Recorder) wanted() map[string]manifest.Fault {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[string]manifest.Fault{}
	for _, faults := range r.mu.wanted {
		for _, f := range faults {
			all[f.Identity().String()] = f
		}
	}
	return all
}

// Run writes events until ctx is done. It returns nil then.
func (r *Recorder) Run(ctx context.Context) error {
	failing := false
	for {
		err := r.write(ctx)
		var again <-chan time.Time
		if err != nil {
			again = time.After(r.cfg.Retry)
		}
		if err != nil && !failing && ctx.Err() == nil {
			r.cfg.Log.Warn("write events about manifests", "err", err)
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
		case <-again:
		}
	}
}

// write writes the events that are due, and stops at the first that is not
// taken for now.
func (r *Recorder) write(ctx context.Context) error {
	wanted := r.wanted()
	for _, id := range slices.Sorted(maps.Keys(wanted)) {
		if _, ok := r.shown[id]; ok {
			continue
		}
		if err := r.create(ctx, corev1.EventTypeWarning, reasonOf(wanted[id]), wanted[id].String()); err != nil {
			return err
		}
		r.shown[id] = wanted[id]
	}
	for _, id := range slices.Sorted(maps.Keys(r.shown)) {
		if _, ok := wanted[id]; ok {
			continue
		}
		if err := r.create(ctx, corev1.EventTypeNormal, healedOf(r.shown[id]), "good again, or gone: "+r.shown[id].String()); err != nil {
			return err
		}
		delete(r.shown, id)
	}
	return nil
}

func reasonOf(f manifest.Fault) string {
	switch f.Reason {
	case manifest.ReasonDuplicate, manifest.ReasonRefused, manifest.ReasonNotApplied, manifest.ReasonInvalid:
		return ReasonFailedValidation
	case manifest.ReasonImageArchive:
		return ReasonImageArchive
	default:
		return ReasonInvalid
	}
}

func healedOf(f manifest.Fault) string {
	if f.Reason == manifest.ReasonImageArchive {
		return ReasonImageArchiveHealed
	}
	return ReasonHealed
}

// create writes one event. One that the API can never take is dropped, with a
// log line.
func (r *Recorder) create(ctx context.Context, kind, reason, message string) error {
	now := metav1.Now()
	r.count++
	_, err := r.cfg.Events.Create(ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault,
			// As upstream's recorder names them; the count keeps two of one moment
			// apart.
			Name: fmt.Sprintf("%s.%x.%d", r.cfg.Node, now.UnixNano(), r.count),
		},
		InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: r.cfg.Node, UID: types.UID(r.cfg.Node)},
		Type:           kind, Reason: reason, Message: cut(message),
		Source:         corev1.EventSource{Component: component, Host: r.cfg.Node},
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}, metav1.CreateOptions{})
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
		r.cfg.Log.Error("write an event about a manifest", "err", err)
		return nil
	}
	return err
}

// cut shortens a message to what an event may hold.
func cut(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	const mark = "…"
	end := maxMessage - len(mark)
	for end > 0 && message[end]&0xc0 == 0x80 {
		end-- // not inside a character
	}
	return message[:end] + mark
}
