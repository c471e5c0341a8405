package podvolumes

import (
	"path/filepath"
	"strconv"

	"k8s.io/apimachinery/pkg/types"
)

// A Layout says where volumes live below the kubelet's folder. It is the
// upstream kubelet's, so that a node can change from one to the other.
type Layout string

// Pods returns the folder that has one folder for every pod.
func (l Layout) Pods() string { return filepath.Join(string(l), "pods") }

// Pod returns the folder of a pod.
func (l Layout) Pod(uid types.UID) string { return filepath.Join(l.Pods(), string(uid)) }

// Volumes returns the folder that has a folder for every kind of a pod's volumes.
func (l Layout) Volumes(uid types.UID) string { return filepath.Join(l.Pod(uid), "volumes") }

// VolumeDevices is as Volumes, of the volumes that are raw devices.
func (l Layout) VolumeDevices(uid types.UID) string {
	return filepath.Join(l.Pod(uid), "volumeDevices")
}

// Volume returns the folder of a volume, or what leads to its device.
func (l Layout) Volume(uid types.UID, id ID) string {
	if id.Block {
		return filepath.Join(l.VolumeDevices(uid), string(id.Kind), id.Dir)
	}
	return filepath.Join(l.Volumes(uid), string(id.Kind), id.Dir)
}

// Ready returns the path of the mark that says that a volume was set up once.
// An emptyDir's content and permissions are the pod's own from then on; a local
// PersistentVolume's mark holds the name that the pod has for the volume, and that
// of a block volume also whether it may only be read.
func (l Layout) Ready(uid types.UID, id ID) string {
	return filepath.Join(l.Pod(uid), "plugins", string(id.Kind), id.Dir, "ready")
}

// Disk returns where the filesystem on the device of a local PersistentVolume is
// mounted, once for all pods.
func (l Layout) Disk(pv string) string {
	return filepath.Join(string(l), "plugins/kubernetes.io/local-volume/mounts", pv)
}

// DeviceMap returns the folder in which an upstream kubelet has a file for every
// pod that it gave the device of a volume.
func (l Layout) DeviceMap(id ID) string {
	if id.Kind == CSI {
		return filepath.Join(string(l), "plugins", CSIPlugin, "volumeDevices", id.Dir, "dev")
	}
	return filepath.Join(string(l), "plugins", string(id.Kind), "volumeDevices", id.Dir)
}

// Formatting returns the path of the mark that says that the device of a local
// PersistentVolume was blank and is being formatted.
func (l Layout) Formatting(pv string) string {
	return filepath.Join(string(l), "plugins/kubernetes.io/local-volume/formatting", pv+".json")
}

// SubPaths returns the folder of a pod's bind mounts of parts of volumes.
func (l Layout) SubPaths(uid types.UID) string { return filepath.Join(l.Pod(uid), "volume-subpaths") }

// SubPath returns the target of one of them: the index-th volume mount of a container.
func (l Layout) SubPath(uid types.UID, volume, container string, index int) string {
	return filepath.Join(l.SubPaths(uid), volume, container, strconv.Itoa(index))
}
