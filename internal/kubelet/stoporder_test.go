package kubelet

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/cri"
	"github.com/holdfast-dev/holdfast/internal/kubelet/cri/crifake"
	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
	"github.com/holdfast-dev/holdfast/internal/kubelet/staticpod"
)

// A slowStopper notes the priorities that it stops, and whether one of another
// priority was being stopped meanwhile.
type slowStopper struct {
	mu      sync.Mutex
	order   []string
	now     map[int32]int
	overlap atomic.Bool
	twins   chan struct{} // passed by two at once
}

func (s *slowStopper) SyncTerminating(_ context.Context, pod *v1.Pod, _ *observed.Status, _ *int64) error {
	s.mu.Lock()
	s.order = append(s.order, pod.Spec.PriorityClassName)
	s.now[priority(pod)]++
	if len(s.now) > 1 {
		s.overlap.Store(true)
	}
	s.mu.Unlock()
	if pod.Spec.PriorityClassName == "" {
		select { // the two of one group are stopped at once: each waits for the other
		case s.twins <- struct{}{}:
		case <-s.twins:
		}
	}
	s.mu.Lock()
	if s.now[priority(pod)]--; s.now[priority(pod)] == 0 {
		delete(s.now, priority(pod))
	}
	s.mu.Unlock()
	return nil
}

// TestStopOrder stops static pods of the system's classes and of none: those
// without first, the node's own last, and each group after the one before ended.
func TestStopOrder(t *testing.T) {
	runtime := crifake.Start(t)
	wanted := map[types.UID]*v1.Pod{}
	for name, class := range map[string]string{"a": "system-node-critical", "b": "", "c": "system-cluster-critical", "d": ""} {
		pod, err := staticpod.New(&v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: v1.PodSpec{PriorityClassName: class},
		}, nil, "n1", staticpod.SourceFile)
		if err != nil {
			t.Fatal(err)
		}
		wanted[pod.UID] = pod
		_, err = runtimeapi.NewRuntimeServiceClient(runtime.Conn()).RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{
			Config: &runtimeapi.PodSandboxConfig{
				Metadata: &runtimeapi.PodSandboxMetadata{Name: pod.Name, Namespace: pod.Namespace, Uid: name},
				Labels: map[string]string{
					"io.kubernetes.pod.name": pod.Name, "io.kubernetes.pod.namespace": pod.Namespace, "io.kubernetes.pod.uid": name,
				},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	stopper := &slowStopper{now: map[int32]int{}, twins: make(chan struct{})}
	if err := stopPods(t.Context(), cri.New(runtime.Conn(), cri.Config{}), stopper, wanted, func(string) {}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"", "", "system-cluster-critical", "system-node-critical"}; !slices.Equal(stopper.order, want) {
		t.Errorf("stopped %q, want %q", stopper.order, want)
	}
	if stopper.overlap.Load() {
		t.Error("a group was stopped before the one before it had ended")
	}
}

func priority(pod *v1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}
