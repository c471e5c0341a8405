// Package podvolumes holds what is known about the volumes of a pod without
// looking at any disk: which kinds there are, where they live, which API
// objects they refer to and what files they hold. The volume manager decides
// with it and the volume plugins act on it.
//
// Everything here is a pure function or a value; any goroutine may call it.
package podvolumes

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/atomicdir"
)

// A Kind is a kind of volume, by the name of upstream's plugin for it with "/"
// written as "~", as the pod's folder has it.
type Kind string

// The kinds that can be mounted.
const (
	EmptyDir    Kind = "kubernetes.io~empty-dir"
	HostPath    Kind = "kubernetes.io~host-path"
	ConfigMap   Kind = "kubernetes.io~configmap"
	Secret      Kind = "kubernetes.io~secret"
	Projected   Kind = "kubernetes.io~projected"
	DownwardAPI Kind = "kubernetes.io~downward-api"
	Local       Kind = "kubernetes.io~local-volume" // of a PersistentVolume
	NFS         Kind = "kubernetes.io~nfs"          // of a pod or a PersistentVolume
	CSI         Kind = "kubernetes.io~csi"          // of a PersistentVolume, or the pod's own
)

// HasContent reports whether the volumes of a kind hold files that Holdfast
// writes and keeps up to date. Containers get such a volume read-only.
func (k Kind) HasContent() bool {
	return k == ConfigMap || k == Secret || k == Projected || k == DownwardAPI
}

// Outlasts reports whether a pod can go on with its volume of a kind when the
// API objects that it was made from cannot be had any more.
func (k Kind) Outlasts() bool { return k.HasContent() || k == Local || k == NFS || k == CSI }

// Renews reports whether the volumes of a kind are set up again and again while
// the pod runs: their content changes, or may.
func (k Kind) Renews() bool { return k.HasContent() || k == CSI }

// InMemory reports whether the content of a kind is kept off the disk.
// ConfigMaps are public; all others may be secret.
func (k Kind) InMemory() bool { return k.HasContent() && k != ConfigMap }

// An ID names one volume of one pod on disk.
type ID struct {
	Kind Kind
	Dir  string // last part of its path: the volume's name, or that of its PersistentVolume
	// Block: it is a raw device and no folder. What lies at its path, among the
	// pod's volumeDevices, leads to the device.
	Block bool
}

// A Volume is one volume of one pod, resolved: everything a plugin needs to
// set it up.
type Volume struct {
	ID
	Name   string // as the pod names it
	Pod    types.NamespacedName
	PodUID types.UID

	Files  map[string]atomicdir.File // content kinds: by path below the volume
	Nested []string                  // content kinds: folders below the volume on which the pod mounts others

	Medium    v1.StorageMedium // EmptyDir
	PageSize  int64            // EmptyDir on huge pages, bytes; 0: it is on none
	SizeLimit int64            // EmptyDir, bytes; 0: no limit of its own
	Mode      *int32           // EmptyDir: permission bits of its top; nil: 0777
	OwnUsers  bool             // EmptyDir: the pod's users are nobody on the machine (hostUsers: false)

	HostPath     string          // HostPath, Local: the path on the host
	HostPathType v1.HostPathType // HostPath
	MountOptions []string        // Local, NFS, CSI of a PersistentVolume
	FSType       string          // Local on a device: the filesystem to have; empty: what is there, or ext4
	NFSServer    string          // NFS: a name or an address
	NFSPath      string          // NFS: of the export
	CSI          *CSIAttributes  // CSI
	FSGroup      *int64          // group that owns the volume; nil: no change
	FSPolicy     v1.PodFSGroupChangePolicy
	ReadOnly     bool // the volume as a whole is read-only

	// Claim and PV are what stands behind a volume that came by a claim; nil for
	// others. They are the API's own copies: nobody changes them.
	Claim *v1.PersistentVolumeClaim
	PV    *v1.PersistentVolume
	// OncePod: while a pod has it, no other pod gets it (ReadWriteOncePod).
	OncePod bool
	// GrowTo is the size in bytes that the PersistentVolume has and its claim does
	// not show yet; 0: there is nothing to grow.
	GrowTo int64
	// InUse is the name by which the node says in its status that it uses the
	// volume, so that nobody detaches it; empty for what is never attached.
	InUse v1.UniqueVolumeName
}

// KindOf returns the kind of a pod's volume; ok is false for one that cannot
// be mounted. A claim's kind depends on the PersistentVolume that it is bound to.
func KindOf(v *v1.Volume) (kind Kind, ok bool) {
	switch {
	case v.EmptyDir != nil:
		return EmptyDir, true
	case v.HostPath != nil:
		return HostPath, true
	case v.NFS != nil:
		return NFS, true
	case v.ConfigMap != nil:
		return ConfigMap, true
	case v.Secret != nil:
		return Secret, true
	case v.Projected != nil:
		return Projected, true
	case v.DownwardAPI != nil:
		return DownwardAPI, true
	case v.CSI != nil:
		return CSI, true
	}
	return "", false
}

// nestedMountpoints returns the folders below a volume on which containers
// mount other volumes. They must exist beforehand where the volume is
// read-only, because the runtime cannot make them there.
func nestedMountpoints(pod *v1.Pod, volume string) []string {
	var dirs []string
	for c := range containers(pod) {
		for _, own := range c.VolumeMounts {
			if own.Name != volume || own.SubPath != "" || own.SubPathExpr != "" {
				continue
			}
			for _, other := range c.VolumeMounts {
				if dir, below := relative(own.MountPath, other.MountPath); below {
					dirs = append(dirs, dir)
				}
			}
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// Describe names a volume for people.
func Describe(name string) string { return fmt.Sprintf("volume %q", name) }

// A Found is a volume that is on disk, whoever made it.
type Found struct {
	ID
	PodUID   types.UID
	Path     string
	Name     string              // as the pod names it; empty if that is not known
	Complete bool                // the pod can use it as it is, whether or not its objects can be had now
	PV       string              // the PersistentVolume behind it; empty for none
	InUse    v1.UniqueVolumeName // as of a Volume
	ReadOnly bool                // of a block volume: containers may not write
}

// A Device is a block volume as containers get it.
type Device struct {
	Path     string // on the host, over links
	ReadOnly bool
}

// A SubPath asks for a part of a volume, for one mount of one container.
type SubPath struct {
	PodUID     types.UID
	Volume     string // as the pod names it
	VolumePath string // of the volume on the host
	Path       string // of the part, below the volume
	Container  string
	Index      int  // of the mount among those of the container
	ReadOnly   bool // the part is not made if it is missing
	Content    bool // the volume holds what Holdfast writes; a missing part is an empty folder
}
