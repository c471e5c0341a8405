package podsync

import (
	"context"
	"errors"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podfiles"
	"github.com/holdfast-dev/holdfast/internal/kubelet/reason"
)

// providers are programs that know credentials. What Credentials returns beside
// an error is used.
type providers interface {
	Credentials(ctx context.Context, pod *v1.Pod, image string) ([]podfiles.Credential, error)
}

type noProviders struct{}

func (noProviders) Credentials(context.Context, *v1.Pod, string) ([]podfiles.Credential, error) {
	return nil, nil
}

// A keyring finds the credentials that a pod's images are pulled with: those of
// its pull secrets, then the node's own, then those of provider plugins.
type keyring struct {
	events    events
	objects   objects
	node      func() ([]*v1.Secret, error)
	providers providers
}

// credentials returns all for one image. What is missing or broken is an event:
// the pull may well succeed without.
func (k keyring) credentials(ctx context.Context, pod *v1.Pod, ref string) []podfiles.Credential {
	all := append(k.secrets(ctx, pod, ref), k.ofNode(pod, ref)...)
	provided, err := k.providers.Credentials(ctx, pod, ref)
	if err != nil && ctx.Err() == nil {
		k.events.warn(pod, reason.FailedToRetrieveImagePullSecret, "Unable to get image credentials from a provider: %v", err)
	}
	return append(all, provided...)
}

// secrets returns what the pod's pull secrets hold for an image.
func (k keyring) secrets(ctx context.Context, pod *v1.Pod, ref string) []podfiles.Credential {
	var secrets []*v1.Secret
	var missing []string
	for _, s := range pod.Spec.ImagePullSecrets {
		if s.Name == "" {
			continue
		}
		secret, err := k.objects.GetSecret(ctx, pod.Namespace, s.Name)
		if err != nil {
			missing = append(missing, s.Name)
			continue
		}
		secrets = append(secrets, secret)
	}
	if len(missing) > 0 {
		k.events.warn(pod, reason.FailedToRetrieveImagePullSecret, "Unable to retrieve some image pull secrets (%s); attempting to pull the image may not succeed.", strings.Join(missing, ", "))
	}
	found, err := podfiles.Credentials(secrets, ref)
	if err != nil {
		k.events.warn(pod, reason.FailedToRetrieveImagePullSecret, "Unable to use some image pull secrets: %v", err)
	}
	return found
}

// ofNode returns what the node's own secrets hold for an image. They are every
// pod's.
func (k keyring) ofNode(pod *v1.Pod, ref string) []podfiles.Credential {
	secrets, err := k.node()
	found, unusable := podfiles.Credentials(secrets, ref)
	if err := errors.Join(err, unusable); err != nil {
		k.events.warn(pod, reason.FailedToRetrieveImagePullSecret, "Unable to use some of the node's own image credentials: %v", err)
	}
	for i := range found {
		found[i].Secret = nil
	}
	return found
}
