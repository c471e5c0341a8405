package csidriver_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-dev/holdfast/internal/testenv"
	"github.com/holdfast-dev/holdfast/test/csidriver"
)

// TestSanity runs the interface's own tests of drivers against this one: what it lets
// pass would let an agent pass that real drivers refuse. The program is built from the
// module in sanity/, which nothing else needs.
func TestSanity(t *testing.T) {
	testenv.Need(t, "root", "go")
	program := filepath.Join(t.TempDir(), "csi-sanity")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity")
	build.Dir, build.Env = "sanity", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for name, also := range map[string][]spec.NodeServiceCapability_RPC_Type{
		"as most are": nil,
		"with all":    {spec.NodeServiceCapability_RPC_GET_VOLUME_HEALTH, spec.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			d := csidriver.New(csidriver.Config{Name: "sanity.example.com", Dir: dir, Mount: true, Also: also})
			d.Serve(t)
			cmd := exec.CommandContext(t.Context(), program, "--csi.endpoint", d.Endpoint(), "--ginkgo.no-color",
				"--csi.mountdir", filepath.Join(dir, "mount"), "--csi.stagingdir", filepath.Join(dir, "staging"))
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%v: %s", err, out)
			}
			// So that it is noticed if all is passed over.
			ran := regexp.MustCompile(`Ran (\d+) of \d+ Specs`).FindSubmatch(out)
			if ran == nil {
				t.Fatalf("nothing was run: %s", out)
			}
			n, err := strconv.Atoi(string(ran[1]))
			if err != nil || n < 30 {
				t.Errorf("%d tests were run, %v", n, err)
			}
			t.Logf("%d tests were run", n)
			if left := d.Left(); len(left) > 0 {
				t.Errorf("left: %s", strings.Join(left, ", "))
			}
		})
	}
}
