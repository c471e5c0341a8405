package podsync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podfiles"
	"github.com/holdfast-dev/holdfast/internal/kubelet/reason"
)

// pullSettle is how long a failed pull is shown as such before it is shown as
// backing off.
const pullSettle = 2 * time.Second

// A pulled image is one that the runtime has.
type pulled struct {
	ref  string // the runtime's own
	user podfiles.ImageUser
}

// A puller sees to it that images are there, and that a pod may use them. One
// image is pulled by one caller at a time.
type puller struct {
	runtime images
	events  events
	backoff *backoff
	keyring keyring
	rights  rights
	gate    *gate
	metrics imageMetrics
	starts  *startMetrics
	offline func(types.UID) bool // a pod runs without the API

	mu struct {
		sync.Mutex
		turns  map[string]*turn                 // by image
		failed map[types.UID]map[string]failure // by pod and image
	}
}

// A turn is a lock that a waiter can give up on.
type turn struct {
	free  chan struct{} // holds one value while nobody pulls
	users int           // guarded by puller.mu
}

type failure struct {
	at      time.Time
	message string // as the container's state says it, with its reason
}

func newPuller(cfg Config, events events, starts *startMetrics) *puller {
	p := &puller{
		runtime: cfg.Runtime, events: events, offline: cfg.Offline,
		backoff: newBackoff(cfg.PullBackoff, cfg.MaxPullBackoff, 2*cfg.MaxPullBackoff),
		keyring: keyring{events: events, objects: cfg.Objects, node: cfg.ImageCredentials, providers: cfg.Providers},
		gate:    newGate(cfg.Pulls), metrics: newImageMetrics(cfg.Metrics), starts: starts,
	}
	p.rights = rights{policy: cfg.Pulls.Verify, records: cfg.Records, checks: p.metrics.checks, log: cfg.Log}
	p.mu.turns = map[string]*turn{}
	p.mu.failed = map[types.UID]map[string]failure{}
	return p
}

// A request is one container's for its image.
type request struct {
	pod     *v1.Pod
	c       *v1.Container
	ref     string // what the runtime is asked for
	policy  v1.PullPolicy
	sandbox *runtimeapi.PodSandboxConfig

	// credentials returns what to try the pull with. They are looked for when
	// first wanted: that may mean to run a program, or to ask the API.
	credentials func() []podfiles.Credential

	present, required string // for the metric; empty: not known
}

// ensure returns a container's image, pulled if its policy or its pod's rights
// say so. Its errors are *startError, or ctx's.
func (p *puller) ensure(ctx context.Context, pod *v1.Pod, c *v1.Container, sandbox *runtimeapi.PodSandboxConfig) (pulled, error) {
	q := &request{pod: pod, c: c, policy: podfiles.PullPolicy(c), sandbox: sandbox}
	defer p.metrics.count(q)
	var err error
	if q.ref, err = podfiles.Image(c.Image); err != nil {
		message := fmt.Sprintf("Failed to apply default image tag %q: %v", c.Image, err)
		p.events.container(pod, c.Name, v1.EventTypeWarning, reason.InspectFailed, message)
		return pulled{}, &startError{wait: reason.Wait{Reason: reason.InvalidImageName, Message: message}, event: reason.InvalidImageName, err: err}
	}
	q.credentials = sync.OnceValue(func() []podfiles.Credential { return p.keyring.credentials(ctx, pod, q.ref) })
	if q.policy != v1.PullAlways {
		image, err := p.present(ctx, q)
		if err != nil || image != nil {
			return found(image), err
		}
	}
	q.required = "true"
	if err := p.paused(pod, c); err != nil {
		return pulled{}, err
	}
	waited, release, err := p.take(ctx, q.ref)
	if err != nil {
		return pulled{}, err
	}
	defer release()
	if waited && q.policy != v1.PullAlways {
		// Whoever was before may have pulled it.
		image, err := p.present(ctx, q)
		if err != nil || image != nil {
			return found(image), err
		}
	}
	return p.pull(ctx, q)
}

// present returns the image if the runtime has it and the pod may use it as it
// is, or nil.
func (p *puller) present(ctx context.Context, q *request) (*runtimeapi.Image, error) {
	image, err := p.runtime.Image(ctx, q.ref)
	if err != nil {
		message := fmt.Sprintf("Failed to inspect image %q: %v", q.c.Image, err)
		p.events.container(q.pod, q.c.Name, v1.EventTypeWarning, reason.InspectFailed, message)
		return nil, &startError{wait: reason.Wait{Reason: reason.ImageInspectError, Message: message}, event: reason.ImageInspectError, err: err}
	}
	q.present = fmt.Sprint(image != nil)
	if image != nil && p.rights.may(q, image) {
		q.required = "false"
		p.forgive(q.pod, q.c)
		p.isThere(q)
		return image, nil
	}
	if q.policy == v1.PullNever {
		// The same words where it is there and not for this pod, which is not to
		// learn that.
		message := fmt.Sprintf("Container image %q is not present with pull policy of Never", q.c.Image)
		p.events.container(q.pod, q.c.Name, v1.EventTypeWarning, reason.ErrImageNeverPull, message)
		return nil, &startError{wait: reason.Wait{Reason: reason.ErrImageNeverPull, Message: message}, event: reason.ErrImageNeverPull, err: errors.New(message)}
	}
	return nil, nil
}

// isThere tells that a container uses an image that was there.
func (p *puller) isThere(q *request) {
	p.events.container(q.pod, q.c.Name, v1.EventTypeNormal, reason.Pulled,
		fmt.Sprintf("Container image %q already present on machine and can be accessed by the pod", q.c.Image))
}

func found(image *runtimeapi.Image) pulled {
	out := pulled{ref: image.GetId(), user: podfiles.ImageUser{Name: image.GetUsername()}}
	if uid := image.GetUid(); uid != nil {
		out.user.UID = new(uid.GetValue())
	}
	return out
}

// paused returns an error while an earlier failure's back-off lasts.
func (p *puller) paused(pod *v1.Pod, c *v1.Container) error {
	p.mu.Lock()
	last, ok := p.mu.failed[pod.UID][c.Image]
	p.mu.Unlock()
	if !ok {
		return nil
	}
	until, _ := p.backoff.until(pod.UID, c.Image, last.at)
	if !time.Now().Before(until) {
		return nil
	}
	message := fmt.Sprintf("Back-off pulling image %q", c.Image)
	p.events.container(pod, c.Name, v1.EventTypeNormal, reason.BackOff, message)
	return &startError{
		wait:    reason.Wait{Reason: reason.ImagePullBackOff, Message: message + ": " + last.message},
		retryAt: until, event: reason.ImagePullBackOff,
	}
}

// take waits for this caller's turn to pull an image. waited says that another
// one was before it.
func (p *puller) take(ctx context.Context, ref string) (waited bool, release func(), err error) {
	p.mu.Lock()
	t := p.mu.turns[ref]
	if t == nil {
		t = &turn{free: make(chan struct{}, 1)}
		t.free <- struct{}{}
		p.mu.turns[ref] = t
	}
	waited = t.users > 0
	t.users++
	p.mu.Unlock()
	leave := func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if t.users--; t.users == 0 {
			delete(p.mu.turns, ref)
		}
	}
	select {
	case <-t.free:
		return waited, func() { t.free <- struct{}{}; leave() }, nil
	case <-ctx.Done():
		leave()
		return waited, nil, ctx.Err()
	}
}

// ranWith reports whether a pod that runs without the API had a container with
// this very image. Its right to the image was checked then, and who asks for each
// start to be checked cannot want that a node without a network runs nothing.
func (p *puller) ranWith(pod *v1.Pod, c *v1.Container, image *runtimeapi.Image) bool {
	if !p.offline(pod.UID) {
		return false
	}
	for _, statuses := range [][]v1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for _, s := range statuses {
			if s.Name == c.Name && s.ImageID != "" && (s.ImageID == image.GetId() || slices.Contains(image.GetRepoDigests(), s.ImageID)) {
				return true
			}
		}
	}
	return false
}

// forgive forgets that pulls of an image failed.
func (p *puller) forgive(pod *v1.Pod, c *v1.Container) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.mu.failed[pod.UID], c.Image)
}

// note remembers a failed pull.
func (p *puller) note(pod *v1.Pod, c *v1.Container, err error) error {
	now := time.Now()
	p.events.container(pod, c.Name, v1.EventTypeWarning, reason.Failed, fmt.Sprintf("Failed to pull image %q: %v", c.Image, err))
	p.backoff.lengthen(pod.UID, c.Image, now, now)
	wait := failedPull(c.Image, err)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.failed[pod.UID] == nil {
		p.mu.failed[pod.UID] = map[string]failure{}
	}
	p.mu.failed[pod.UID][c.Image] = failure{now, wait.Reason + ": " + wait.Message}
	return &startError{wait: wait, retryAt: now.Add(pullSettle), event: wait.Reason}
}

// failedPull says in upstream's words why an image could not be pulled.
func failedPull(image string, err error) reason.Wait {
	for _, special := range []struct {
		is           error
		reason, text string
	}{
		{observed.ErrRegistryUnavailable, reason.RegistryUnavailable, "the registry is unavailable"},
		{observed.ErrSignatureValidation, reason.SignatureValidationFailed, "the signature validation failed"},
	} {
		if errors.Is(err, special.is) {
			_, detail, _ := strings.Cut(err.Error(), special.reason)
			return reason.Wait{Reason: special.reason, Message: fmt.Sprintf("image pull failed for %s because %s%s", image, special.text, detail)}
		}
	}
	return reason.Wait{Reason: reason.ErrImagePull, Message: err.Error()}
}

// forget drops all that is known of a pod.
func (p *puller) forget(pod types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.mu.failed, pod)
	p.backoff.forget(pod)
}
