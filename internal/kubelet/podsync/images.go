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

// A puller sees to it that images are there. Different images are pulled side
// by side, one image by one caller at a time.
type puller struct {
	runtime images
	events  events
	objects objects
	backoff *backoff
	node    func() ([]*v1.Secret, error) // the node's own credentials
	offline func(types.UID) bool         // a pod runs without the API

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
	message string
}

func newPuller(runtime images, events events, objects objects, backoff *backoff, node func() ([]*v1.Secret, error)) *puller {
	p := &puller{runtime: runtime, events: events, objects: objects, backoff: backoff, node: node}
	p.mu.turns = map[string]*turn{}
	p.mu.failed = map[types.UID]map[string]failure{}
	return p
}

// ensure returns a container's image, pulled if its policy says so. Its errors
// are *startError, or ctx's.
func (p *puller) ensure(ctx context.Context, pod *v1.Pod, c *v1.Container, sandbox *runtimeapi.PodSandboxConfig) (pulled, error) {
	ref, err := podfiles.Image(c.Image)
	if err != nil {
		message := fmt.Sprintf("Failed to apply default image tag %q: %v", c.Image, err)
		p.events.container(pod, c.Name, v1.EventTypeWarning, reason.InspectFailed, message)
		return pulled{}, &startError{wait: reason.Wait{Reason: reason.InvalidImageName, Message: message}, event: reason.InvalidImageName, err: err}
	}
	policy := podfiles.PullPolicy(c)
	if policy != v1.PullAlways {
		image, err := p.present(ctx, pod, c, ref, policy)
		if err != nil || image != nil {
			return found(image), err
		}
	}
	if err := p.paused(pod, c); err != nil {
		return pulled{}, err
	}
	waited, release, err := p.take(ctx, ref)
	if err != nil {
		return pulled{}, err
	}
	defer release()
	if waited && policy != v1.PullAlways {
		// Whoever was before may have pulled it.
		image, err := p.present(ctx, pod, c, ref, policy)
		if err != nil || image != nil {
			return found(image), err
		}
	}
	return p.pull(ctx, pod, c, ref, sandbox)
}

// present returns the image if the runtime has it, or nil.
func (p *puller) present(ctx context.Context, pod *v1.Pod, c *v1.Container, ref string, policy v1.PullPolicy) (*runtimeapi.Image, error) {
	image, err := p.runtime.Image(ctx, ref)
	switch {
	case err != nil:
		message := fmt.Sprintf("Failed to inspect image %q: %v", c.Image, err)
		p.events.container(pod, c.Name, v1.EventTypeWarning, reason.InspectFailed, message)
		return nil, &startError{wait: reason.Wait{Reason: reason.ImageInspectError, Message: message}, event: reason.ImageInspectError, err: err}
	case image == nil && policy == v1.PullNever:
		message := fmt.Sprintf("Container image %q is not present with pull policy of Never", c.Image)
		p.events.container(pod, c.Name, v1.EventTypeWarning, reason.ErrImageNeverPull, message)
		return nil, &startError{wait: reason.Wait{Reason: reason.ErrImageNeverPull, Message: message}, event: reason.ErrImageNeverPull, err: errors.New(message)}
	case image != nil:
		p.events.container(pod, c.Name, v1.EventTypeNormal, reason.Pulled, fmt.Sprintf("Container image %q already present on machine", c.Image))
	}
	return image, nil
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
		wait:    reason.Wait{Reason: reason.ImagePullBackOff, Message: message + ": " + reason.ErrImagePull + ": " + last.message},
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

// pull pulls an image and tells how that went.
func (p *puller) pull(ctx context.Context, pod *v1.Pod, c *v1.Container, ref string, sandbox *runtimeapi.PodSandboxConfig) (pulled, error) {
	p.events.container(pod, c.Name, v1.EventTypeNormal, reason.Pulling, fmt.Sprintf("Pulling image %q", c.Image))
	began := time.Now()
	got, err := p.try(ctx, pod, ref, sandbox)
	if ctx.Err() != nil {
		return pulled{}, ctx.Err()
	}
	if err != nil {
		if image, _ := p.runtime.Image(ctx, ref); image != nil { // a failure of this too adds nothing
			if podfiles.PullPolicy(c) != v1.PullAlways || p.ranWith(pod, c, image) { // the former came another way, from an archive
				p.forgive(pod, c)
				p.events.container(pod, c.Name, v1.EventTypeNormal, reason.Pulled, fmt.Sprintf("Container image %q already present on machine", c.Image))
				return found(image), nil
			}
			err = fmt.Errorf("%w (the image is on this machine; imagePullPolicy IfNotPresent would use it)", err)
		}
		return pulled{}, p.note(pod, c, err)
	}
	image, err := p.runtime.Image(ctx, got)
	if err == nil && image == nil {
		err = fmt.Errorf("image %q is gone after it was pulled", got)
	}
	if err != nil {
		return pulled{}, p.note(pod, c, err)
	}
	p.forgive(pod, c)
	took := time.Since(began).Truncate(time.Millisecond)
	p.events.container(pod, c.Name, v1.EventTypeNormal, reason.Pulled,
		fmt.Sprintf("Successfully pulled image %q in %v (%v including waiting). Image size: %v bytes.", c.Image, took, took, image.GetSize()))
	out := found(image)
	out.ref = got
	return out, nil
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
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.failed[pod.UID] == nil {
		p.mu.failed[pod.UID] = map[string]failure{}
	}
	p.mu.failed[pod.UID][c.Image] = failure{now, err.Error()}
	return &startError{
		wait:    reason.Wait{Reason: reason.ErrImagePull, Message: err.Error()},
		retryAt: now.Add(pullSettle), event: reason.ErrImagePull,
	}
}

// try pulls with each of the pod's credentials, or without any if it has none
// for that registry.
func (p *puller) try(ctx context.Context, pod *v1.Pod, ref string, sandbox *runtimeapi.PodSandboxConfig) (string, error) {
	auths := p.credentials(ctx, pod, ref)
	if len(auths) == 0 {
		return p.runtime.Pull(ctx, ref, nil, sandbox)
	}
	var errs []error
	for _, auth := range auths {
		got, err := p.runtime.Pull(ctx, ref, auth, sandbox)
		if err == nil {
			return got, nil
		}
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		errs = append(errs, err)
	}
	return "", errors.Join(errs...)
}

// credentials returns what the pod's pull secrets hold for an image. What is
// missing or broken is an event: the pull may well succeed without.
func (p *puller) credentials(ctx context.Context, pod *v1.Pod, ref string) []*runtimeapi.AuthConfig {
	var secrets []*v1.Secret
	var missing []string
	for _, s := range pod.Spec.ImagePullSecrets {
		if s.Name == "" {
			continue
		}
		secret, err := p.objects.GetSecret(ctx, pod.Namespace, s.Name)
		if err != nil {
			missing = append(missing, s.Name)
			continue
		}
		secrets = append(secrets, secret)
	}
	if len(missing) > 0 {
		p.events.warn(pod, reason.FailedToRetrieveImagePullSecret, "Unable to retrieve some image pull secrets (%s); attempting to pull the image may not succeed.", strings.Join(missing, ", "))
	}
	auths, err := podfiles.Credentials(secrets, ref)
	if err != nil {
		p.events.warn(pod, reason.FailedToRetrieveImagePullSecret, "Unable to use some image pull secrets: %v", err)
	}
	return append(auths, p.nodeCredentials(pod, ref)...)
}

// nodeCredentials returns what the node's own secrets hold for an image.
func (p *puller) nodeCredentials(pod *v1.Pod, ref string) []*runtimeapi.AuthConfig {
	secrets, err := p.node()
	auths, unusable := podfiles.Credentials(secrets, ref)
	if err := errors.Join(err, unusable); err != nil {
		p.events.warn(pod, reason.FailedToRetrieveImagePullSecret, "Unable to use some of the node's own image credentials: %v", err)
	}
	return auths
}

// forget drops all that is known of a pod.
func (p *puller) forget(pod types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.mu.failed, pod)
	p.backoff.forget(pod)
}
