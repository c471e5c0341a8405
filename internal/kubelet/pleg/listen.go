package pleg

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
	"github.com/holdfast-dev/holdfast/internal/kubelet/runtimelabels"
)

// How long to wait before the event stream is opened again.
const (
	minReconnect = 100 * time.Millisecond
	maxReconnect = 5 * time.Second
	noEventsWait = time.Minute // the runtime may be replaced by a newer one
)

// listen keeps the event stream open until ctx is done.
func (g *Generator) listen(ctx context.Context) {
	wait, was := minReconnect, error(nil)
	for {
		opened := time.Now()
		g.inbox.streamOpened(opened)
		heard := false
		err := g.cfg.Runtime.Events(ctx, func(e *runtimeapi.ContainerEventResponse) {
			if !heard {
				g.metrics.streams.Inc()
				heard = true
			}
			g.hear(e)
		})
		g.inbox.streamBroke()
		if ctx.Err() != nil {
			return
		}
		if heard || time.Since(opened) > maxReconnect {
			wait, was = minReconnect, nil // it worked: what comes now is a new trouble
		}
		g.logStreamEnd(err, was)
		was = err
		if errors.Is(err, observed.ErrNoEvents) {
			wait = noEventsWait
		} else {
			g.metrics.streamErrors.Inc()
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		wait = min(2*wait, maxReconnect)
	}
}

// logStreamEnd logs the first of several failures in a row.
func (g *Generator) logStreamEnd(err, was error) {
	switch {
	case errors.Is(err, observed.ErrNoEvents) && !errors.Is(was, observed.ErrNoEvents):
		g.log.Info("runtime has no event stream; listing its pods more often instead")
	case was == nil:
		g.log.Warn("event stream of the runtime broke; opening it again", "err", err)
	}
}

// hear notes which pod an event is about. What the event says of its state is
// not believed: it may be old.
func (g *Generator) hear(e *runtimeapi.ContainerEventResponse) {
	now := time.Now()
	g.inbox.streamHeard(now)
	// The runtime's moment is of the wall clock, which may have been set back since.
	g.metrics.latency.Observe(max(0, now.Sub(time.Unix(0, e.GetCreatedAt()))).Seconds())
	if uid := podUID(e); uid != "" {
		g.inbox.tell(uid)
	} else {
		g.inbox.stranger(e.GetContainerId())
	}
}

// podUID returns the pod that an event is about, or "" if it does not say, as
// when a sandbox was removed.
func podUID(e *runtimeapi.ContainerEventResponse) types.UID {
	if uid := e.GetPodSandboxStatus().GetLabels()[runtimelabels.PodUID]; uid != "" {
		return types.UID(uid)
	}
	for _, c := range e.GetContainersStatuses() {
		if uid := c.GetLabels()[runtimelabels.PodUID]; uid != "" {
			return types.UID(uid)
		}
	}
	return ""
}
