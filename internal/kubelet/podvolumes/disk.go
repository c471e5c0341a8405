package podvolumes

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// OnDisk reports whether a pod's volume is an emptyDir on the node's own disk.
func OnDisk(v *v1.Volume) bool {
	return v.EmptyDir != nil && v.EmptyDir.Medium == v1.StorageMediumDefault
}

// DiskLimit returns the sizeLimit of an emptyDir on disk; nil: it has none, or is of
// another kind.
func DiskLimit(v *v1.Volume) *resource.Quantity {
	if OnDisk(v) && v.EmptyDir.SizeLimit != nil && v.EmptyDir.SizeLimit.Sign() > 0 {
		return v.EmptyDir.SizeLimit
	}
	return nil
}
