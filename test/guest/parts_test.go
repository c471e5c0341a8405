package guest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/testenv"
	"github.com/holdfast-dev/holdfast/test/guest"
	"github.com/holdfast-dev/holdfast/test/guest/wire"
	"github.com/holdfast-dev/holdfast/test/hostgaps"
)

// A part is a package whose tests run in the machine too, or those of them that
// run matches.
type part struct {
	pkg, run string
}

// covers reports whether the part runs every test of a file.
func (p part) covers(file []byte) bool {
	run := regexp.MustCompile(p.run)
	for _, test := range testFunc.FindAllSubmatch(file, -1) {
		if !run.Match(test[1]) {
			return false
		}
	}
	return true
}

var testFunc = regexp.MustCompile(`(?m)^func (Test\w+)\(`)

// parts are those that a host may leave to the guest, and those that its cgroup v2
// makes different.
var parts = []part{
	{pkg: "internal/testenv"},
	{pkg: "internal/projectquota"},
	{pkg: "internal/cgroupfs"},
	{pkg: "internal/kubelet/podcgroup"},
	{pkg: "internal/kubelet/hoststats"},
	{pkg: "internal/kubelet/podsync", run: "TestRealRuntime"},
	{pkg: "internal/kubelet"},
	{pkg: "internal/kubelet/volumeplugin", run: "TestNFS|TestParseNFS|TestHugePages|TestMeasure|TestQuota|TestGrowExt4"},
	{pkg: "internal/podnet"},
	{pkg: "internal/runtimehost"},
	{pkg: "internal/kubelet/cri/critest", run: "TestBundledContainerd"},
}

// TestParts runs tests of packages under cgroup v2, on disks with project quota.
func TestParts(t *testing.T) {
	testenv.Need(t, "runtime", "qemu-system-x86_64")
	table, err := hostgaps.Read(filepath.Join("..", "host-gaps.txt"))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"/opt/holdfast/runtime": testenv.RuntimeDir(t)}
	programs := t.TempDir()
	for _, p := range parts {
		name := strings.ReplaceAll(p.pkg, "/", "-")
		program := filepath.Join(programs, name)
		if err := guest.Compile(t.Context(), program, "test", "-c", "github.com/holdfast-dev/holdfast/"+p.pkg); err != nil {
			t.Fatal(err)
		}
		dir := "/src/" + p.pkg // where go test would run it
		files[dir+"/test"] = program
		if data := filepath.Join("..", "..", p.pkg, "testdata"); exists(data) {
			files[dir+"/testdata"] = data
		}
	}
	m := newMachine(t, guest.Config{Files: files, Disks: []wire.Disk{
		{MiB: 2048, FS: "ext4", Mount: "/var/tmp"},
		{MiB: 256, FS: "ext4", Mount: "/quota/ext4", Options: "prjquota", MkfsArgs: []string{"-O", "quota,project", "-E", "quotatype=prjquota"}},
		{MiB: 512, FS: "xfs", Mount: "/quota/xfs", Options: "prjquota"},
	}})
	boot(t, m)
	sh(t, m, "touch /etc/resolv.conf") // containerd copies it for a pod that brings none
	for _, p := range parts {
		t.Run(p.pkg, func(t *testing.T) {
			argv := []string{"sh", "-ec", `cd "$0"; exec ./test -test.v -test.run "$1" -test.timeout 20m`, "/src/" + p.pkg, p.run}
			result, err := m.Run(t.Context(), guest.Command{Argv: argv, Timeout: 21 * time.Minute, Env: []string{
				"TMPDIR=/var/tmp", "HOLDFAST_LAYER=guest", "HOLDFAST_RUNTIME_DIR=/opt/holdfast/runtime",
				"HOLDFAST_QUOTA_DIRS=/quota/ext4:/quota/xfs",
			}})
			if err != nil {
				t.Fatal(err)
			}
			if result.Code != 0 || !strings.Contains(result.Stdout, "--- PASS: ") {
				t.Fatalf("exit code %d\n%s\nall, its last part:\n%s", result.Code,
					strings.Join(complaint.FindAllString(result.Stdout, -1), "\n"), tail(result.Stdout+result.Stderr, 30_000))
			}
			for _, skipped := range skips(result.Stdout) {
				missing, _ := hostgaps.Missing(skipped)
				if gap, listed := table.Find("guest", missing); listed {
					t.Logf("not run here either: %s\n%s", gap.Reason, skipped)
					continue
				}
				t.Errorf("skipped, and no gap of host guest in the table:\n%s", skipped)
			}
		})
	}
}

// complaint is the first line of what a test logs: a daemon's log after it may
// be too long to show.
var complaint = regexp.MustCompile(`(?m)^\s+\w+_test\.go:\d+: .*$`)

// tail returns the last n bytes of what a program printed.
func tail(s string, n int) string { return s[max(0, len(s)-n):] }

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

var skipLine = regexp.MustCompile(`^\s*--- SKIP: `)

// skips returns what each skipped test of verbose output said: the line of its
// end, and those before it since the test's start or another's end.
func skips(output string) []string {
	var all []string
	var said strings.Builder
	for line := range strings.Lines(output) {
		if strings.HasPrefix(line, "=== ") {
			said.Reset()
		}
		said.WriteString(line)
		if skipLine.MatchString(line) {
			all = append(all, said.String())
		}
	}
	return all
}

func TestSkips(t *testing.T) {
	const output = `=== RUN   TestA
--- PASS: TestA (0.00s)
=== RUN   TestB
    b_test.go:3: needs root: user id is 7
--- SKIP: TestB (0.00s)
=== RUN   TestC
=== RUN   TestC/part
    c_test.go:9: not today
--- PASS: TestC (0.00s)
    --- SKIP: TestC/part (0.00s)
PASS
`
	got := skips(output)
	if len(got) != 2 || !strings.Contains(got[0], "needs root") || !strings.Contains(got[1], "not today") {
		t.Errorf("skips: %q", got)
	}
}

// TestNothingFallsThrough holds that what a host leaves to the guest does run
// there: every package with a test that needs such a capability is a part.
func TestNothingFallsThrough(t *testing.T) {
	table, err := hostgaps.Read(filepath.Join("..", "host-gaps.txt"))
	if err != nil {
		t.Fatal(err)
	}
	list := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}", "../../internal/...", "../../cmd/...")
	list.Stderr = t.Output()
	dirs, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	top, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	need := regexp.MustCompile(`testenv\.(Need\(.*\)|QuotaDirs)`)
	for dir := range strings.FieldsSeq(string(dirs)) {
		files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		pkg, err := filepath.Rel(top, dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if slices.ContainsFunc(parts, func(p part) bool { return p.pkg == pkg && p.covers(data) }) {
				continue
			}
			for _, call := range need.FindAllString(string(data), -1) {
				for _, gap := range table {
					if gap.Instead == hostgaps.Guest && (strings.Contains(call, `"`+gap.Capability+`"`) || gap.Capability == "projectquota" && strings.HasSuffix(call, "QuotaDirs")) {
						t.Errorf("%s needs %s, which host %s leaves to the guest: add %s to parts", file, gap.Capability, gap.Host, pkg)
					}
				}
			}
		}
	}
}
