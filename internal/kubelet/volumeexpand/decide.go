package volumeexpand

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// begun returns the claim with the note that the node is at work; nil if its resizer
// is one that does not read such notes.
func begun(claim *v1.PersistentVolumeClaim) *v1.PersistentVolumeClaim {
	if claim.Status.AllocatedResourceStatuses[v1.ResourceStorage] == "" {
		return nil
	}
	out := claim.DeepCopy()
	out.Status.AllocatedResourceStatuses[v1.ResourceStorage] = v1.PersistentVolumeClaimNodeResizeInProgress
	return out
}

// finished returns the claim with its new size and nothing left of the expansion.
func finished(claim *v1.PersistentVolumeClaim, size resource.Quantity) *v1.PersistentVolumeClaim {
	out := claim.DeepCopy()
	if out.Status.Capacity == nil {
		out.Status.Capacity = v1.ResourceList{}
	}
	out.Status.Capacity[v1.ResourceStorage] = size
	delete(out.Status.AllocatedResourceStatuses, v1.ResourceStorage)
	if len(out.Status.AllocatedResourceStatuses) == 0 {
		out.Status.AllocatedResourceStatuses = nil
	}
	out.Status.Conditions = slices.DeleteFunc(out.Status.Conditions, func(c v1.PersistentVolumeClaimCondition) bool { return ofResize[c.Type] })
	return out
}

// failed returns the claim with the reason why it could not be grown. One that no
// further try can grow waits for another size.
func failed(claim *v1.PersistentVolumeClaim, why error, infeasible bool, now time.Time) *v1.PersistentVolumeClaim {
	out := claim.DeepCopy()
	if infeasible && out.Status.AllocatedResourceStatuses[v1.ResourceStorage] != "" {
		out.Status.AllocatedResourceStatuses[v1.ResourceStorage] = v1.PersistentVolumeClaimNodeResizeInfeasible
	}
	message := fmt.Sprintf("failed to expand pvc with %v", why) // upstream's words
	for i := range out.Status.Conditions {
		c := &out.Status.Conditions[i]
		if c.Type == v1.PersistentVolumeClaimNodeResizeError {
			c.Status, c.Message = v1.ConditionTrue, message
			return out
		}
	}
	out.Status.Conditions = append(out.Status.Conditions, v1.PersistentVolumeClaimCondition{
		Type: v1.PersistentVolumeClaimNodeResizeError, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(now), Message: message,
	})
	return out
}

// ofResize are the conditions that tell of an expansion.
var ofResize = map[v1.PersistentVolumeClaimConditionType]bool{
	v1.PersistentVolumeClaimResizing:                true,
	v1.PersistentVolumeClaimFileSystemResizePending: true,
	v1.PersistentVolumeClaimControllerResizeError:   true,
	v1.PersistentVolumeClaimNodeResizeError:         true,
}

// patchOf returns the patch that makes one claim of the other, if the claim is
// still the version that it was.
func patchOf(before, after *v1.PersistentVolumeClaim) ([]byte, error) {
	unversioned := before.DeepCopy()
	unversioned.ResourceVersion = "" // so that the patch says it
	from, err := json.Marshal(unversioned)
	if err != nil {
		return nil, err
	}
	to, err := json.Marshal(after)
	if err != nil {
		return nil, err
	}
	return strategicpatch.CreateTwoWayMergePatch(from, to, v1.PersistentVolumeClaim{})
}
