package binder

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs a Binder upon objects and returns a client, and a channel that
// gets the names of pods as they are bound.
func start(t *testing.T, objects ...runtime.Object) (*fake.Clientset, <-chan string) {
	t.Helper()
	client := fake.NewClientset(objects...)
	bound := make(chan string, 10)
	client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "binding" {
			return false, nil, nil
		}
		binding := action.(clienttesting.CreateAction).GetObject().(*corev1.Binding)
		pod, err := client.Tracker().Get(corev1.SchemeGroupVersion.WithResource("pods"), binding.Namespace, binding.Name)
		if err != nil {
			return true, nil, err
		}
		onNode := pod.(*corev1.Pod).DeepCopy()
		onNode.Spec.NodeName = binding.Target.Name
		err = client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), onNode, binding.Namespace)
		bound <- binding.Name
		return true, binding, err
	})
	f := informers.NewSharedInformerFactory(client, 0)
	b := New(Config{Client: client, Informers: f, Node: "node1", Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(t.Context())
	f.Start(ctx.Done())
	done := make(chan error)
	go func() { done <- b.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		f.Shutdown()
	})
	return client, bound
}

func TestRunBinds(t *testing.T) {
	older, younger := metav1.Unix(1, 0), metav1.Unix(2, 0)
	_, bound := start(t, testNode(nil),
		testPod("second", func(p *corev1.Pod) { p.CreationTimestamp = older; cpu("700m")(p) }),
		testPod("third", func(p *corev1.Pod) { p.CreationTimestamp = younger; cpu("700m")(p) }),
		testPod("first", func(p *corev1.Pod) {
			p.CreationTimestamp, p.Spec.Priority = younger, ptr.To[int32](1)
			cpu("100m")(p)
		}),
		testPod("gated", func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "wait"}} }),
		testPod("foreign", func(p *corev1.Pod) { p.Spec.SchedulerName = "mine" }),
		testPod("ended", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }),
	)
	var got []string
	for range 3 {
		got = append(got, <-bound)
	}
	if diff := cmp.Diff([]string{"first", "second", "third"}, got); diff != "" {
		t.Error("-want +got\n" + diff)
	}
}

// A pod that waits says why, and is bound once the reason is gone.
func TestRunTellsAndRetries(t *testing.T) {
	client, bound := start(t, testNode(nil), testPod("pod", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"gpu": "yes"} }))
	told := make(chan string, 10)
	watch, err := client.CoreV1().Pods("default").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watch.Stop)
	go func() {
		for e := range watch.ResultChan() {
			for _, c := range e.Object.(*corev1.Pod).Status.Conditions {
				told <- c.Reason + ": " + c.Message
			}
		}
		close(told)
	}()
	// The condition may have been written before the watch began.
	pod, err := client.CoreV1().Pods("default").Get(t.Context(), "pod", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := "Unschedulable: 0/1 nodes are available: 1 " + reasonSelector + "."
	got := ""
	if len(pod.Status.Conditions) > 0 {
		got = pod.Status.Conditions[0].Reason + ": " + pod.Status.Conditions[0].Message
	} else {
		got = <-told
	}
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	patch := []byte(`{"metadata":{"labels":{"gpu":"yes"}}}`)
	if _, err := client.CoreV1().Nodes().Patch(t.Context(), "node1", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := <-bound; got != "pod" {
		t.Errorf("bound %q", got)
	}
}

func TestMatters(t *testing.T) {
	pod := testPod("p", func(p *corev1.Pod) { p.Spec.NodeName = "node1" })
	changed := func(change func(*corev1.Pod)) *corev1.Pod {
		p := pod.DeepCopy()
		change(p)
		return p
	}
	node := testNode(nil)
	beat := testNode(func(n *corev1.Node) {
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	})
	for _, tc := range []struct {
		name          string
		before, after any
		want          bool
	}{
		{"status of a pod on the node", pod, changed(func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }), false},
		{"a pod ends", pod, changed(func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), true},
		{"a pod is relabelled", pod, changed(func(p *corev1.Pod) { p.Labels = nil }), true},
		{"heartbeat", node, beat, false},
		{"cordon", node, testNode(func(n *corev1.Node) { n.Spec.Unschedulable = true }), true},
		{"less to give", node, testNode(func(n *corev1.Node) { n.Status.Allocatable = nil }), true},
		{"a claim", testClaim("c", "late", nil), testClaim("c", "late", boundTo("v")), true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := matters(tc.before, tc.after); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}
