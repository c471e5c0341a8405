package podsync

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/reason"
)

// An imageVolume is a volume that the runtime makes of an image: what it is told,
// or why the image cannot be had.
type imageVolume struct {
	spec *runtimeapi.ImageSpec
	err  error
}

// pullVolumes pulls the images that a container mounts as volumes, each once a
// sync. A container without such volumes needs none of them.
func (r *run) pullVolumes(ctx context.Context, c *v1.Container) error {
	for i := range c.VolumeMounts {
		source := r.imageSource(c.VolumeMounts[i].Name)
		if source == nil {
			continue
		}
		if err := r.node.MountsImages(); err != nil {
			return &startError{
				wait:    reason.Wait{Reason: reason.CreateContainerConfigError, Message: err.Error()},
				retryAt: time.Now().Add(r.s.cfg.ConfigRetry), event: err.Error(), err: err,
			}
		}
		v, pulled := r.imageVolumes[c.VolumeMounts[i].Name]
		if !pulled {
			v = r.pullVolume(ctx, source)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if r.imageVolumes == nil {
				r.imageVolumes = map[string]imageVolume{}
			}
			r.imageVolumes[c.VolumeMounts[i].Name] = v
		}
		if v.err != nil {
			return v.err
		}
	}
	return nil
}

// imageSource returns what a volume of the pod is made of; nil: no image.
func (r *run) imageSource(volume string) *v1.ImageVolumeSource {
	i := slices.IndexFunc(r.pod.Spec.Volumes, func(v v1.Volume) bool { return v.Name == volume })
	if i < 0 {
		return nil
	}
	return r.pod.Spec.Volumes[i].Image
}

// pullVolume pulls as for a container without a name: events are the pod's.
func (r *run) pullVolume(ctx context.Context, source *v1.ImageVolumeSource) imageVolume {
	handler, err := r.handler(ctx)
	if err != nil {
		return imageVolume{err: err}
	}
	image, err := r.s.puller.ensure(ctx, r.pod, &v1.Container{Image: source.Reference, ImagePullPolicy: source.PullPolicy}, r.sandbox)
	if err != nil {
		return imageVolume{err: err}
	}
	return imageVolume{spec: &runtimeapi.ImageSpec{
		Image: image.ref, UserSpecifiedImage: source.Reference, RuntimeHandler: handler, Annotations: r.pod.Annotations,
	}}
}
