package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// figuresPods are a pod that uses a known amount of everything, and one that does not
// come up. %[1]s is the image, %[2]s a folder with the folders 0 to 9.
const figuresPods = `apiVersion: v1
kind: PersistentVolume
metadata: {name: figures}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  storageClassName: ""
  claimRef: {namespace: default, name: figures}
  hostPath: {path: %[2]s/9}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: figures}
spec:
  accessModes: [ReadWriteOnce]
  storageClassName: ""
  volumeName: figures
  resources: {requests: {storage: 1Gi}}
---
apiVersion: v1
kind: Pod
metadata: {name: figures}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: cpu
    image: %[1]s
    imagePullPolicy: Never
    command: [sh, -c, "busybox yes 01234567890123456789 | busybox head -c 200000; while :; do :; done"]
    resources: {limits: {cpu: 300m}}
  - name: memory
    image: holdfast.local/demo:latest
    imagePullPolicy: IfNotPresent
    args: [burn, memory, 64Mi]
  - name: disk
    image: holdfast.local/demo:latest
    imagePullPolicy: IfNotPresent
    args: [serve]
    volumeMounts: [{name: scratch, mountPath: /scratch}]
  volumes:
  - {name: scratch, emptyDir: {}}
%[3]s  - {name: v9, persistentVolumeClaim: {claimName: figures}}
---
apiVersion: v1
kind: Pod
metadata: {name: crashes}
spec:
  containers:
  - name: main
    image: holdfast.local/demo:latest
    imagePullPolicy: IfNotPresent
    args: [exit, "1"]
    volumeMounts: [{name: data, mountPath: /data}]
  volumes:
  - {name: data, hostPath: {path: %[2]s/3}}
`

// TestFigures holds what a node says that its pods use against what the kernel and du
// say of the same things.
func TestFigures(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	volumes := ""
	for i := range 10 {
		folder := filepath.Join(dir, strconv.Itoa(i))
		if err := errors.Join(os.Mkdir(folder, 0o755), os.WriteFile(filepath.Join(folder, "f"), make([]byte, (i+1)<<16), 0o644)); err != nil {
			t.Fatal(err)
		}
		if i < 9 {
			volumes += fmt.Sprintf("  - {name: v%d, hostPath: {path: %s}}\n", i, folder)
		}
	}
	n := newNode(t)
	n.up()
	n.importBusybox()
	n.kubectlIn(fmt.Sprintf(figuresPods, busyboxImage, dir, volumes), "apply", "-f", "-")
	pod := n.running("figures")
	for _, path := range []string{"/scratch/file", "/layer"} {
		n.kubectl("exec", "figures", "-c", "disk", "--", "/demo", "burn", "disk", path, "3Mi")
	}
	for name, test := range map[string]func(*testing.T, *node, *v1.Pod){
		"processor":       testProcessorFigures,
		"memory":          testMemoryFigures,
		"network":         testNetworkFigures,
		"disk":            testDiskFigures,
		"volumes":         testVolumeFigures,
		"the node":        testNodeFigures,
		"only the newest": testRestartedFigures,
		"top":             testTop,
		"cAdvisor":        testCadvisorSeries,
	} {
		t.Run(name, func(t *testing.T) {
			sub := *n
			sub.t = t
			test(t, &sub, pod)
		})
	}
}

// raw asks the node's kubelet through the API.
func (n *node) raw(path string) ([]byte, error) {
	api, err := n.coreAPI()
	if err != nil {
		return nil, err
	}
	ctx, cancel := n.bounded()
	defer cancel()
	return api.RESTClient().Get().RequestURI("/api/v1/nodes/" + n.name + "/proxy" + path).Do(ctx).Raw()
}

// summary returns what the node says that it and a pod use.
func (n *node) summary(pod string) (*statsapi.Summary, *statsapi.PodStats, error) {
	data, err := n.raw("/stats/summary")
	if err != nil {
		return nil, nil, err
	}
	var s statsapi.Summary
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, nil, err
	}
	for i := range s.Pods {
		if s.Pods[i].PodRef.Name == pod {
			return &s, &s.Pods[i], nil
		}
	}
	return nil, nil, fmt.Errorf("the summary has no pod %s", pod)
}

// container returns the figures of one container.
func container(p *statsapi.PodStats, name string) (*statsapi.ContainerStats, error) {
	for i := range p.Containers {
		if p.Containers[i].Name == name {
			return &p.Containers[i], nil
		}
	}
	return nil, fmt.Errorf("the summary has no container %s", name)
}

// processOf returns a process of a pod's container, as the host sees it.
func processOf(t *testing.T, pod *v1.Pod, name string) string {
	t.Helper()
	for _, c := range pod.Status.ContainerStatuses {
		if c.Name != name {
			continue
		}
		_, id, _ := strings.Cut(c.ContainerID, "://")
		for _, path := range glob(t, "/proc/[0-9]*/cgroup") {
			if groups, err := os.ReadFile(path); err == nil && strings.Contains(string(groups), id) {
				return filepath.Dir(path)
			}
		}
	}
	t.Fatalf("no process of container %s", name)
	return ""
}

// processorTime returns what the kernel says that a process's control group has used, in
// nanoseconds.
func processorTime(t *testing.T, process string) uint64 {
	t.Helper()
	unified := ""
	for line := range strings.Lines(read(t, process+"/cgroup")) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case fields[1] == "":
			unified = fields[2]
		case strings.Contains(fields[1], "cpuacct"):
			return number(t, read(t, "/sys/fs/cgroup/"+fields[1]+fields[2]+"/cpuacct.usage"))
		}
	}
	_, rest, _ := strings.Cut(read(t, "/sys/fs/cgroup"+unified+"/cpu.stat"), "usage_usec ")
	first, _, _ := strings.Cut(rest, "\n")
	return number(t, first) * 1000
}

func number(t *testing.T, text string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// du returns what a folder takes by the tool of that name, in bytes and inodes.
func du(t *testing.T, path string) (bytes, inodes uint64) {
	t.Helper()
	count := func(flags ...string) uint64 {
		out, err := run(t, "", "du", append(flags, "-s", path)...)
		if err != nil {
			t.Fatalf("du: %v\n%s", err, out)
		}
		first, _, _ := strings.Cut(out, "\t")
		return number(t, first)
	}
	return count("-B1"), count("--inodes")
}

// near reports whether a figure is there and not below low or above high.
func near(got *uint64, low, high uint64) error {
	switch {
	case got == nil:
		return errors.New("is absent")
	case *got < low || *got > high:
		return fmt.Errorf("is %d, want %d to %d", *got, low, high)
	}
	return nil
}

// testProcessorFigures reads the kernel's counter before and after the node has.
func testProcessorFigures(t *testing.T, n *node, pod *v1.Pod) {
	process := processOf(t, pod, "cpu")
	began, low := time.Now(), processorTime(t, process)
	var c *statsapi.ContainerStats
	n.eventually("a figure of now", func() error {
		_, p, err := n.summary("figures")
		if err == nil {
			c, err = container(p, "cpu")
		}
		switch {
		case err != nil:
			return err
		case c.CPU == nil || c.CPU.UsageNanoCores == nil || !c.CPU.Time.After(began):
			return fmt.Errorf("processor: %+v", c.CPU)
		}
		return nil
	})
	if err := near(c.CPU.UsageCoreNanoSeconds, low, processorTime(t, process)); err != nil {
		t.Errorf("processor time %v", err)
	}
	if err := near(c.CPU.UsageNanoCores, 1e6, 4e8); err != nil {
		t.Errorf("a loop that may have 0.3 cores: rate %v", err)
	}
	if c.StartTime.IsZero() || c.StartTime.After(time.Now()) {
		t.Errorf("started at %v", c.StartTime)
	}
}

func testMemoryFigures(t *testing.T, n *node, _ *v1.Pod) {
	const held = 64 << 20
	n.eventually("the memory that is held", func() error {
		_, p, err := n.summary("figures")
		if err != nil {
			return err
		}
		c, err := container(p, "memory")
		if err != nil {
			return err
		}
		if c.Memory == nil || p.Memory == nil {
			return errors.New("no memory")
		}
		if p.ProcessStats == nil || near(p.ProcessStats.ProcessCount, 3, 6) != nil {
			return fmt.Errorf("processes: %+v", p.ProcessStats)
		}
		return errors.Join(
			near(c.Memory.RSSBytes, held, held+held/2), near(c.Memory.WorkingSetBytes, held, held+held/2),
			near(p.Memory.WorkingSetBytes, held, 3*held), near(c.Memory.PageFaults, held/4096/512, 1<<40),
		)
	})
	data, err := n.raw("/metrics/resource")
	if err != nil {
		t.Fatal(err)
	}
	if err := wants(string(data), `container_memory_working_set_bytes{container="memory",namespace="default",pod="figures"} `,
		`container_start_time_seconds{container="cpu",`, `pod_cpu_usage_seconds_total{namespace="default",pod="figures"} `,
		"node_cpu_usage_seconds_total ", "resource_scrape_error 0\n"); err != nil {
		t.Error(err)
	}
}

// testNetworkFigures has the pod answer, and reads the counters of its interface where
// it lives.
func testNetworkFigures(t *testing.T, n *node, pod *v1.Pod) {
	path := "http://" + pod.Status.PodIP + ":8080/" + strings.Repeat("x", 2000)
	for range 100 {
		answer, err := http.Get(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, answer.Body); err != nil {
			t.Error(err)
		}
		answer.Body.Close()
	}
	devices := processOf(t, pod, "disk") + "/net/dev"
	n.eventually("what came and went", func() error {
		_, p, err := n.summary("figures")
		switch {
		case err != nil:
			return err
		case p.Network == nil || p.Network.Name != "eth0":
			return fmt.Errorf("network: %+v", p.Network)
		}
		_, rest, _ := strings.Cut(read(t, devices), "eth0:")
		fields := strings.Fields(rest)
		return errors.Join(near(p.Network.RxBytes, 200_000, number(t, fields[0])), near(p.Network.TxBytes, 200_000, number(t, fields[8])))
	})
}

// testDiskFigures is about layers, logs, and what a pod has on the node's disk in all.
func testDiskFigures(t *testing.T, n *node, pod *v1.Pod) {
	const written = 3 << 20
	logs := filepath.Join(n.root, "logs", "pods", "default_figures_"+string(pod.UID))
	scratch := filepath.Join(n.root, "kubelet", "pods", string(pod.UID), "volumes", "kubernetes.io~empty-dir", "scratch")
	n.eventually("layers, logs and their sum", func() error {
		s, p, err := n.summary("figures")
		if err != nil {
			return err
		}
		disk, err := container(p, "disk")
		if err != nil {
			return err
		}
		loud, err := container(p, "cpu")
		if err != nil {
			return err
		}
		if disk.Rootfs == nil || loud.Logs == nil || p.EphemeralStorage == nil || s.Node.Fs == nil {
			return fmt.Errorf("layer %v, logs %v, sum %v, disk %v", disk.Rootfs, loud.Logs, p.EphemeralStorage, s.Node.Fs)
		}
		logBytes, logInodes := du(t, filepath.Join(logs, "cpu"))
		if logBytes < 200_000 {
			return fmt.Errorf("the log has %d bytes", logBytes)
		}
		allLogs, _ := du(t, logs)
		volume, _ := du(t, scratch)
		return errors.Join(
			near(disk.Rootfs.UsedBytes, written, written+written/4),
			near(loud.Logs.UsedBytes, logBytes, logBytes), near(loud.Logs.InodesUsed, logInodes, logInodes),
			near(p.EphemeralStorage.UsedBytes, written+volume+logBytes, written+written/2+volume+allLogs),
			near(p.EphemeralStorage.CapacityBytes, *s.Node.Fs.CapacityBytes, *s.Node.Fs.CapacityBytes),
		)
	})
}

// testVolumeFigures holds that ten folders of one disk have ten figures, in the Summary
// and as series.
func testVolumeFigures(t *testing.T, n *node, pod *v1.Pod) {
	dir := ""
	for _, v := range pod.Spec.Volumes {
		if v.Name == "v0" {
			dir = filepath.Dir(v.HostPath.Path)
		}
	}
	check := func(name string, i int, p *statsapi.PodStats) error {
		for _, v := range p.VolumeStats {
			if v.Name != name {
				continue
			}
			bytes, inodes := du(t, filepath.Join(dir, strconv.Itoa(i)))
			err := errors.Join(near(v.UsedBytes, bytes, bytes), near(v.InodesUsed, inodes, inodes), near(v.CapacityBytes, bytes, 1<<60))
			if i == 9 && (v.PVCRef == nil || *v.PVCRef != statsapi.PVCReference{Namespace: "default", Name: "figures"}) {
				err = errors.Join(err, fmt.Errorf("it is of claim %v", v.PVCRef))
			}
			return err
		}
		return fmt.Errorf("the summary has no volume %s", name)
	}
	n.eventually("ten figures", func() error {
		_, p, err := n.summary("figures")
		for i := range 10 {
			if err == nil {
				err = check(fmt.Sprintf("v%d", i), i, p)
			}
		}
		return err
	})
	n.eventually("figures of a pod that does not come up", func() error {
		_, p, err := n.summary("crashes")
		if err != nil {
			return err
		}
		return check("data", 3, p)
	})
	series, err := n.raw("/metrics")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`kubelet_volume_stats_used_bytes{namespace="default",persistentvolumeclaim="figures"} `,
		`kubelet_volume_stats_inodes_used{namespace="default",persistentvolumeclaim="figures"} 2`,
		`holdfast_volume_age_seconds{`, `holdfast_pod_ephemeral_storage_used_bytes{namespace="default",pod="figures"} `,
		`kubelet_container_log_filesystem_used_bytes{container="cpu",namespace="default",pod="figures",uid="` + string(pod.UID) + `"} `,
	}
	for i := range 9 {
		want = append(want, fmt.Sprintf(`holdfast_volume_inodes_used{method="walk",namespace="default",pod="figures",source="hostPath",volume="v%d"} 2`, i))
	}
	if err := wants(string(series), want...); err != nil {
		t.Error(err)
	}
}

func testNodeFigures(t *testing.T, n *node, _ *v1.Pod) {
	s, _, err := n.summary("figures")
	if err != nil {
		t.Fatal(err)
	}
	node := &s.Node
	if node.CPU == nil || node.Memory == nil || node.Network == nil || node.Fs == nil || node.Rlimit == nil || node.Runtime == nil {
		t.Fatalf("node: %+v", node)
	}
	_, total, _ := strings.Cut(read(t, "/proc/meminfo"), "MemTotal:")
	total, _, _ = strings.Cut(total, "kB")
	if got, want := *node.Memory.AvailableBytes+*node.Memory.WorkingSetBytes, number(t, total)<<10; got != want {
		t.Errorf("memory that is available and that is not: %d together, the machine has %d", got, want)
	}
	if node.Runtime.ImageFs == nil || near(node.Runtime.ImageFs.UsedBytes, 1<<20, 1<<40) != nil {
		t.Errorf("images: %+v", node.Runtime.ImageFs)
	}
	system := map[string]*statsapi.ContainerStats{}
	for i := range node.SystemContainers {
		system[node.SystemContainers[i].Name] = &node.SystemContainers[i]
	}
	pid := n.report().PID
	_, containerd, _ := strings.Cut(read(t, filepath.Join(n.root, "logs", "holdfast.log")), "part=containerd pid=")
	containerd, _, _ = strings.Cut(containerd, "\n")
	for name, process := range map[string]string{"kubelet": strconv.Itoa(pid), "runtime": containerd} {
		got := system[name]
		if got == nil || got.CPU == nil || got.Memory == nil {
			t.Errorf("system container %s: %+v", name, got)
			continue
		}
		_, most, _ := strings.Cut(read(t, "/proc/"+process+"/status"), "VmHWM:")
		most, _, _ = strings.Cut(most, "kB")
		if err := errors.Join(near(got.Memory.WorkingSetBytes, 10<<20, number(t, most)<<10), near(got.CPU.UsageCoreNanoSeconds, 1e7, 1e13), near(got.CPU.UsageNanoCores, 0, 8e9)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if pods := system["pods"]; pods == nil || near(pods.Memory.WorkingSetBytes, 64<<20, 1<<40) != nil {
		t.Errorf("all pods: %+v", pods)
	}
	small, err := n.raw("/stats/summary?only_cpu_and_memory=true")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(small), "volume") || !strings.Contains(string(small), "usageCoreNanoSeconds") {
		t.Errorf("only_cpu_and_memory: %s", small)
	}
}

// testCadvisorSeries holds that the series that dashboards use are there for a container
// and its pod, with the kernel's figures.
func testCadvisorSeries(t *testing.T, n *node, pod *v1.Pod) {
	process := processOf(t, pod, "cpu")
	low := processorTime(t, process)
	var data []byte
	const used = `container_cpu_usage_seconds_total{container="cpu",`
	n.eventually("the loop's processor time", func() error {
		var err error
		if data, err = n.raw("/metrics/cadvisor"); err != nil {
			return err
		}
		_, rest, _ := strings.Cut(string(data), used)
		_, rest, _ = strings.Cut(rest, "} ")
		text, _, _ := strings.Cut(rest, " ")
		seconds, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return fmt.Errorf("%s: %w", used, err)
		}
		nanos := uint64(seconds * 1e9)
		return near(&nanos, low-1000, processorTime(t, process)+1000) // which a float rounds
	})
	want := []string{
		"machine_cpu_cores{", "machine_memory_bytes{", `container_cpu_usage_seconds_total{container="",id="/",`,
		`container_network_receive_bytes_total{container="",id="/holdfast-`, `namespace="default",pod="figures",interface="eth0"} `,
		`container_fs_usage_bytes{container="disk",`, `container_oom_events_total{container="memory",`,
		`container_file_descriptors{container="disk",`, `container_sockets{container="disk",`, `container_ulimits_soft{container="disk",`,
	}
	for _, series := range []string{
		"container_memory_working_set_bytes", "container_memory_rss", "container_memory_cache", "container_memory_usage_bytes", "container_processes", "container_threads",
		"container_start_time_seconds", "container_spec_cpu_quota", "container_spec_cpu_period", "container_spec_cpu_shares", "container_spec_memory_limit_bytes",
		"container_cpu_cfs_periods_total", "container_cpu_cfs_throttled_periods_total", "container_cpu_cfs_throttled_seconds_total", "container_last_seen",
	} {
		want = append(want, series+`{container="cpu",`)
	}
	if err := wants(string(data), want...); err != nil {
		t.Error(err)
	}
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, `container_spec_cpu_quota{container="cpu",`) && !strings.HasSuffix(line, "} 30000\n") {
			t.Errorf("a limit of 300m: %s", line)
		}
	}
}

// testRestartedFigures ends a container, whose successor has its figures alone.
func testRestartedFigures(t *testing.T, n *node, pod *v1.Pod) {
	before := processOf(t, pod, "memory")
	kill(t, int(number(t, filepath.Base(before)))) //nolint:gosec // a process identifier
	n.eventually("it has started again", func() error {
		_, p, err := n.summary("figures")
		if err != nil {
			return err
		}
		now := n.pod("figures")
		for _, c := range now.Status.ContainerStatuses {
			if c.Name != "memory" || c.RestartCount == 0 || c.State.Running == nil {
				continue
			}
			if len(p.Containers) != len(now.Spec.Containers) {
				return fmt.Errorf("%d containers", len(p.Containers))
			}
			got, err := container(p, "memory")
			if err == nil && !got.StartTime.Equal(&c.State.Running.StartedAt) {
				err = fmt.Errorf("it started at %v, the figures are of %v", c.State.Running.StartedAt, got.StartTime)
			}
			return err
		}
		return errors.New("it has not started again")
	})
}

// testTop shows the figures by the command, as a table and for programs.
func testTop(t *testing.T, n *node, _ *v1.Pod) {
	n.eventually("each volume has a row", func() error {
		out, err := n.try("top", "volumes", "figures", "--sort-by", "used", "-o", "wide")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		out = strings.Join(strings.Fields(out), " ")
		if err := wants(out, "CLAIM NODE default figures scratch emptyDir 3.0Mi "); err != nil {
			return err // the largest comes first
		}
		for i := range 9 {
			if err := wants(out, fmt.Sprintf(" figures v%d hostPath %dKi ", i, (i+1)*64+4)); err != nil {
				return err
			}
		}
		return wants(out, " figures v9 persistentVolumeClaim 644Ki ", "] 0% 2 walk ")
	})
	var volumes []struct {
		PodRef struct{ Name string }
		Kind   string
		statsapi.VolumeStats
	}
	out := n.holdfast("top", "volumes", "-A", "-o", "json")
	if err := json.Unmarshal([]byte(out), &volumes); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	kinds := map[string]string{}
	for _, v := range volumes {
		kinds[v.PodRef.Name+"/"+v.Name] = v.Kind
		if v.UsedBytes == nil || v.Time.IsZero() {
			t.Errorf("volume without figures: %+v", v)
		}
	}
	if kinds["figures/scratch"] != "emptyDir" || kinds["crashes/data"] != "hostPath" || kinds["figures/v9"] != "persistentVolumeClaim" {
		t.Errorf("kinds: %v", kinds)
	}
	if err := wants(n.holdfast("top", "nodes"), "NODE ", "CPU% ", "edge-1 ", "m ", "i ", "% "); err != nil {
		t.Error(err)
	}
	n.eventually("the container that holds memory comes first", func() error {
		out := strings.Join(strings.Fields(n.holdfast("top", "pods", "figures", "--containers", "--sort-by", "memory")), " ")
		return wants(out, "STORAGE default figures memory ", " figures cpu ", " figures disk ")
	})
	// As in a cluster: any kubeconfig, here of an account that may only look.
	file := filepath.Join(t.TempDir(), "kubeconfig")
	n.holdfast("kubeconfig", "--user", "looks", "--role", "cluster-admin", "--file", file)
	pods := n.holdfast("top", "pods", "--kubeconfig", file, "--sort-by", "memory")
	if err := wants(pods, "NAMESPACE ", "default     figures   "); err != nil || strings.Index(pods, "figures") > strings.Index(pods, "crashes") {
		t.Errorf("%v: %s", err, pods)
	}
	n.kubectl("delete", "serviceaccount", "-n", "holdfast-accounts", "looks")
	if out, err := n.try("top", "pods", "--sort-by", "size"); err == nil || !strings.Contains(out, `"size": want one of name, cpu`) {
		t.Errorf("an order that is none: %v, %s", err, out)
	}
	if out, err := n.try("top", "pods", "--node", "elsewhere"); err == nil || !strings.Contains(out, `get node elsewhere`) {
		t.Errorf("a node that is none: %v, %s", err, out)
	}
}
