package podadmit

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/apis/core/v1/helper/qos"

	"github.com/holdfast-dev/holdfast/internal/kubelet/reason"
	"github.com/holdfast-dev/holdfast/internal/kubelet/staticpod"
)

// pressure refuses a pod that would make worse what the node is low on: of
// memory, pods that ask for none; of anything else, all. Static pods, which
// nobody else could run, and critical ones are taken, as the upstream kubelet's
// eviction manager does.
func pressure(n Node, pod *v1.Pod, _ []*v1.Pod) *Refusal {
	if len(n.Pressure) == 0 || isStatic(pod) || staticpod.IsCritical(pod) {
		return nil
	}
	if slices.Equal(n.Pressure, []v1.NodeConditionType{v1.NodeMemoryPressure}) {
		taint := v1.Taint{Key: v1.TaintNodeMemoryPressure, Effect: v1.TaintEffectNoSchedule}
		if qos.GetPodQOS(pod) != v1.PodQOSBestEffort || tolerated(pod, &taint) {
			return nil
		}
	}
	return &Refusal{reason.Evicted, fmt.Sprintf("The node had condition: %v. ", n.Pressure)}
}
