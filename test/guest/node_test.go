package guest_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/holdfast-dev/holdfast/internal/testenv"
	"github.com/holdfast-dev/holdfast/test/guest"
	"github.com/holdfast-dev/holdfast/test/guest/wire"
)

const talker = `apiVersion: v1
kind: Pod
metadata:
  name: talker
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - name: app
      image: holdfast.local/demo:latest
      args: [serve]
      resources:
        requests: {cpu: 100m, memory: 16Mi}
        limits: {cpu: 500m, memory: 64Mi}
`

const leaver = `apiVersion: v1
kind: Pod
metadata:
  name: leaver
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - name: app
      image: holdfast.local/demo:latest
      args: [sleep, forever]
`

// patience bounds every wait for the node. The machine is slow, and so may be its
// host.
const patience = 8 * time.Minute

// A node is Holdfast in the machine, in the folder that a disk keeps.
type node struct {
	t *testing.T
	m *guest.Machine
}

// newNode boots a machine with bin/holdfast and the runtime beside it, whose folder is on
// the disk.
func newNode(t *testing.T, disk wire.Disk) *node {
	t.Helper()
	disk.Mount = "/var/lib/holdfast"
	testenv.Need(t, "runtime")
	program := filepath.Join("..", "..", "bin", "holdfast")
	if _, err := os.Stat(program); err != nil {
		t.Fatalf("%v (run \"make guest-test\", which builds it)", err)
	}
	n := &node{t: t, m: newMachine(t, guest.Config{
		Files: map[string]string{"/opt/holdfast/holdfast": program, "/opt/holdfast/runtime": testenv.RuntimeDir(t)},
		Disks: []wire.Disk{disk},
	})}
	boot(t, n.m)
	t.Cleanup(func() {
		if t.Failed() {
			n.dump()
		}
	})
	return n
}

// dump shows what a person would look at after a failure.
func (n *node) dump() {
	for _, script := range []string{
		"holdfast status -o wide", "holdfast kubectl get pods,events -A -o wide", "mount; ps; free",
		"tail -c 8000 /var/lib/holdfast/logs/holdfast.log", "tail -c 4000 /var/lib/holdfast/logs/containerd.log", "dmesg | tail -20",
	} {
		result, err := n.m.Run(n.t.Context(), guest.Command{Argv: []string{"sh", "-c", script}})
		n.t.Logf("%s: %v\n%s%s", script, err, result.Stdout, result.Stderr)
	}
}

func (n *node) up() {
	n.t.Helper()
	run(n.t, n.m, guest.Command{Argv: []string{"holdfast", "up", "--detach", "--node-name", "edge-1"}, Timeout: patience})
}

func (n *node) write(name, content string) {
	n.t.Helper()
	dir := "/var/lib/holdfast/manifests/"
	run(n.t, n.m, guest.Command{
		Argv:  []string{"sh", "-ec", fmt.Sprintf("mkdir -p %s; cat > %s.new; mv %s.new %s", dir, dir+name, dir+name, dir+name)},
		Stdin: content,
	})
}

// running waits until a pod is Ready in a container other than the one that not
// names, and returns the pod.
func (n *node) running(name, not string) *v1.Pod {
	n.t.Helper()
	pod := new(v1.Pod)
	n.eventually("pod "+name+" is Ready", []string{"holdfast", "kubectl", "get", "pod", name, "-o", "json"}, func(stdout string) bool {
		*pod = v1.Pod{}
		if err := json.Unmarshal([]byte(stdout), pod); err != nil {
			n.t.Fatalf("%v in %s", err, stdout)
		}
		return slices.ContainsFunc(pod.Status.Conditions, func(c v1.PodCondition) bool {
			return c.Type == v1.PodReady && c.Status == v1.ConditionTrue && pod.Status.ContainerStatuses[0].ContainerID != not
		})
	})
	return pod
}

// eventually waits until a command succeeds and prints what is wanted. Most of the
// time it leaves the machine to the node.
func (n *node) eventually(what string, argv []string, wanted func(stdout string) bool) {
	n.t.Helper()
	var last guest.Result
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		began := time.Now()
		var err error
		if last, err = n.m.Run(n.t.Context(), guest.Command{Argv: argv}); err != nil {
			n.t.Fatal(err)
		}
		if last.Code == 0 && wanted(last.Stdout) {
			return
		}
		time.Sleep(max(time.Second, min(2*time.Since(began), 10*time.Second)))
	}
	n.t.Fatalf("%s: not within %v: %s%s", what, patience, last.Stdout, last.Stderr)
}

// TestNode takes a node through what befalls a machine that nobody watches: no
// network, cgroup v2 alone, a clock that is set, a power cut, a reboot.
func TestNode(t *testing.T) {
	n := newNode(t, wire.Disk{MiB: 4096, FS: "ext4"})
	n.write("talker.yaml", talker)
	n.write("leaver.yaml", leaver)
	n.up()
	n.running("leaver-edge-1", "")
	pod := n.running("talker-edge-1", "")
	n.expectLog()
	n.expectFigures()
	group := "/sys/fs/cgroup/holdfast-*/kubepods/burstable/pod*"
	if got := sh(t, n.m, "cat "+group+"/memory.max "+group+"/cpu.max"); got != "67108864\n50000 100000\n" {
		t.Errorf("the pod's memory.max and cpu.max: %q", got)
	}

	t.Log("clock set a day ahead, then two days back")
	leaver := n.running("leaver-edge-1", "")
	for _, days := range []int{1, -2} {
		pod = n.clockSet(pod, time.Duration(days)*24*time.Hour)
	}
	if got := n.running("leaver-edge-1", ""); got.Status.ContainerStatuses[0].ContainerID != leaver.Status.ContainerStatuses[0].ContainerID {
		t.Errorf("the pod that nobody touched has another container: %v, was %v", got.Status.ContainerStatuses, leaver.Status.ContainerStatuses)
	}

	t.Log("power cut")
	if err := n.m.CutPower(); err != nil {
		t.Fatal(err)
	}
	boot(t, n.m)
	pod = n.again(pod)

	t.Log("reboot, and one pod's file removed meanwhile")
	if err := n.m.Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	sh(t, n.m, "rm /var/lib/holdfast/manifests/leaver.yaml")
	n.again(pod)
	n.eventually("nothing is left of the pod whose file is gone", []string{"sh", "-ec", `
		holdfast kubectl get pods -o name
		cd /var/lib/holdfast; find kubelet/pods logs/pods -maxdepth 1 -mindepth 1`},
		func(stdout string) bool {
			return strings.Count(stdout, "\n") == 3 && !strings.Contains(stdout, "leaver")
		})

	t.Log("uninstall")
	run(t, n.m, guest.Command{Argv: []string{"holdfast", "uninstall", "--yes"}, Timeout: patience})
	if left := sh(t, n.m, "cd /sys/fs/cgroup; ls -d holdfast-* 2>&- || true; ls /run/holdfast 2>&- || true; ls /sys/class/net; iptables-save | grep -i holdfast || true; grep -v ' /var/lib/holdfast ' /proc/mounts | grep holdfast || true"); left != "lo\n" {
		t.Errorf("the machine after uninstall, which should have its loopback alone:\n%s", left)
	}
}

// expectFigures expects what cgroup v2 alone tells of pods: pressure, and all else beside
// it.
func (n *node) expectFigures() {
	n.t.Helper()
	const kubelet = "/api/v1/nodes/edge-1/proxy"
	last := ""
	n.eventually("figures of a pod, with pressure", []string{"holdfast", "kubectl", "get", "--raw", kubelet + "/stats/summary"}, func(stdout string) bool {
		last = stdout
		var s statsapi.Summary
		if err := json.Unmarshal([]byte(stdout), &s); err != nil {
			n.t.Fatalf("%v in %s", err, stdout)
		}
		system := slices.ContainsFunc(s.Node.SystemContainers, func(c statsapi.ContainerStats) bool {
			return c.Name == statsapi.SystemContainerPods && c.CPU.PSI != nil
		})
		return system && s.Node.CPU.PSI != nil && slices.ContainsFunc(s.Pods, func(p statsapi.PodStats) bool {
			if p.PodRef.Name != "talker-edge-1" || len(p.Containers) != 1 || p.CPU == nil || p.Memory == nil || p.IO == nil || p.Network == nil || p.ProcessStats == nil {
				return false
			}
			c := p.Containers[0]
			return p.CPU.PSI != nil && p.Memory.PSI != nil && p.IO.PSI != nil && c.CPU.PSI != nil && c.CPU.UsageNanoCores != nil &&
				*c.Memory.WorkingSetBytes > 100<<10 && *c.Memory.WorkingSetBytes+*c.Memory.AvailableBytes == 64<<20 && c.Swap != nil && c.Rootfs != nil && *p.ProcessStats.ProcessCount > 0
		})
	})
	series := sh(n.t, n.m, "holdfast kubectl get --raw "+kubelet+"/metrics/cadvisor")
	for _, want := range []string{
		`container_pressure_cpu_waiting_seconds_total{container="app",`, `container_pressure_memory_stalled_seconds_total{container="app",`,
		`container_memory_events_high_total{container="app",`, `container_oom_events_total{container="app",`, `container_cpu_cfs_periods_total{container="app",`,
		`container_cpu_user_seconds_total{container="app",`, `container_memory_max_usage_bytes{container="app",`,
	} {
		if !strings.Contains(series, want) {
			n.t.Errorf("no %s in:\n%s\nthe summary:\n%s", want, series, last)
		}
	}
}

// clockSet sets the machine's clock while a pod runs, then kills its process,
// expects it to be seen and started again, and returns the pod.
func (n *node) clockSet(before *v1.Pod, by time.Duration) *v1.Pod {
	n.t.Helper()
	was := before.Status.ContainerStatuses[0]
	sh(n.t, n.m, fmt.Sprintf("date -s @$(($(date +%%s) + %d)); holdfast status", int(by.Seconds())))
	if now := n.running("talker-edge-1", ""); now.Status.ContainerStatuses[0].ContainerID != was.ContainerID {
		n.t.Errorf("clock set by %v: container %s, was %s", by, now.Status.ContainerStatuses[0].ContainerID, was.ContainerID)
	}
	sh(n.t, n.m, "kill -9 $(cat /sys/fs/cgroup/holdfast-*/kubepods/burstable/pod*/*/cgroup.procs | sort -n | tail -1)")
	pod := n.running("talker-edge-1", was.ContainerID)
	if got := pod.Status.ContainerStatuses[0].RestartCount; pod.UID != before.UID || got != was.RestartCount+1 {
		n.t.Errorf("clock set by %v: UID %s, %d restarts; was %s, %d", by, pod.UID, got, before.UID, was.RestartCount)
	}
	return pod
}

func (n *node) expectLog() {
	n.t.Helper()
	if got := sh(n.t, n.m, "holdfast kubectl logs talker-edge-1"); !strings.Contains(got, "serving on") {
		n.t.Errorf("the pod's log: %q", got)
	}
}

// again starts the node on a machine that booted anew, expects the pod that ran
// before, in a new container, and returns it.
func (n *node) again(before *v1.Pod) *v1.Pod {
	n.t.Helper()
	n.up()
	was := before.Status.ContainerStatuses[0]
	pod := n.running("talker-edge-1", was.ContainerID)
	if pod.UID != before.UID {
		n.t.Errorf("the pod's UID is %s, was %s", pod.UID, before.UID)
	}
	if got := pod.Status.ContainerStatuses[0].RestartCount; got != was.RestartCount+1 {
		n.t.Errorf("restart count %d, was %d", got, was.RestartCount)
	}
	n.expectLog()
	sh(n.t, n.m, "holdfast status")
	return pod
}
