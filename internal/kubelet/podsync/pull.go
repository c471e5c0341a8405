package podsync

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/holdfast-dev/holdfast/internal/kubelet/imagerights"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podfiles"
	"github.com/holdfast-dev/holdfast/internal/kubelet/reason"
)

// Pulls says how images are pulled. The zero value has upstream's defaults.
type Pulls struct {
	// MaxParallel is how many images are pulled at once. Default 1; negative: any
	// number.
	MaxParallel int
	// QPS is how many pulls may begin in a second, and Burst how many at once
	// after a while with none; one too many fails, and is tried again after its
	// back-off. Defaults 5 and 10; QPS negative: no bound.
	QPS, Burst int
	// Verify says when a pod has to show that it may have an image that is there.
	Verify imagerights.Policy
}

// A gate holds pulls back.
type gate struct {
	slots   chan struct{} // holds a value for each pull that goes on; nil: any number may
	limiter flowcontrol.RateLimiter
}

func newGate(p Pulls) *gate {
	g := &gate{limiter: flowcontrol.NewFakeAlwaysRateLimiter()}
	if p.MaxParallel > 0 {
		g.slots = make(chan struct{}, p.MaxParallel)
	}
	if p.QPS > 0 {
		g.limiter = flowcontrol.NewTokenBucketRateLimiter(float32(p.QPS), p.Burst)
	}
	return g
}

// errQPS is in upstream's words.
var errQPS = errors.New("pull QPS exceeded")

// enter waits until a pull may begin. The caller calls leave after it.
func (g *gate) enter(ctx context.Context) (leave func(), err error) {
	leave = func() {}
	if g.slots != nil {
		select {
		case g.slots <- struct{}{}:
			leave = func() { <-g.slots }
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if !g.limiter.TryAccept() {
		leave()
		return nil, errQPS
	}
	return leave, nil
}

// pull pulls an image and tells how that went. The caller has the image's turn.
func (p *puller) pull(ctx context.Context, q *request) (pulled, error) {
	if err := p.rights.begin(q); err != nil {
		return pulled{}, p.note(q.pod, q.c, err)
	}
	got, err := p.told(ctx, q)
	switch {
	case ctx.Err() != nil:
		return pulled{}, ctx.Err()
	case err == nil:
		p.forgive(q.pod, q.c)
		return got, nil
	}
	return p.instead(ctx, q, err)
}

// told pulls an image, with events about it, and ends what rights.begin began.
func (p *puller) told(ctx context.Context, q *request) (pulled, error) {
	p.events.container(q.pod, q.c.Name, v1.EventTypeNormal, reason.Pulling, fmt.Sprintf("Pulling image %q", q.c.Image))
	asked := time.Now()
	defer func() { p.starts.pulled(q.pod.UID, asked, time.Now()) }()
	q.credentials() // now: a program that hangs must not take the one place for a pull
	leave, err := p.gate.enter(ctx)
	if err != nil {
		p.rights.failed(q, err)
		return pulled{}, err
	}
	defer leave()
	began := time.Now()
	ref, with, err := p.try(ctx, q)
	if err != nil {
		p.rights.failed(q, err)
		return pulled{}, err
	}
	p.rights.pulled(q, ref, with)
	image, err := p.runtime.Image(ctx, ref)
	if err == nil && image == nil {
		err = fmt.Errorf("image %q is gone after it was pulled", ref)
	}
	if err != nil {
		return pulled{}, err
	}
	took, all := time.Since(began), time.Since(asked)
	p.metrics.pulled(image.GetSize(), all)
	p.events.container(q.pod, q.c.Name, v1.EventTypeNormal, reason.Pulled,
		fmt.Sprintf("Successfully pulled image %q in %v (%v including waiting). Image size: %v bytes.",
			q.c.Image, took.Truncate(time.Millisecond), all.Truncate(time.Millisecond), image.GetSize()))
	got := found(image)
	got.ref = ref
	return got, nil
}

// try pulls with each of the pod's credentials, or without any if it has none
// for that registry, and returns the one that worked.
func (p *puller) try(ctx context.Context, q *request) (ref string, with *podfiles.Credential, err error) {
	credentials := q.credentials()
	if len(credentials) == 0 {
		ref, err := p.runtime.Pull(ctx, q.ref, nil, q.sandbox)
		return ref, nil, err
	}
	var errs []error
	for i := range credentials {
		ref, err := p.runtime.Pull(ctx, q.ref, credentials[i].Auth, q.sandbox)
		if err == nil {
			return ref, &credentials[i], nil
		}
		if ctx.Err() != nil {
			return "", nil, ctx.Err()
		}
		errs = append(errs, err)
	}
	return "", nil, errors.Join(errs...)
}

// instead returns the image that is there though it could not be pulled, where
// it may serve.
func (p *puller) instead(ctx context.Context, q *request, failed error) (pulled, error) {
	image, _ := p.runtime.Image(ctx, q.ref) // a failure of this too adds nothing
	if image == nil {
		return pulled{}, p.note(q.pod, q.c, failed)
	}
	may := p.rights.may(q, image)
	if may && q.policy != v1.PullAlways || p.ranWith(q.pod, q.c, image) { // the former came another way, from an archive
		p.forgive(q.pod, q.c)
		p.isThere(q)
		return found(image), nil
	}
	if may {
		failed = fmt.Errorf("%w (the image is on this machine; imagePullPolicy IfNotPresent would use it)", failed)
	}
	return pulled{}, p.note(q.pod, q.c, failed)
}
