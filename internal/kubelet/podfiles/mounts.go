package podfiles

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// SubPath returns the folder inside the volume that a mount asks for, with
// subPathExpr expanded; empty is the whole volume. A path that is absolute, or
// leaves the volume, is an error.
func SubPath(m *v1.VolumeMount, env []Var) (string, error) {
	sub := m.SubPath
	if m.SubPathExpr != "" {
		var missing string
		sub = Expand(m.SubPathExpr, func(name string) (string, bool) {
			i := slices.IndexFunc(env, func(v Var) bool { return v.Name == name })
			if i < 0 {
				missing = name
				return "", false
			}
			return env[i].Value, true
		})
		if missing != "" {
			return "", fmt.Errorf("missing value for %q", missing)
		}
	}
	if sub == "" {
		return "", nil
	}
	if filepath.IsAbs(sub) {
		return "", fmt.Errorf("error SubPath `%s` must not be an absolute path", sub)
	}
	if slices.Contains(strings.Split(filepath.ToSlash(sub), "/"), "..") {
		return "", fmt.Errorf("unable to provision SubPath `%s`: must not contain '..'", sub)
	}
	return sub, nil
}

// VolumeMount returns the runtime's form of a volume mount whose content lies
// at hostPath.
func VolumeMount(pod *v1.Pod, m *v1.VolumeMount, hostPath string) *runtimeapi.Mount {
	path := m.MountPath
	if !filepath.IsAbs(path) {
		path = "/" + path
	}
	out := &runtimeapi.Mount{
		ContainerPath: path,
		HostPath:      hostPath,
		Readonly:      m.ReadOnly,
		Propagation:   propagation(m.MountPropagation),
	}
	if i := slices.IndexFunc(pod.Spec.Volumes, func(v v1.Volume) bool { return v.Name == m.Name }); i >= 0 {
		v := &pod.Spec.Volumes[i]
		out.Readonly = out.Readonly || readOnly(v)
		// What belongs to the pod alone may be given its SELinux label.
		out.SelinuxRelabel = written(v) || v.EmptyDir != nil
	}
	return out
}

// readOnly reports whether a volume is read-only whatever its mounts say.
func readOnly(v *v1.Volume) bool {
	return written(v) || v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ReadOnly
}

// written reports whether the kubelet writes what is in a volume.
func written(v *v1.Volume) bool {
	return v.ConfigMap != nil || v.Secret != nil || v.DownwardAPI != nil || v.Projected != nil
}

func propagation(mode *v1.MountPropagationMode) runtimeapi.MountPropagation {
	if mode == nil {
		return runtimeapi.MountPropagation_PROPAGATION_PRIVATE
	}
	switch *mode {
	case v1.MountPropagationHostToContainer:
		return runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER
	case v1.MountPropagationBidirectional:
		return runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL
	default:
		return runtimeapi.MountPropagation_PROPAGATION_PRIVATE
	}
}

// HostsMount returns the mount of the managed hosts file at path.
func HostsMount(path string) *runtimeapi.Mount {
	return &runtimeapi.Mount{ContainerPath: "/etc/hosts", HostPath: path, SelinuxRelabel: true}
}

// TerminationMount returns the mount of a termination message file.
func TerminationMount(c *v1.Container, path string) *runtimeapi.Mount {
	return &runtimeapi.Mount{ContainerPath: c.TerminationMessagePath, HostPath: path, SelinuxRelabel: true}
}
