package podvolumes

import (
	"errors"
	"time"
)

// ErrNoUsage is returned by what measures volumes for one that takes no space, such as
// a hostPath in /proc.
var ErrNoUsage = errors.New("it is on a filesystem that has no size")

// A Method is how it came to be known what a volume takes.
type Method string

// The methods, the best first.
const (
	ByDriver     Method = "driver"     // its CSI driver says so
	ByQuota      Method = "quota"      // the filesystem counts the volume on its own
	ByFilesystem Method = "filesystem" // the volume is a filesystem of its own
	ByDevice     Method = "device"     // a device: only its size is known
	ByWalk       Method = "walk"       // its files were counted
)

// A Usage is what a volume takes, and what there is. What is not known is nil.
type Usage struct {
	Method         Method  `json:"method"`
	Driver         string  `json:"driver,omitempty"` // that said so, if it is ByDriver
	CapacityBytes  *uint64 `json:"capacityBytes,omitempty"`
	AvailableBytes *uint64 `json:"availableBytes,omitempty"`
	UsedBytes      *uint64 `json:"usedBytes,omitempty"`
	Inodes         *uint64 `json:"inodes,omitempty"`
	InodesFree     *uint64 `json:"inodesFree,omitempty"`
	InodesUsed     *uint64 `json:"inodesUsed,omitempty"`

	// Abnormal is what is wrong with the volume, as its driver has it; empty: nothing.
	Abnormal *string `json:"abnormal,omitempty"`
}

// Within returns what there is for a volume that may take so many bytes on a filesystem
// that has more: the limit, and what is left of both.
func (u Usage) Within(limit uint64) Usage {
	if u.CapacityBytes != nil && *u.CapacityBytes <= limit {
		return u
	}
	u.CapacityBytes = &limit
	if u.UsedBytes != nil {
		left := limit - min(*u.UsedBytes, limit)
		if u.AvailableBytes != nil {
			left = min(left, *u.AvailableBytes)
		}
		u.AvailableBytes = &left
	}
	return u
}

// A Measured is what is known of one volume of a pod.
type Measured struct {
	Name string // as the pod names it
	Usage
	Time  time.Time // when it was measured
	Stale bool      // the last try since then has failed, or hangs
	// Claim is the name of the claim that it is of, in the pod's namespace; empty: it is
	// of none.
	Claim string
	// Ephemeral is whether it is the pod's own data on the node's disk, which counts
	// as the pod's ephemeral storage.
	Ephemeral bool
	Source    string // as the pod's spec calls it: emptyDir, configMap …
}
