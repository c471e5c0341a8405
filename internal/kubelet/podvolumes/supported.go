package podvolumes

import (
	"fmt"
	"reflect"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Supported returns nil if a volume of this kind can be mounted, and otherwise
// an error that names the field that asks for what this version cannot do.
// Claims are accepted; whether the PersistentVolume behind one can be mounted
// shows when it is known.
func Supported(v *v1.Volume) error {
	switch {
	case v.EmptyDir != nil:
		return supportedEmptyDir(v.EmptyDir)
	case v.Projected != nil:
		return supportedProjected(v.Projected)
	case v.PersistentVolumeClaim != nil, v.Ephemeral != nil, ByRuntime(v):
		return nil
	}
	if _, ok := KindOf(v); ok {
		return nil
	}
	return fmt.Errorf("%s: this version cannot mount such volumes", sourceField(v))
}

func supportedEmptyDir(source *v1.EmptyDirVolumeSource) error {
	switch {
	case source.Medium == v1.StorageMediumDefault || source.Medium == v1.StorageMediumMemory:
		return nil
	case IsHugePages(source.Medium):
		if _, err := mediumPageSize(source.Medium); err != nil {
			return fmt.Errorf("emptyDir.medium: %w", err)
		}
		return nil
	}
	return fmt.Errorf("emptyDir.medium: this version cannot mount medium %q, only \"\", %q, %q and %q with a page size", source.Medium,
		v1.StorageMediumMemory, v1.StorageMediumHugePages, v1.StorageMediumHugePagesPrefix)
}

func supportedProjected(source *v1.ProjectedVolumeSource) error {
	for i, s := range source.Sources {
		switch {
		case s.Secret != nil, s.ConfigMap != nil, s.DownwardAPI != nil, s.ServiceAccountToken != nil, s.ClusterTrustBundle != nil, s.PodCertificate != nil:
		default:
			return fmt.Errorf("projected.sources[%d].%s: this version cannot project it", i, setField(s))
		}
	}
	return nil
}

// SupportedPV returns nil if the volume behind a claim can be mounted.
func SupportedPV(pv *v1.PersistentVolume) error {
	if isBlock(pv) && pv.Spec.Local == nil && pv.Spec.CSI == nil {
		return fmt.Errorf("PersistentVolume %s: spec.volumeMode: this version gives volumes of mode %s only of local devices and CSI drivers", pv.Name, *pv.Spec.VolumeMode)
	}
	if pv.Spec.Local != nil || pv.Spec.HostPath != nil || pv.Spec.NFS != nil || pv.Spec.CSI != nil {
		return nil
	}
	return fmt.Errorf("PersistentVolume %s: spec.%s: this version mounts only local, hostPath, nfs and csi", pv.Name, setField(pv.Spec.PersistentVolumeSource))
}

// NeedsAPIPod returns the field by which a volume is made of something that the
// API makes for its pod, by the pod's UID; "" if there is none. A static pod is
// in the API only as a mirror of another UID, and cannot have such a volume.
func NeedsAPIPod(v *v1.Volume) string {
	if v.Ephemeral != nil {
		return "ephemeral"
	}
	if v.Projected != nil {
		for i, s := range v.Projected.Sources {
			if s.PodCertificate != nil {
				return fmt.Sprintf("projected.sources[%d].podCertificate", i)
			}
		}
	}
	return ""
}

// ByRuntime reports whether a volume is made by the container runtime: there is
// nothing for anybody else to mount.
func ByRuntime(v *v1.Volume) bool { return v.Image != nil }

// sourceField names the source of a volume as the pod's author wrote it.
func sourceField(v *v1.Volume) string { return setField(v.VolumeSource) }

// setField returns the JSON name of the first pointer field of a union that is
// set, so that a source that a later API version adds is named too.
func setField(union any) string {
	value := reflect.ValueOf(union)
	for i := range value.NumField() {
		field := value.Field(i)
		if field.Kind() == reflect.Pointer && !field.IsNil() {
			name, _, _ := strings.Cut(value.Type().Field(i).Tag.Get("json"), ",")
			return name
		}
	}
	return "no source"
}
