package eviction

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

// A Signal names an amount that is left of something of the node's, in
// upstream's words.
type Signal string

// The signals.
const (
	MemoryAvailable            Signal = "memory.available"            // bytes: the machine's memory without its working set
	AllocatableMemoryAvailable Signal = "allocatableMemory.available" // bytes: what pods may use of it without their working set
	NodeFSAvailable            Signal = "nodefs.available"            // bytes, of the filesystem of volumes and logs
	NodeFSInodesFree           Signal = "nodefs.inodesFree"
	ImageFSAvailable           Signal = "imagefs.available" // bytes, of the filesystem of images
	ImageFSInodesFree          Signal = "imagefs.inodesFree"
	ContainerFSAvailable       Signal = "containerfs.available" // bytes, of the filesystem of containers' writable layers
	ContainerFSInodesFree      Signal = "containerfs.inodesFree"
	PIDAvailable               Signal = "pid.available" // process identifiers
)

// signals are all of them, the most pressing first: memory before all others,
// as upstream has it.
var signals = []Signal{
	MemoryAvailable, AllocatableMemoryAvailable,
	NodeFSAvailable, NodeFSInodesFree, ImageFSAvailable, ImageFSInodesFree, ContainerFSAvailable, ContainerFSInodesFree,
	PIDAvailable,
}

// Resources that only signals and messages name.
const (
	inodes v1.ResourceName = "inodes"
	pids   v1.ResourceName = "pids"
)

// resource is what a signal measures.
func (s Signal) resource() v1.ResourceName {
	switch s {
	case MemoryAvailable, AllocatableMemoryAvailable:
		return v1.ResourceMemory
	case NodeFSInodesFree, ImageFSInodesFree, ContainerFSInodesFree:
		return inodes
	case PIDAvailable:
		return pids
	default:
		return v1.ResourceEphemeralStorage
	}
}

// condition is what the node has while too little is left.
func (s Signal) condition() v1.NodeConditionType {
	switch s.resource() {
	case v1.ResourceMemory:
		return v1.NodeMemoryPressure
	case pids:
		return v1.NodePIDPressure
	default:
		return v1.NodeDiskPressure
	}
}

func (s Signal) isDisk() bool { return s.condition() == v1.NodeDiskPressure }

// urgency orders signals.
func (s Signal) urgency() int { return slices.Index(signals, s) }

// An observation is what was seen of a signal.
type observation struct {
	available, capacity int64
	at                  time.Time
}

// observations are what was seen in one look. What could not be read is missing,
// and nothing is done about it.
type observations map[Signal]observation

// A layout says which of the node's filesystems are one.
type layout struct {
	imagesWithVolumes bool // images are on the filesystem of volumes and logs
	layersWithVolumes bool // writable layers are
	layersWithImages  bool // writable layers are on the filesystem of images
}

// holds says what of pods lies on the filesystem of a signal: logs and volumes,
// and writable layers.
func (l layout) holds(s Signal) (local, layers bool) {
	switch s {
	case NodeFSAvailable, NodeFSInodesFree:
		return true, l.layersWithVolumes
	case ImageFSAvailable, ImageFSInodesFree:
		return l.imagesWithVolumes, l.layersWithImages
	default:
		return l.layersWithVolumes, true
	}
}

// holdsImages reports whether images lie on the filesystem of a signal.
func (l layout) holdsImages(s Signal) bool {
	switch s {
	case NodeFSAvailable, NodeFSInodesFree:
		return l.imagesWithVolumes
	case ImageFSAvailable, ImageFSInodesFree:
		return true
	default:
		return l.layersWithImages
	}
}
