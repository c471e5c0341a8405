package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/holdfast-dev/holdfast/internal/kubelet/hoststats"
	"github.com/holdfast-dev/holdfast/internal/ociimage"
	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// TestEvictions has pods use up a small disk, memory and process identifiers: the
// one that does is evicted, the node says so and takes no other pod meanwhile,
// and nobody else is touched.
func TestEvictions(t *testing.T) {
	t.Parallel()
	testenv.Need(t, "busybox")
	const mib = 1 << 20
	n := newNodeIn(t, filepath.Join(smallDisk(t, 640*mib), "root"))
	free, err := hoststats.New("/").Free()
	if err != nil {
		t.Fatal(err)
	}
	memory := int64(*free.Memory.AvailableBytes + *free.Memory.WorkingSetBytes)
	n.up()
	n.importBusybox()
	shell, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Fatal(err)
	}
	const unused = "holdfast.local/unused:test"
	n.importImage(ociimage.Image{Refs: []string{unused}, Files: map[string]ociimage.File{"/name": {Mode: 0o644, Content: []byte(unused)}}, Cmd: []string{"/name"}})
	n.importImage(ociimage.Image{Refs: []string{"holdfast.local/once:test"}, Files: map[string]ociimage.File{
		"/bin/sh": {Mode: 0o755, Content: shell}, "/bin/busybox": {Mode: 0o755, Content: shell},
	}, Env: []string{"PATH=/bin"}})
	n.holdfast("down")
	n.upWith(fmt.Sprintf(`  evictionHard: {allocatableMemory.available: "%d", pid.available: "%d", nodefs.available: 150Mi, imagefs.available: 150Mi}
  evictionPressureTransitionPeriod: 20s
  imageGCHighThresholdPercent: 100
  podPidsLimit: 20000
`, memory-1024*mib, *free.Rlimit.MaxPID-*free.Rlimit.NumOfRunningProcesses-1500))
	n.write("good.yaml", staticShell("good", busyboxImage, "echo ok > /v/f; exec sleep 100000"))
	before := containers(n.running("good-edge-1"))

	// The image is named by this pod alone, and has to stay for it.
	n.write("grows.yaml", staticShell("grows", "holdfast.local/once:test", "busybox dd if=/dev/zero of=/v/big bs=1048576 count=430; busybox sleep 100000"))
	grows := n.evicted("grows-edge-1", "The node was low on resource: ephemeral-storage. Threshold quantity: 150Mi, available: ")
	n.condition(v1.NodeDiskPressure, v1.ConditionTrue)
	n.busyboxPod("late", "sleep 100000", "", "")
	n.eventually("the pod of the API waits", func() error {
		return wants(n.kubectl("get", "events"), "node(s) had untolerated taint(s) {node.kubernetes.io/disk-pressure: }")
	})
	n.condition(v1.NodeDiskPressure, v1.ConditionFalse)
	n.running("late")
	images := n.images()
	if err := wants(images, "holdfast.local/once:test", busyboxImage); err != nil || strings.Contains(images, unused) {
		t.Errorf("images, without the unused one: %v\n%s", err, images)
	}
	if pod := n.pod("grows-edge-1"); pod == nil || pod.UID != grows.UID || pod.Status.Phase != v1.PodFailed {
		t.Errorf("the evicted static pod: %+v, want it to stay Failed", pod)
	}

	// Another one goes by its own limit, though there is room.
	n.write("limited.yaml", strings.Replace(staticShell("limited", busyboxImage, "busybox dd if=/dev/zero of=/v/big bs=1048576 count=20; sleep 100000"),
		"emptyDir: {}", "emptyDir: {sizeLimit: 10Mi}", 1))

	// An edit starts it anew, with nothing in its emptyDir.
	n.write("grows.yaml", staticShell("grows", "holdfast.local/once:test", "test ! -e /v/big && busybox sleep 100000"))
	n.running("grows-edge-1")

	n.write("hog.yaml", `apiVersion: v1
kind: Pod
metadata: {name: hog}
spec:
  containers:
  - {name: main, image: holdfast.local/demo, args: [burn, memory, 1500Mi], resources: {requests: {memory: 100Mi}}}
`)
	n.evicted("hog-edge-1", "The node was low on resource: memory.", "Container main was using", "request is 100Mi, has larger consumption of memory.")
	n.condition(v1.NodeMemoryPressure, v1.ConditionTrue)
	if pod := n.pod("limited-edge-1"); pod == nil || pod.Status.Message != `Usage of EmptyDir volume "v" exceeds the limit "10Mi". ` {
		t.Errorf("the pod over its limit: %+v", pod)
	}

	n.write("forks.yaml", staticShell("forks", busyboxImage, "i=0; while test $i -lt 3000; do sleep 100000 & i=$((i+1)); done; wait"))
	n.evicted("forks-edge-1", "The node was low on resource: pids.")
	n.condition(v1.NodePIDPressure, v1.ConditionTrue)

	for _, name := range []string{"good-edge-1", "grows-edge-1", "late"} {
		n.running(name)
	}
	if after := containers(n.pod("good-edge-1")); after != before {
		t.Errorf("the pod that did nothing:\n%swas\n%s", after, before)
	}
	if err := wants(n.kubectl("get", "--raw", "/api/v1/nodes/edge-1/proxy/metrics"),
		`kubelet_evictions{eviction_signal="allocatableMemory.available"} 1`, `kubelet_evictions{eviction_signal="pid.available"} 1`); err != nil {
		t.Error(err)
	}
}

// staticShell is a pod that runs a script, with a folder of its own at /v.
func staticShell(name, image, script string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: %s
    command: [sh, -c, %s]
    volumeMounts: [{name: v, mountPath: /v}]
  volumes: [{name: v, emptyDir: {}}]
`, name, image, strconv.Quote(script))
}

// evicted waits until a pod is, for a reason that says all of texts, and returns
// it.
func (n *node) evicted(name string, texts ...string) (pod *v1.Pod) {
	n.t.Helper()
	n.eventually(name+" is evicted", func() error {
		if pod = n.pod(name); pod == nil {
			return errors.New("no such pod")
		}
		if s := &pod.Status; s.Phase != v1.PodFailed || s.Reason != "Evicted" {
			return fmt.Errorf("phase %s, reason %q", s.Phase, s.Reason)
		}
		return wants(pod.Status.Message, texts...)
	})
	if _, c := podutil.GetPodCondition(&pod.Status, v1.DisruptionTarget); c == nil || c.Reason != v1.PodReasonTerminationByKubelet {
		n.t.Errorf("condition DisruptionTarget of %s: %+v", name, c)
	}
	return pod
}

// condition waits until the node has a condition.
func (n *node) condition(kind v1.NodeConditionType, want v1.ConditionStatus) {
	n.t.Helper()
	n.eventually(fmt.Sprintf("%s is %s", kind, want), func() error {
		got := n.kubectl("get", "node", n.name, "-o", fmt.Sprintf(`jsonpath={.status.conditions[?(@.type==%q)].status}`, kind))
		if got != string(want) {
			return fmt.Errorf("it is %q", got)
		}
		return nil
	})
}
