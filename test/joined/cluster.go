package joined

import (
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Pod returns a pod of namespace default that runs the demo program with these
// arguments, sleep without any, and takes a second to end. The scheduler binds it.
func Pod(name string, args ...string) *v1.Pod {
	if len(args) == 0 {
		args = []string{"sleep", "24h"}
	}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault},
		Spec: v1.PodSpec{
			TerminationGracePeriodSeconds: new(int64(1)),
			Containers: []v1.Container{{
				Name: "main", Image: Image, ImagePullPolicy: v1.PullIfNotPresent, Args: args,
			}},
		},
	}
}

// Create makes a pod.
func (n *Node) Create(pod *v1.Pod) *v1.Pod {
	n.t.Helper()
	made, err := n.Admin.CoreV1().Pods(pod.Namespace).Create(n.t.Context(), pod, metav1.CreateOptions{})
	n.must("create the pod", err)
	return made
}

// Run makes a pod and waits until it is ready.
func (n *Node) Run(pod *v1.Pod) *v1.Pod {
	n.t.Helper()
	n.Create(pod)
	return n.AwaitPodReady(pod.Name)
}

// AwaitPod waits until the API shows of a pod what ok wants. ok's error says what
// is missing.
func (n *Node) AwaitPod(name, what string, ok func(*v1.Pod) error) *v1.Pod {
	n.t.Helper()
	var pod *v1.Pod
	n.Eventually(fmt.Sprintf("pod %s %s", name, what), func(ctx context.Context) (_ bool, err error) {
		pod, err = n.Admin.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			err = ok(pod)
		}
		return err == nil, err
	})
	return pod
}

// AwaitPodReady waits until a pod is ready on this node.
func (n *Node) AwaitPodReady(name string) *v1.Pod {
	n.t.Helper()
	return n.AwaitPod(name, "is ready", func(pod *v1.Pod) error {
		ready := slices.ContainsFunc(pod.Status.Conditions, func(c v1.PodCondition) bool {
			return c.Type == v1.PodReady && c.Status == v1.ConditionTrue
		})
		if !ready || pod.Spec.NodeName != n.Name {
			return fmt.Errorf("on node %q: %s %v", pod.Spec.NodeName, pod.Status.Phase, pod.Status.ContainerStatuses)
		}
		return nil
	})
}

// Delete asks for a pod's deletion, with its own grace period.
func (n *Node) Delete(name string) {
	n.t.Helper()
	n.must("delete the pod", n.Admin.CoreV1().Pods(metav1.NamespaceDefault).Delete(n.t.Context(), name, metav1.DeleteOptions{}))
}

// AwaitGone waits until the API has no pod of that name and UID.
func (n *Node) AwaitGone(name string, uid types.UID) {
	n.t.Helper()
	n.Eventually("pod "+name+" is gone", func(ctx context.Context) (bool, error) {
		pod, err := n.Admin.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && pod.UID != uid {
			return true, nil
		}
		return false, err
	})
}
