package podfiles

import (
	"fmt"
	"strings"

	"github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"
)

// Image returns the reference that the runtime is asked for: the pod's, with
// the tag latest where it has neither tag nor digest. A short name stays short:
// which registry it means is the runtime's to say.
func Image(ref string) (string, error) {
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return "", fmt.Errorf("couldn't parse image name %q: %w", ref, err)
	}
	if reference.IsNameOnly(named) {
		ref += ":latest"
	}
	return ref, nil
}

// Images returns the images that a pod names: of its containers and of its
// volumes, some twice perhaps.
func Images(pod *v1.Pod) []string {
	var refs []string
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			refs = append(refs, list[i].Image)
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		refs = append(refs, pod.Spec.EphemeralContainers[i].Image)
	}
	for i := range pod.Spec.Volumes {
		if image := pod.Spec.Volumes[i].Image; image != nil {
			refs = append(refs, image.Reference)
		}
	}
	return refs
}

// localRegistry is the host in the names of images that a node brings along.
// No registry has that name, so there is nobody to ask for a newer one: Always,
// which the API defaults the tag latest to, means IfNotPresent for them.
const localRegistry = "holdfast.local"

// IsLocal reports whether an image is one that nodes bring along.
func IsLocal(image string) bool {
	named, err := reference.ParseNormalizedNamed(image)
	return err == nil && reference.Domain(named) == localRegistry
}

// PullPolicy returns a container's pull policy: its own, or by default Always
// for the tag latest and IfNotPresent for any other.
func PullPolicy(c *v1.Container) v1.PullPolicy {
	switch {
	case c.ImagePullPolicy != "" && c.ImagePullPolicy != v1.PullAlways:
		return c.ImagePullPolicy
	case IsLocal(c.Image):
		return v1.PullIfNotPresent
	case c.ImagePullPolicy != "":
		return c.ImagePullPolicy
	}
	ref, err := Image(c.Image)
	if err == nil && !strings.Contains(ref, "@") && strings.HasSuffix(ref, ":latest") {
		return v1.PullAlways
	}
	return v1.PullIfNotPresent
}
