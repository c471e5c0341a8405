package volumemanager_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
	"github.com/holdfast-dev/holdfast/internal/testenv"
	"github.com/holdfast-dev/holdfast/test/deathpoint"
)

// mortalDir tells a child of TestDiesBetweenSteps where it works.
const mortalDir = "HOLDFAST_TEST_MORTAL_DIR"

// A manager that dies before any of the system calls that change something,
// while it mounts a pod's volumes, updates or unmounts them, leaves what the
// next one can work with: that one gets to all that is wanted, has nothing
// mounted twice, loses nothing that the pod wrote, and then leaves nothing.
func TestDiesBetweenSteps(t *testing.T) {
	if dir := os.Getenv(mortalDir); dir != "" {
		mortal(t, dir)
		return
	}
	testenv.Need(t, "root")
	whole := newMortality(t)
	steps := whole.live(-1)
	whole.check()
	if len(steps) < 50 || whole.seen != "gone" {
		t.Fatalf("a whole life has %d steps and ends with %q: %v", len(steps), whole.seen, steps)
	}
	each := 4
	if os.Getenv("HOLDFAST_FAULTS") == "all" {
		each = 1
	}
	t.Logf("dies before each %d of %d steps", each, len(steps))
	for i := 0; i < len(steps); i += each {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			m := newMortality(t)
			died := m.live(i)
			defer func() {
				if t.Failed() {
					t.Logf("died after it had said %q, before the last of these:\n%s", m.seen, strings.Join(died, "\n"))
				}
			}()
			m.check()
		})
	}
}

// mortality is one life of a manager, and what comes after.
type mortality struct {
	t    *testing.T
	dir  string // the kubelet's
	data string // the local volume's
	seen string // what the manager said last: "", mounted, updated or gone
	pod  *v1.Pod
}

func newMortality(t *testing.T) *mortality {
	m := &mortality{t: t, dir: t.TempDir(), data: t.TempDir(), pod: mortalPod()}
	for _, name := range []string{"a", "b", "below/c"} {
		file := filepath.Join(m.data, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte("kept"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// mortalPod has every kind of volume whose way to the disk is one of its own.
func mortalPod() *v1.Pod {
	pod := fourVolumes("a")
	pod.Labels = map[string]string{"l": "x"}
	pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: new(int64(4321)), FSGroupChangePolicy: new(v1.FSGroupChangeOnRootMismatch)}
	info := v1.Volume{Name: "info", VolumeSource: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: []v1.DownwardAPIVolumeFile{
		{Path: "in/labels", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.labels"}},
	}}}}
	pod.Spec.Volumes = append(pod.Spec.Volumes, info, claimed("a", "data").Spec.Volumes[0])
	return pod
}

// parts are the pod's subPaths.
func parts() []podvolumes.SubPath {
	return []podvolumes.SubPath{
		{PodUID: "a", Container: "app", Index: 0, Volume: "disk", Path: "sub"},
		{PodUID: "a", Container: "app", Index: 1, Volume: "data", Path: "below/c"},
	}
}

// live runs a manager that dies before a step, and returns its steps.
func (m *mortality) live(before int) []string {
	m.t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestDiesBetweenSteps$", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), mortalDir+"="+m.dir+":"+m.data)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		m.t.Fatal(err)
	}
	said := &bytes.Buffer{}
	cmd.Stdout = writer(func(p []byte) {
		said.Write(p)
		for line := range strings.Lines(string(p)) {
			m.hear(strings.TrimSpace(line), stdin)
		}
	})
	result, err := deathpoint.Run(deathpoint.Config{Cmd: cmd, Dir: m.dir, Before: before})
	if err != nil {
		m.t.Fatalf("%v; it said:\n%s", err, said)
	}
	return result.Steps
}

// A writer gets what a process prints, each print at once.
type writer func(p []byte)

func (w writer) Write(p []byte) (int, error) {
	w(p)
	return len(p), nil
}

// hear takes a word of the manager's and lets it go on.
func (m *mortality) hear(word string, answer io.Writer) {
	switch word {
	case "mounted": // the pod runs, and writes
		for _, volume := range []string{"kubernetes.io~empty-dir/disk", "kubernetes.io~empty-dir/memory"} {
			if err := os.WriteFile(filepath.Join(m.dir, "pods/a/volumes", volume, "mine"), []byte("written"), 0o600); err != nil {
				m.t.Error(err)
			}
		}
	case "updated", "gone":
	default:
		return // of the test framework
	}
	m.seen = word
	_, _ = io.WriteString(answer, "go on\n") // fails if it has died
}

// mortal is what the child does.
func mortal(t *testing.T, dirs string) {
	dir, data, _ := strings.Cut(dirs, ":")
	if err := deathpoint.Arm(); err != nil {
		t.Fatal(err)
	}
	stdin := bufio.NewReader(os.Stdin)
	say := func(word string) {
		fmt.Println(word)
		if _, err := stdin.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	n := newNodeIn(t, dir)
	n.put("settings", "1")
	n.putClaim("data", data)
	n.mount(mortalPod())
	for _, part := range parts() {
		if _, err := n.SubPath(t.Context(), part); err != nil {
			t.Fatal(err)
		}
	}
	say("mounted")
	n.put("settings", "2")
	n.eventually(filepath.Join(n.Paths("a")["config"], "key"), "2")
	n.eventually(filepath.Join(n.Paths("a")["secret"], "key"), "2")
	say("updated")
	n.unmount("a")
	n.sweep()
	say("gone")
}

// check has the next manager work on what the last one left.
func (m *mortality) check() {
	m.t.Helper()
	n := newNodeIn(m.t, m.dir)
	n.put("settings", "2")
	n.putClaim("data", m.data)
	if m.seen == "" || m.seen == "mounted" {
		n.mount(m.pod)
		m.checkMounted(n)
	}
	n.unmount("a")
	n.sweep()
	for _, name := range []string{"a", "b", "below/c"} {
		n.eventually(filepath.Join(m.data, name), "kept")
	}
	if left, err := os.ReadDir(m.data); err != nil || len(left) != 3 {
		m.t.Errorf("the local volume has %v, %v", left, err)
	}
	if left, err := os.ReadDir(m.dir); err != nil || len(left) != 1 {
		m.t.Errorf("the kubelet's folder has %v, %v", left, err)
	}
}

// checkMounted looks whether the pod has all that it wants.
func (m *mortality) checkMounted(n *node) {
	m.t.Helper()
	paths := n.Paths("a")
	n.eventually(filepath.Join(paths["config"], "key"), "2")
	n.eventually(filepath.Join(paths["secret"], "key"), "2")
	n.eventually(filepath.Join(paths["info"], "in/labels"), `l="x"`)
	if m.seen == "mounted" {
		n.eventually(filepath.Join(paths["disk"], "mine"), "written")
		n.eventually(filepath.Join(paths["memory"], "mine"), "written")
	}
	for _, path := range []string{paths["disk"], paths["memory"], paths["data"], filepath.Join(m.data, "a"), filepath.Join(m.data, "below/c")} {
		var stat unix.Stat_t
		if err := unix.Lstat(path, &stat); err != nil || stat.Gid != 4321 {
			m.t.Errorf("%s has group %d, %v", path, stat.Gid, err)
		}
	}
	if info, err := os.Stat(paths["disk"]); err != nil || info.Mode() != os.ModeDir|os.ModeSetgid|0o777 {
		m.t.Errorf("the emptyDir has mode %v, %v", info.Mode(), err)
	}
	var targets []string
	for _, part := range parts() {
		target, err := n.SubPath(m.t.Context(), part)
		if err != nil {
			m.t.Fatal(err)
		}
		targets = append(targets, target)
	}
	n.eventually(targets[1], "kept")
	want := slices.Sorted(slices.Values(append(targets, paths["memory"], paths["secret"], paths["info"], paths["data"])))
	got := n.mounts()
	slices.Sort(got)
	if diff := cmp.Diff(got, want); diff != "" {
		m.t.Errorf("mounts (-got +want):\n%s", diff)
	}
}
