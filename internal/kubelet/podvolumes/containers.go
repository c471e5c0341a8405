package podvolumes

import (
	"iter"
	"path"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// containers returns the init containers and containers of a pod, in order.
func containers(pod *v1.Pod) iter.Seq[*v1.Container] {
	return func(yield func(*v1.Container) bool) {
		for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range list {
				if !yield(&list[i]) {
					return
				}
			}
		}
	}
}

// uses tells how a pod's containers use one of its volumes.
func uses(pod *v1.Pod, volume string) (mounts, devices bool) {
	for c := range containers(pod) {
		for _, m := range c.VolumeMounts {
			mounts = mounts || m.Name == volume
		}
		for _, d := range c.VolumeDevices {
			devices = devices || d.Name == volume
		}
	}
	return mounts, devices
}

// relative returns the path of full below base, if it is below.
func relative(base, full string) (rel string, below bool) {
	base = strings.TrimSuffix(path.Clean(base), "/")
	rel, below = strings.CutPrefix(path.Clean(full), base+"/")
	return rel, below && rel != ""
}

// fsUser returns the one user that all containers run as, or nil. Files that
// hold tokens then belong to that user alone, as upstream's do.
func fsUser(pod *v1.Pod) *int64 {
	var user *int64
	for c := range containers(pod) {
		var own *int64
		if sc := pod.Spec.SecurityContext; sc != nil {
			own = sc.RunAsUser
		}
		if sc := c.SecurityContext; sc != nil && sc.RunAsUser != nil {
			own = sc.RunAsUser
		}
		if own == nil || user != nil && *user != *own {
			return nil
		}
		user = own
	}
	return user
}
