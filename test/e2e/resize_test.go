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
)

// TestResize changes what running pods may use. Its parts are independent of
// each other and share one node.
func TestResize(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	n.importBusybox()
	for name, test := range map[string]func(*testing.T, *node){
		"up and down in place":             testResizeInPlace,
		"a restart where it is wanted":     testResizeRestart,
		"more than the node has":           testResizeDeferred,
		"less than is in use":              testResizeBelowUsage,
		"it stays over a restart":          testResizeKept,
		"sidecars":                         testResizeSidecar,
		"the pod as a whole":               testResizePod,
		"what upstream refuses is refused": testResizeRefused,
	} {
		t.Run(name, func(t *testing.T) {
			sub := *n
			sub.t = t
			test(t, &sub)
		})
	}
}

// sizedPod starts a pod whose one container has limits and requests.
func (n *node) sizedPod(name, cpu, memory, container string) {
	n.t.Helper()
	n.kubectlIn(demoPod(name, "serve", fmt.Sprintf(`    resources:
      requests: {cpu: %[1]s, memory: %[2]s}
      limits: {cpu: %[1]s, memory: %[2]s}
%[3]s`, cpu, memory, container)), "apply", "-f", "-")
	n.running(name)
}

func (n *node) resize(name, cpu, memory string) {
	n.t.Helper()
	n.kubectl("patch", "pod", name, "--subresource", "resize", "--patch", fmt.Sprintf(
		`{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"%[1]s","memory":"%[2]s"},"limits":{"cpu":"%[1]s","memory":"%[2]s"}}}]}}`, cpu, memory))
}

// resized waits until a pod's status tells of the new size and of no resize any
// more, and returns the pod.
func (n *node) resized(name, cpu, memory string) *v1.Pod {
	n.t.Helper()
	var pod *v1.Pod
	n.eventually("resized", func() error {
		pod = n.pod(name)
		if c := resizeCondition(pod, v1.PodResizePending); c != nil {
			return fmt.Errorf("pending: %+v", c)
		}
		if c := resizeCondition(pod, v1.PodResizeInProgress); c != nil {
			return fmt.Errorf("in progress: %+v", c)
		}
		s := pod.Status.ContainerStatuses[0]
		if s.Resources == nil || s.Resources.Limits.Memory().String() != memory || s.Resources.Limits.Cpu().String() != cpu ||
			s.AllocatedResources.Memory().String() != memory || s.AllocatedResources.Cpu().String() != cpu {
			return fmt.Errorf("resources %+v, allocated %+v", s.Resources, s.AllocatedResources)
		}
		return nil
	})
	return pod
}

func resizeCondition(pod *v1.Pod, kind v1.PodConditionType) *v1.PodCondition {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == kind {
			return c
		}
	}
	return nil
}

// limits reads the memory limit and the CPU quota, of a container or a pod, that
// the kernel holds for a cgroup whose path ends so.
func limits(t *testing.T, end string) (memory, quota string) {
	t.Helper()
	read := func(v1Path, v2Name string) string {
		for _, pattern := range []string{v1Path, "/sys/fs/cgroup/*/kubepods/*" + v2Name} {
			matches, err := filepath.Glob(pattern)
			if err != nil {
				t.Fatal(err)
			}
			if len(matches) == 1 {
				data, err := os.ReadFile(matches[0])
				if err != nil {
					t.Fatal(err)
				}
				value, _, _ := strings.Cut(strings.TrimSpace(string(data)), " ") // cpu.max has the period, too
				return value
			}
		}
		return ""
	}
	return read("/sys/fs/cgroup/memory/*/kubepods/"+end+"/memory.limit_in_bytes", end+"/memory.max"),
		read("/sys/fs/cgroup/cpu/*/kubepods/"+end+"/cpu.cfs_quota_us", end+"/cpu.max")
}

func wantLimits(t *testing.T, end, memory, quota string) {
	t.Helper()
	if m, q := limits(t, end); m != memory || q != quota {
		t.Errorf("cgroup %s: got memory %s, quota %s; want %s, %s", end, m, q, memory, quota)
	}
}

func testResizeInPlace(t *testing.T, n *node) {
	n.sizedPod("in-place", "100m", "64Mi", "")
	before := containers(n.pod("in-place"))
	for _, size := range []struct{ cpu, memory, bytes, quota string }{
		{"250m", "128Mi", "134217728", "25000"},
		{"50m", "96Mi", "100663296", "5000"},
	} {
		n.resize("in-place", size.cpu, size.memory)
		pod := n.resized("in-place", size.cpu, size.memory)
		if got := containers(pod); got != before {
			t.Errorf("got %s, want %s", got, before)
		}
		wantLimits(t, "pod"+string(pod.UID), size.bytes, size.quota)
		wantLimits(t, "pod"+string(pod.UID)+"/"+strings.TrimPrefix(pod.Status.ContainerStatuses[0].ContainerID, "containerd://"), size.bytes, size.quota)
	}
	n.eventually("events", func() error {
		return wants(n.kubectl("events", "--for", "pod/in-place"), "ResizeStarted", "Pod resize started: {", "ResizeCompleted", "Pod resize completed: {")
	})
	n.kubectl("delete", "pod", "in-place", "--timeout=3m")
}

func testResizeRestart(t *testing.T, n *node) {
	n.sizedPod("restarted", "100m", "64Mi", "    resizePolicy:\n    - {resourceName: memory, restartPolicy: RestartContainer}\n")
	before := containers(n.pod("restarted"))
	n.resize("restarted", "150m", "64Mi")
	if got := containers(n.resized("restarted", "150m", "64Mi")); got != before {
		t.Errorf("for CPU: got %s, want %s", got, before)
	}
	n.resize("restarted", "150m", "80Mi")
	n.eventually("restarted once", func() error {
		pod := n.resized("restarted", "150m", "80Mi")
		if s := pod.Status.ContainerStatuses[0]; s.RestartCount != 1 || s.State.Running == nil {
			return fmt.Errorf("%+v", s)
		}
		wantLimits(t, "pod"+string(pod.UID)+"/"+strings.TrimPrefix(pod.Status.ContainerStatuses[0].ContainerID, "containerd://"), "83886080", "15000")
		return nil
	})
	n.hasEvent("restarted", "Container main resize requires restart")
	n.kubectl("delete", "pod", "restarted", "--timeout=3m")
}

// hasEvent waits for an event of a pod: they come some time after what they tell.
func (n *node) hasEvent(pod, text string) {
	n.t.Helper()
	n.eventually("an event of "+pod, func() error { return wants(n.kubectl("events", "--for", "pod/"+pod), text) })
}

// hog asks for all but 300 thousandths of the CPU that is left beside the pods
// of the system, of which there are none.
func (n *node) hog(name string) {
	n.t.Helper()
	cpus := n.kubectl("get", "node", n.name, "-o", "jsonpath={.status.allocatable.cpu}")
	count, err := strconv.Atoi(cpus)
	if err != nil {
		n.t.Fatalf("CPUs: %v", err)
	}
	n.kubectlIn(demoPod(name, "serve", fmt.Sprintf("    resources: {requests: {cpu: %dm}}\n", count*1000-300)), "apply", "-f", "-")
	n.running(name)
}

// waitsForRoom waits until a pod's resize is Deferred, and returns why.
func (n *node) waitsForRoom(name string) string {
	n.t.Helper()
	var message string
	n.eventually("its resize waits", func() error {
		pod := n.pod(name)
		c := resizeCondition(pod, v1.PodResizePending)
		if c == nil || c.Reason != v1.PodReasonDeferred || c.ObservedGeneration != pod.Generation {
			return fmt.Errorf("condition %+v", c)
		}
		message = c.Message
		return nil
	})
	if s := n.pod(name).Status.ContainerStatuses[0]; s.Resources.Limits.Cpu().String() != "100m" || s.AllocatedResources.Cpu().String() != "100m" {
		n.t.Errorf("status: %+v", s)
	}
	return message
}

func testResizeDeferred(t *testing.T, n *node) {
	n.sizedPod("big", "100m", "64Mi", "")
	n.hog("hog")
	n.resize("big", "1500m", "64Mi")
	if err := wants(n.waitsForRoom("big"), "Node didn't have enough resource: cpu, requested: 1500,"); err != nil {
		t.Error(err)
	}
	n.hasEvent("big", "ResizeDeferred")
	n.eventually("the node says it", func() error {
		out, _ := n.try("status")
		return wants(out, "its resize waits")
	})
	n.kubectl("delete", "pod", "hog", "--timeout=3m")
	n.resized("big", "1500m", "64Mi")
	out, err := n.tryKubectl("", "patch", "pod", "big", "--subresource", "resize", "--patch", `{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"1000"},"limits":{"cpu":"1000"}}}]}}`)
	if err == nil || !strings.Contains(out, "node didn't have enough allocatable resources") {
		t.Errorf("more than the node has: %v, %s", err, out)
	}
	n.kubectl("delete", "pod", "big", "--timeout=3m")
}

func testResizeBelowUsage(t *testing.T, n *node) {
	n.kubectlIn(fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: full}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: %s
    imagePullPolicy: Never
    command: [sh, -c, "busybox dd if=/dev/zero of=/fill/x bs=1M count=40; sleep 1000"]
    resources:
      requests: {cpu: 100m, memory: 100Mi}
      limits: {cpu: 100m, memory: 100Mi}
    volumeMounts: [{name: fill, mountPath: /fill}]
  volumes: [{name: fill, emptyDir: {medium: Memory}}]
`, busyboxImage), "apply", "-f", "-")
	n.running("full")
	n.eventually("it uses memory", func() error {
		out, err := n.tryKubectl("", "exec", "full", "--", "ls", "-l", "/fill")
		return errors.Join(err, wants(out, "41943040"))
	})
	before := containers(n.pod("full"))
	n.resize("full", "100m", "20Mi")
	n.eventually("it is told", func() error {
		c := resizeCondition(n.pod("full"), v1.PodResizeInProgress)
		if c == nil || c.Reason != v1.PodReasonError {
			return fmt.Errorf("condition %+v", c)
		}
		return wants(c.Message, "cannot decrease memory limits", "below current usage")
	})
	n.hasEvent("full", "ResizeError")
	n.resize("full", "100m", "120Mi")
	pod := n.resized("full", "100m", "120Mi")
	if got := containers(pod); got != before {
		t.Errorf("got %s, want %s", got, before)
	}
	n.kubectl("delete", "pod", "full", "--timeout=3m")
}

func testResizeKept(t *testing.T, n *node) {
	n.sizedPod("kept", "100m", "64Mi", "    resizePolicy:\n    - {resourceName: memory, restartPolicy: RestartContainer}\n    - {resourceName: cpu, restartPolicy: RestartContainer}\n")
	n.resize("kept", "100m", "72Mi")
	n.eventually("done", func() error {
		if s := n.resized("kept", "100m", "72Mi").Status.ContainerStatuses[0]; s.RestartCount != 1 || s.State.Running == nil {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	n.sizedPod("waits", "100m", "64Mi", "")
	n.hog("hog")
	n.resize("waits", "1", "64Mi")
	n.waitsForRoom("waits")
	before := containers(n.pod("kept")) + containers(n.pod("waits"))
	kill(t, n.report().PID)
	n.up()
	n.waitsForRoom("waits")
	n.resized("kept", "100m", "72Mi")
	if got := containers(n.pod("kept")) + containers(n.pod("waits")); got != before {
		t.Errorf("after a restart: got %s, want %s", got, before)
	}
	n.kubectl("delete", "pod", "kept", "waits", "hog", "--timeout=3m")
}

func testResizeSidecar(t *testing.T, n *node) {
	n.kubectlIn(demoPod("sidecar", "serve", `    resources: {limits: {cpu: 50m, memory: 64Mi}}
  initContainers:
  - name: side
    image: holdfast.local/demo:latest
    imagePullPolicy: IfNotPresent
    restartPolicy: Always
    args: [sleep, "1000"]
    resources: {limits: {cpu: 50m, memory: 64Mi}}
`), "apply", "-f", "-")
	n.running("sidecar")
	n.kubectl("patch", "pod", "sidecar", "--subresource", "resize", "--patch",
		`{"spec":{"initContainers":[{"name":"side","resources":{"requests":{"memory":"90Mi"},"limits":{"memory":"90Mi"}}}]}}`)
	n.eventually("resized", func() error {
		pod := n.pod("sidecar")
		s := pod.Status.InitContainerStatuses[0]
		if s.Resources == nil || s.Resources.Limits.Memory().String() != "90Mi" || s.RestartCount != 0 || resizeCondition(pod, v1.PodResizeInProgress) != nil {
			return fmt.Errorf("status: %+v", s)
		}
		return nil
	})
	pod := n.pod("sidecar")
	wantLimits(t, "pod"+string(pod.UID)+"/"+strings.TrimPrefix(pod.Status.InitContainerStatuses[0].ContainerID, "containerd://"), "94371840", "5000")
	wantLimits(t, "pod"+string(pod.UID), fmt.Sprint((90+64)<<20), "10000")
	n.kubectl("delete", "pod", "sidecar", "--timeout=3m")
}

func testResizeRefused(t *testing.T, n *node) {
	n.write("fixed.yaml", demoPod("fixed", "serve", "    resources: {limits: {cpu: 50m, memory: 64Mi}}\n"))
	n.running("fixed-edge-1")
	n.sizedPod("guaranteed", "100m", "64Mi", "")
	for _, test := range []struct{ pod, patch, want string }{
		{"fixed-edge-1", `{"limits":{"cpu":"60m"}}`, "static pods cannot be resized"},
		{"guaranteed", `{"limits":{"cpu":"200m"}}`, "Pod QOS Class may not change as a result of resizing"},
		{"guaranteed", `{"limits":{"ephemeral-storage":"1Gi"}}`, "only cpu and memory resources are mutable"},
	} {
		out, err := n.tryKubectl("", "patch", "pod", test.pod, "--subresource", "resize", "--patch", `{"spec":{"containers":[{"name":"main","resources":`+test.patch+`}]}}`)
		if err == nil || !strings.Contains(out, test.want) {
			t.Errorf("%s %s: %v, got %s, want %q", test.pod, test.patch, err, out, test.want)
		}
	}
	n.remove("fixed.yaml")
	n.kubectl("delete", "pod", "guaranteed", "--timeout=3m")
}

// The limit of the pod is also that of its container, which has none.
func testResizePod(t *testing.T, n *node) {
	n.kubectlIn(demoPod("whole", "serve", "  resources: {requests: {cpu: 100m, memory: 64Mi}, limits: {cpu: 200m, memory: 128Mi}}\n"), "apply", "-f", "-")
	before := containers(n.running("whole"))
	for _, size := range []struct{ memory, bytes string }{{"160Mi", "167772160"}, {"96Mi", "100663296"}} {
		n.kubectl("patch", "pod", "whole", "--subresource", "resize", "--patch", `{"spec":{"resources":{"limits":{"memory":"`+size.memory+`"}}}}`)
		n.eventually("resized", func() error {
			pod := n.pod("whole")
			if r := pod.Status.Resources; r == nil || r.Limits.Memory().String() != size.memory || resizeCondition(pod, v1.PodResizeInProgress) != nil {
				return fmt.Errorf("resources %+v", r)
			}
			return nil
		})
		pod := n.pod("whole")
		wantLimits(t, "burstable/pod"+string(pod.UID), size.bytes, "20000")
		wantLimits(t, "burstable/pod"+string(pod.UID)+"/"+strings.TrimPrefix(pod.Status.ContainerStatuses[0].ContainerID, "containerd://"), size.bytes, "20000")
	}
	if got := containers(n.pod("whole")); got != before {
		t.Errorf("got %s, want %s", got, before)
	}
	n.kubectl("delete", "pod", "whole", "--timeout=3m")
}
