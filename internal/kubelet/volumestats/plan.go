package volumestats

import (
	"hash/fnv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

const (
	stalePeriods = 3  // after as many without new figures they are stale
	keptPeriods  = 10 // after as many they are dropped

	// pauseFactor is how many times as long as a measurement took the volume is left
	// alone: a walk of millions of files takes a tenth of a processor at most.
	pauseFactor = 10
)

// nextAt returns when a pod's volume is measured again after a measurement that took
// so long: at the pod's own moment of a period, and half a period away at least.
func nextAt(uid types.UID, now time.Time, took, period time.Duration) time.Time {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(uid))                        // never fails
	phase := time.Duration(hash.Sum64() % uint64(period)) //nolint:gosec // periods are positive
	earliest := now.Add(max(period/2, pauseFactor*took))
	since := time.Duration(earliest.UnixNano()) - phase
	wait := (period - since%period) % period
	return earliest.Add(wait)
}

// claimOf returns the claim of a pod's volume, one that was made for it among them.
func claimOf(pod *v1.Pod, v *v1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return pod.Name + "-" + v.Name
	}
	return ""
}

// isEphemeral reports whether a volume is the pod's own data on the node's disk:
// upstream's list.
func isEphemeral(v *v1.Volume) bool {
	return v.EmptyDir != nil && v.EmptyDir.Medium == v1.StorageMediumDefault || v.ConfigMap != nil || v.GitRepo != nil
}

// ofLimit returns what was measured of a volume, with its limit, if it has one, for size.
func ofLimit(v *v1.Volume, usage podvolumes.Usage) podvolumes.Usage {
	limit := podvolumes.DiskLimit(v)
	if limit == nil || usage.CapacityBytes == nil {
		return usage
	}
	return usage.Within(uint64(limit.Value())) //nolint:gosec // DiskLimit is positive
}

func kindOf(v *v1.Volume) string {
	switch {
	case v.EmptyDir != nil:
		return "emptyDir"
	case v.HostPath != nil:
		return "hostPath"
	case v.ConfigMap != nil:
		return "configMap"
	case v.Secret != nil:
		return "secret"
	case v.Projected != nil:
		return "projected"
	case v.DownwardAPI != nil:
		return "downwardAPI"
	case v.PersistentVolumeClaim != nil:
		return "persistentVolumeClaim"
	case v.Ephemeral != nil:
		return "ephemeral"
	case v.NFS != nil:
		return "nfs"
	case v.CSI != nil:
		return "csi"
	case v.Image != nil:
		return "image"
	}
	return "other"
}
