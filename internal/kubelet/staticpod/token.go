package staticpod

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// What the API's ServiceAccount admission uses.
const (
	tokenVolumePrefix = "kube-api-access-"
	tokenMountPath    = "/var/run/secrets/kubernetes.io/serviceaccount"
	tokenSeconds      = 3607 // marks a token that admission asked for, and not a user
	rootCAConfigMap   = "kube-root-ca.crt"
)

// AddToken gives a static pod that names a service account the volume and
// mounts through which its containers reach the API, as admission does for pods
// of the API. It changes pod and does nothing if the pod declines, or if a
// container has a mount of its own there. The volume's name comes from the
// pod's UID, so that it is the same each time.
func AddToken(pod *corev1.Pod) {
	spec := &pod.Spec
	automount := spec.AutomountServiceAccountToken
	if spec.ServiceAccountName == "" || automount != nil && !*automount {
		return
	}
	name := tokenVolumePrefix + strings.ToLower(string(pod.UID[max(0, len(pod.UID)-5):]))
	has := false
	if i := slices.IndexFunc(spec.Volumes, func(v corev1.Volume) bool { return strings.HasPrefix(v.Name, tokenVolumePrefix) }); i >= 0 {
		name, has = spec.Volumes[i].Name, true
	}
	mounted := false
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			mounted = mountToken(&containers[i], name) || mounted
		}
	}
	if mounted && !has {
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Projected: tokenSource()}})
	}
}

// mountToken adds the mount and reports whether the container had none there.
func mountToken(c *corev1.Container, volume string) bool {
	if slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == tokenMountPath }) {
		return false
	}
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volume, ReadOnly: true, MountPath: tokenMountPath})
	return true
}

func tokenSource() *corev1.ProjectedVolumeSource {
	seconds, mode := int64(tokenSeconds), corev1.ProjectedVolumeSourceDefaultMode
	return &corev1.ProjectedVolumeSource{
		DefaultMode: &mode,
		Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: &seconds}},
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: rootCAConfigMap},
				Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
			}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{
				Path:     "namespace",
				FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"},
			}}}},
		},
	}
}
