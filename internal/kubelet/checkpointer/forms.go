package checkpointer

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/checkpointfile"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
	"github.com/holdfast-dev/holdfast/internal/kubelet/staticpod"
)

// What of each object is kept.

var (
	nodeKey   = checkpointfile.Key{Kind: checkpointfile.Node}
	answerKey = checkpointfile.Key{Kind: checkpointfile.Answer}
)

func servicesKey(namespace string) checkpointfile.Key {
	return checkpointfile.Key{Kind: checkpointfile.Services, Namespace: namespace}
}

// refKey names what a pod refers to. The kinds have the same names.
func refKey(ref podvolumes.Ref) checkpointfile.Key {
	return checkpointfile.Key{Kind: checkpointfile.Kind(ref.Kind), Namespace: ref.Namespace, Name: ref.Name}
}

// podForm is a pod without what changes all the time and is found out anew:
// whether its containers are ready, and its addresses. The versions that the API
// gave it go too: what is kept is not one of them, as it has the status that the
// node saw and the resources that the node gave.
func podForm(pod *v1.Pod) *v1.Pod {
	p := *pod
	p.ManagedFields, p.ResourceVersion, p.Generation = nil, "", 0
	p.Annotations = map[string]string{}
	for name, value := range pod.Annotations {
		if name != staticpod.SourceAnnotation && name != staticpod.SeenAnnotation {
			p.Annotations[name] = value
		}
	}
	s := pod.Status
	p.Status = v1.PodStatus{
		Phase: s.Phase, Reason: s.Reason, Message: s.Message, StartTime: s.StartTime, QOSClass: s.QOSClass,
		Conditions:                 conditionsOfOthers(s.Conditions),
		InitContainerStatuses:      containersForm(s.InitContainerStatuses),
		ContainerStatuses:          containersForm(s.ContainerStatuses),
		EphemeralContainerStatuses: containersForm(s.EphemeralContainerStatuses),
	}
	return &p
}

// conditionsOfOthers are those that the node does not find out itself: the
// scheduler's, and readiness gates.
func conditionsOfOthers(all []v1.PodCondition) []v1.PodCondition {
	return slices.DeleteFunc(slices.Clone(all), func(c v1.PodCondition) bool {
		switch c.Type {
		case v1.PodReady, v1.ContainersReady, v1.PodInitialized, v1.PodReadyToStartContainers:
			return true
		default:
			return false
		}
	})
}

func containersForm(all []v1.ContainerStatus) []v1.ContainerStatus {
	forms := make([]v1.ContainerStatus, 0, len(all))
	for _, c := range all {
		c.Ready, c.Started = false, nil
		if c.State.Waiting != nil {
			c.State = v1.ContainerState{} // why it waits changes at each try
		}
		forms = append(forms, c)
	}
	return forms
}

// nodeForm is what admission and pods' configurations ask of a Node.
func nodeForm(node *v1.Node) *v1.Node {
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: node.Name, UID: node.UID, Labels: node.Labels},
		Spec:       v1.NodeSpec{PodCIDR: node.Spec.PodCIDR, PodCIDRs: node.Spec.PodCIDRs, ProviderID: node.Spec.ProviderID, Taints: node.Spec.Taints},
		Status: v1.NodeStatus{
			Capacity: node.Status.Capacity, Allocatable: node.Status.Allocatable, Addresses: node.Status.Addresses,
			Features: node.Status.Features, RuntimeHandlers: node.Status.RuntimeHandlers,
		},
	}
}

// servicesForm is what environments tell of services.
func servicesForm(services []*v1.Service) []v1.Service {
	forms := make([]v1.Service, 0, len(services))
	for _, s := range services {
		forms = append(forms, v1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name},
			Spec:       v1.ServiceSpec{Type: s.Spec.Type, ClusterIP: s.Spec.ClusterIP, ClusterIPs: s.Spec.ClusterIPs, Ports: s.Spec.Ports},
		})
	}
	return forms
}
