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

// RecursiveReadOnly reports whether what is mounted below a read-only mount
// becomes read-only too. can says whether the runtime is able to. An error is a
// fault of the pod's, in upstream's words.
func RecursiveReadOnly(m *v1.VolumeMount, can bool) (bool, error) {
	if m.RecursiveReadOnly == nil || *m.RecursiveReadOnly == v1.RecursiveReadOnlyDisabled {
		return false, nil
	}
	const asked = "volume %q requested recursive read-only mode, but it is not "
	switch {
	case !m.ReadOnly:
		return false, fmt.Errorf(asked+"read-only", m.Name)
	case m.MountPropagation != nil && *m.MountPropagation != v1.MountPropagationNone:
		return false, fmt.Errorf(asked+"compatible with propagation %q", m.Name, *m.MountPropagation)
	case *m.RecursiveReadOnly == v1.RecursiveReadOnlyIfPossible:
		return can, nil
	case *m.RecursiveReadOnly != v1.RecursiveReadOnlyEnabled:
		return false, fmt.Errorf("unknown recursive read-only mode %q", *m.RecursiveReadOnly)
	case !can:
		return false, fmt.Errorf(asked+"supported by the runtime", m.Name)
	}
	return true, nil
}

// VolumeMount returns the runtime's form of a volume mount whose content lies
// at hostPath. recursive says whether what is mounted below is read-only too.
func VolumeMount(pod *v1.Pod, m *v1.VolumeMount, hostPath string, recursive bool) *runtimeapi.Mount {
	path := m.MountPath
	if !filepath.IsAbs(path) {
		path = "/" + path
	}
	out := &runtimeapi.Mount{
		ContainerPath: path,
		HostPath:      hostPath,
		Readonly:      m.ReadOnly,
		Propagation:   propagation(m.MountPropagation),

		RecursiveReadOnly: recursive,
	}
	if i := slices.IndexFunc(pod.Spec.Volumes, func(v v1.Volume) bool { return v.Name == m.Name }); i >= 0 {
		v := &pod.Spec.Volumes[i]
		out.Readonly = out.Readonly || readOnly(v)
		// What belongs to the pod alone may be given its SELinux label.
		out.SelinuxRelabel = written(v) || v.EmptyDir != nil
	}
	return out
}

// VolumeDevice returns the runtime's form of a block volume whose device is at
// hostPath, over links.
func VolumeDevice(d *v1.VolumeDevice, hostPath string, readOnly bool) *runtimeapi.Device {
	out := &runtimeapi.Device{ContainerPath: d.DevicePath, HostPath: hostPath, Permissions: "mrw"} // upstream's
	if readOnly {
		out.Permissions = "r"
	}
	return out
}

// readOnly reports whether a volume is read-only whatever its mounts say.
func readOnly(v *v1.Volume) bool {
	return written(v) || v.Image != nil || v.NFS != nil && v.NFS.ReadOnly || v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ReadOnly
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
