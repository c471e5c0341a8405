package podcgroup

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/testenv"
)

func list(cpu, memory string) v1.ResourceList {
	l := v1.ResourceList{}
	if cpu != "" {
		l[v1.ResourceCPU] = resource.MustParse(cpu)
	}
	if memory != "" {
		l[v1.ResourceMemory] = resource.MustParse(memory)
	}
	return l
}

func podWith(uid string, containers ...v1.ResourceRequirements) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}}
	for _, r := range containers {
		pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Resources: r})
	}
	return pod
}

var (
	guaranteed = v1.ResourceRequirements{Requests: list("500m", "64Mi"), Limits: list("500m", "64Mi")}
	asksOnly   = v1.ResourceRequirements{Requests: list("250m", "32Mi")}
	bound      = v1.ResourceRequirements{Requests: list("100m", "32Mi"), Limits: list("2", "1Gi")}
	nothing    = v1.ResourceRequirements{}
)

func TestLimitsOf(t *testing.T) {
	huge := podWith("u", v1.ResourceRequirements{
		Requests: v1.ResourceList{"hugepages-2Mi": resource.MustParse("4Mi"), v1.ResourceCPU: resource.MustParse("1")},
		Limits:   v1.ResourceList{"hugepages-2Mi": resource.MustParse("4Mi")},
	})
	whole := podWith("u", nothing)
	whole.Spec.Resources = &v1.ResourceRequirements{Requests: list("1", ""), Limits: list("2", "128Mi")}

	heavy := podWith("u", guaranteed, guaranteed)
	heavy.Spec.Overhead = list("200m", "140Mi")
	halfBound := podWith("u", bound, nothing)
	halfBound.Spec.Overhead = list("200m", "140Mi")
	wholeHeavy := whole.DeepCopy()
	wholeHeavy.Spec.Overhead = list("200m", "140Mi")
	onlyOverhead := podWith("u", nothing)
	onlyOverhead.Spec.Overhead = list("200m", "140Mi")

	none := map[string]int64{}
	tests := []struct {
		name string
		pod  *v1.Pod
		want limits
	}{
		{"guaranteed", podWith("u", guaranteed, guaranteed), limits{v1.PodQOSGuaranteed, 1000, 100_000, 128 << 20, 99, none}},
		{"burstable without limits", podWith("u", asksOnly), limits{v1.PodQOSBurstable, 250, 0, 0, 99, none}},
		{"burstable, every container bound", podWith("u", bound, bound), limits{v1.PodQOSBurstable, 200, 400_000, 2 << 30, 99, none}},
		{"burstable, one container unbound", podWith("u", bound, nothing), limits{v1.PodQOSBurstable, 100, 0, 0, 99, none}},
		{"best effort", podWith("u", nothing), limits{v1.PodQOSBestEffort, 0, 0, 0, 99, none}},
		{"tiny CPU limit", podWith("u", v1.ResourceRequirements{Limits: list("1m", "")}), limits{v1.PodQOSBurstable, 0, 1000, 0, 99, none}},
		{"huge pages", huge, limits{v1.PodQOSBurstable, 1000, 0, 0, 99, map[string]int64{"2MB": 4 << 20}}},
		{"overhead", heavy, limits{v1.PodQOSGuaranteed, 1200, 120_000, 268 << 20, 99, none}},
		{"overhead, one container unbound", halfBound, limits{v1.PodQOSBurstable, 300, 0, 0, 99, none}},
		{"overhead and limits of the pod", wholeHeavy, limits{v1.PodQOSBurstable, 1200, 220_000, 268 << 20, 99, none}},
		{"overhead of a best effort pod", onlyOverhead, limits{v1.PodQOSBestEffort, 0, 0, 0, 99, none}},
		{"limits of the pod", whole, limits{v1.PodQOSBurstable, 1000, 200_000, 128 << 20, 99, none}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := limitsOf(tt.pod, 99)
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(limits{})); diff != "" {
				t.Errorf("limits (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCPUConversions(t *testing.T) {
	tests := []struct{ milli, shares, weight int64 }{
		{0, 2, 1},
		{1, 2, 1},
		{1000, 1024, 39},
		{2000, 2048, 79},
		{1_000_000, 262144, 10000},
	}
	for _, tt := range tests {
		if got := cpuShares(tt.milli); got != tt.shares {
			t.Errorf("cpuShares(%d) = %d, want %d", tt.milli, got, tt.shares)
		}
		if got := cpuWeight(tt.shares); got != tt.weight {
			t.Errorf("cpuWeight(%d) = %d, want %d", tt.shares, got, tt.weight)
		}
	}
}

func TestKernelSize(t *testing.T) {
	for size, want := range map[int64]string{64 << 10: "64KB", 2 << 20: "2MB", 1 << 30: "1GB", 16 << 30: "16GB", 512 << 20: "512MB"} {
		if got := kernelSize(size); got != want {
			t.Errorf("kernelSize(%d) = %q, want %q", size, got, want)
		}
	}
}

// fakeV2 is a v2 tree of plain files for the given groups.
func fakeV2(t *testing.T, groups ...string) tree {
	t.Helper()
	top := t.TempDir()
	for _, group := range append(groups, "/") {
		dir := filepath.Join(top, group)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, content := range map[string]string{
			"cgroup.controllers": "cpuset cpu memory pids", "cgroup.subtree_control": "cpuset cpu memory",
			"cpu.weight": "100", "cpu.max": "max 100000", "memory.max": "max", "pids.max": "max", "hugetlb.2MB.max": "max",
		} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	return tree{unified: true, dirs: map[string]string{"": top}}
}

func (t tree) value(tb testing.TB, controller, group, name string) string {
	tb.Helper()
	b, err := os.ReadFile(filepath.Join(t.dirs[controller], group, name))
	if err != nil {
		tb.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func TestEnsureV2(t *testing.T) {
	const group = "/hf/kubepods/burstable/podu1"
	fake := fakeV2(t, "/hf", "/hf/kubepods", "/hf/kubepods/burstable", "/hf/kubepods/besteffort", group)
	m, err := newManager(Config{Parent: "hf", NodeMilliCPU: 2000, PidsLimit: 50}, fake)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := m.Ensure(podWith("u1", bound)); err != nil || got != group {
		t.Fatalf("Ensure = %q, %v, want %q", got, err, group)
	}
	for _, want := range [][3]string{
		{group, "cpu.weight", number(cpuWeight(102))},
		{group, "cpu.max", "200000 100000"},
		{group, "memory.max", "1073741824"},
		{group, "pids.max", "50"},
		{group, "hugetlb.2MB.max", "0"},
		{group, "cgroup.subtree_control", "+pids"},
		{"/", "cgroup.subtree_control", "+pids"},
		{"/hf", "cpu.weight", "79"},
		{"/hf/kubepods", "cpu.weight", "79"},
		{"/hf/kubepods/besteffort", "cpu.weight", "1"},
		{"/hf/kubepods/burstable", "cpu.weight", number(cpuWeight(102))},
	} {
		if got := fake.value(t, "", want[0], want[1]); !strings.HasPrefix(got, want[2]) {
			t.Errorf("%s of %s = %q, want %q", want[1], want[0], got, want[2])
		}
	}
}

func TestRefusesOtherFolders(t *testing.T) {
	m, err := newManager(Config{}, fakeV2(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, uid := range []types.UID{"", "../x", "a/b", ".."} {
		if err := m.End(t.Context(), uid); err == nil {
			t.Errorf("End(%q) = nil, want an error", uid)
		}
		if _, err := m.Ensure(podWith(string(uid))); err == nil {
			t.Errorf("Ensure(%q) = nil, want an error", uid)
		}
	}
}

// TestRealHierarchies makes, limits, lists and removes groups on this machine.
func TestRealHierarchies(t *testing.T) {
	testenv.Need(t, "root")
	m, err := New(Config{Parent: "/holdfast-test-" + number(int64(os.Getpid())), NodeMilliCPU: 2000})
	if err != nil {
		t.Skipf("no cgroups: %v", err)
	}
	t.Cleanup(func() {
		if err := m.RemoveAll(); err != nil {
			t.Error(err)
		}
		for _, mount := range m.tree.mounts() {
			if _, err := os.Stat(filepath.Join(mount, m.cfg.Parent)); !os.IsNotExist(err) {
				t.Errorf("%s%s is still there: %v", mount, m.cfg.Parent, err)
			}
		}
	})

	var groups []string
	for _, pod := range []*v1.Pod{podWith("g", guaranteed), podWith("b1", bound), podWith("b2", asksOnly), podWith("e", nothing)} {
		group, err := m.Ensure(pod)
		if err != nil {
			t.Fatal(err)
		}
		again, err := m.Ensure(pod)
		if err != nil || again != group {
			t.Fatalf("second Ensure = %q, %v, want %q", again, err, group)
		}
		groups = append(groups, strings.TrimPrefix(group, m.cfg.Parent))
	}
	wantGroups := []string{"/kubepods/podg", "/kubepods/burstable/podb1", "/kubepods/burstable/podb2", "/kubepods/besteffort/pode"}
	if diff := cmp.Diff(wantGroups, groups); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
	if !m.V2() {
		burstable := m.cfg.Parent + "/kubepods/burstable"
		for _, want := range [][4]string{
			{"cpu", burstable, "cpu.shares", "358"},
			{"cpu", burstable + "/podb1", "cpu.cfs_quota_us", "200000"},
			{"cpu", burstable + "/podb2", "cpu.cfs_quota_us", "-1"},
			{"memory", burstable + "/podb1", "memory.limit_in_bytes", "1073741824"},
			{"pids", burstable + "/podb1", "pids.max", "max"},
		} {
			if _, ok := m.tree.dirs[want[0]]; !ok {
				continue
			}
			if got := m.tree.value(t, want[0], want[1], want[2]); got != want[3] {
				t.Errorf("%s of %s = %q, want %q", want[2], want[1], got, want[3])
			}
		}
	}

	uids, err := m.List()
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(uids)
	if diff := cmp.Diff([]types.UID{"b1", "b2", "e", "g"}, uids); diff != "" {
		t.Errorf("List (-want +got):\n%s", diff)
	}

	process := sleepIn(t, m, "/kubepods/podg")
	died := make(chan error, 1)
	go func() { died <- process.Wait() }()
	for _, uid := range []types.UID{"g", "b1", "never-was"} {
		if err := m.End(t.Context(), uid); err != nil {
			t.Errorf("End(%s): %v", uid, err)
		}
	}
	if err := <-died; err == nil || err.Error() != "signal: killed" {
		t.Errorf("the process of pod g ended with %v, want it killed", err)
	}
	uids, err = m.List()
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(uids)
	if diff := cmp.Diff([]types.UID{"b2", "e"}, uids); diff != "" {
		t.Errorf("List after End (-want +got):\n%s", diff)
	}

	if _, err := m.Ensure(podWith("g2", guaranteed)); err != nil {
		t.Fatal(err)
	}
	process = sleepIn(t, m, "/kubepods/podg2")
	sweep := func(want ...types.UID) {
		t.Helper()
		if err := m.Sweep(func(uid types.UID) bool { return uid == "e" }); err != nil {
			t.Error(err)
		}
		uids, err := m.List()
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(uids)
		if diff := cmp.Diff(want, uids); diff != "" {
			t.Errorf("List after Sweep (-want +got):\n%s", diff)
		}
	}
	sweep("e", "g2")
	end(t, process)
	sweep("e")
}

// sleepIn puts a process into a group of each hierarchy that has it.
func sleepIn(t *testing.T, m *Manager, group string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for _, mount := range m.tree.mounts() {
		file := filepath.Join(mount, m.cfg.Parent, group, "inner")
		if _, err := os.Stat(filepath.Dir(file)); err != nil {
			continue
		}
		if err := os.Mkdir(file, 0o755); err != nil {
			t.Fatal(err)
		}
		if !m.V2() && mount == m.tree.dirs["cpuset"] {
			if err := inheritCPUSet(filepath.Dir(file), file); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(file, "cgroup.procs"), []byte(number(int64(cmd.Process.Pid))), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return cmd
}

// end kills a process and waits for its end.
func end(t *testing.T, process *exec.Cmd) {
	t.Helper()
	if err := process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = process.Wait() // ended by the signal
}
