package nodestatus

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// pressureTaints are the taints that upstream's node lifecycle controller gives
// a node with a condition.
var pressureTaints = map[v1.NodeConditionType]string{
	v1.NodeMemoryPressure: v1.TaintNodeMemoryPressure,
	v1.NodeDiskPressure:   v1.TaintNodeDiskPressure,
	v1.NodePIDPressure:    v1.TaintNodePIDPressure,
}

// taint gives the API's Node the taints of the pressure that there is, and takes
// those away of which there is none, if that is our work. Others' taints stay.
func (r *Reporter) taint(ctx context.Context, node *v1.Node) (*v1.Node, error) {
	if !r.cfg.PressureTaints {
		return node, nil
	}
	wanted := withPressureTaints(node.Spec.Taints, r.cfg.Pressure())
	if len(wanted) == len(node.Spec.Taints) && !slices.ContainsFunc(wanted, func(t v1.Taint) bool { return !hasTaint(node.Spec.Taints, t) }) {
		return node, nil
	}
	// The version keeps us from taking away what somebody else adds meanwhile.
	data, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": node.UID, "resourceVersion": node.ResourceVersion},
		"spec":     map[string]any{"taints": wanted},
	})
	if err != nil {
		return nil, fmt.Errorf("encode taints: %w", err)
	}
	node, err = r.cfg.Nodes.Patch(ctx, r.cfg.Node, types.StrategicMergePatchType, data, metav1.PatchOptions{})
	if err != nil {
		return nil, fmt.Errorf("patch node taints: %w", err)
	}
	return node, nil
}

func withPressureTaints(taints []v1.Taint, pressure []v1.NodeConditionType) []v1.Taint {
	var all []v1.Taint
	for _, t := range taints {
		if !isPressureTaint(t) {
			all = append(all, t)
		}
	}
	for _, condition := range pressure {
		all = append(all, v1.Taint{Key: pressureTaints[condition], Effect: v1.TaintEffectNoSchedule})
	}
	return all
}

func isPressureTaint(t v1.Taint) bool {
	for _, key := range pressureTaints {
		if t.Key == key && t.Effect == v1.TaintEffectNoSchedule {
			return true
		}
	}
	return false
}

func hasTaint(taints []v1.Taint, t v1.Taint) bool {
	return slices.ContainsFunc(taints, func(have v1.Taint) bool { return have.MatchTaint(&t) })
}
