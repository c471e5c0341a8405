package critest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/cri"
	"github.com/holdfast-dev/holdfast/internal/ociimage"
	"github.com/holdfast-dev/holdfast/internal/testenv"
)

const pauseImage = "holdfast.local/contract-pause:v1"

func TestBundledContainerd(t *testing.T) {
	testenv.Need(t, "root", "runtime")
	dir := testenv.RuntimeDir(t)
	s := startContainerd(t, "bundled", dir, dir)
	s.events = true
	contract(t, s)
}

func TestDebianContainerd(t *testing.T) {
	testenv.Need(t, "root", "containerd", "runc", "ctr", "runtime") // the demo program and the CNI plugins are the runtime's
	path, err := exec.LookPath("containerd")
	if err != nil {
		t.Fatal(err)
	}
	contract(t, startContainerd(t, "debian", filepath.Dir(path), testenv.RuntimeDir(t)))
}

// containerd's second format of configuration is what both generations read.
const configText = `version = 2
root = %[1]q
state = %[2]q
imports = []
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.nri.v1.nri"]
[grpc]
  address = %[3]q
[ttrpc]
  address = "%[2]s/ttrpc"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %[4]q
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %[5]q
    conf_dir = %[6]q
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      BinaryName = %[7]q
      Root = "%[2]s/runc"
`

const conflistText = `{"cniVersion": "1.0.0", "name": %[1]q, "plugins": [{
  "type": "bridge", "bridge": %[1]q, "isGateway": true,
  "ipam": {"type": "host-local", "dataDir": %[2]q, "ranges": [[{"subnet": "10.213.%[3]d.0/24"}]]}
}]}`

// startContainerd starts the containerd in bin, with folders, a bridge and a
// cgroup of its own, until the test ends. The demo program and the CNI plugins
// are in extra.
func startContainerd(t *testing.T, name, bin, extra string) subject {
	t.Helper()
	root := t.TempDir()
	state := filepath.Join("/run/holdfast-test", "cri-"+name) // a socket's path must be short
	bridge := "hfcri-" + name
	number := slices.Index([]string{"bundled", "debian"}, name)
	runc, err := exec.LookPath(filepath.Join(bin, "runc"))
	if err != nil {
		if runc, err = exec.LookPath("runc"); err != nil {
			t.Fatal(err)
		}
	}
	socket := filepath.Join(state, "containerd.sock")
	conf := filepath.Join(root, "net.d")
	for path, text := range map[string]string{
		filepath.Join(root, "config.toml"): fmt.Sprintf(configText,
			filepath.Join(root, "root"), state, socket, pauseImage, filepath.Join(extra, "cni"), conf, runc),
		filepath.Join(conf, "10-test.conflist"): fmt.Sprintf(conflistText, bridge, filepath.Join(state, "leases"), number),
	} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	cgroup := "/holdfast-contract-" + name
	t.Cleanup(func() { removeTraces(t, state, bridge, cgroup) })
	runDaemon(t, bin, root)
	endpoint := "unix://" + socket
	conn, err := cri.Dial(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	s := subject{Runtime: cri.New(conn, cri.Config{}), endpoint: endpoint, cgroupParent: cgroup, pause: pauseImage}
	awaitReady(t, s)
	importImages(t, filepath.Join(bin, "ctr"), socket, extra)
	t.Cleanup(func() { removePods(t, s) })
	return s
}

// runDaemon starts containerd and stops it when the test ends. What it says is
// shown if the test fails.
func runDaemon(t *testing.T, bin, root string) {
	t.Helper()
	var log bytes.Buffer
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), filepath.Join(bin, "containerd"), "--config", filepath.Join(root, "config.toml"))
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH")) // its shim is looked for there
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := errors.Join(cmd.Process.Signal(syscall.SIGTERM), cmd.Wait())
		if t.Failed() {
			t.Logf("containerd ended: %v\n%s", err, log.String())
		}
	})
}

func awaitReady(t *testing.T, s subject) {
	t.Helper()
	deadline := time.Now().Add(3 * time.Minute)
	for range time.Tick(50 * time.Millisecond) {
		status, err := s.Status(t.Context())
		ready := err == nil && !slices.ContainsFunc(status.GetStatus().GetConditions(), func(c *runtimeapi.RuntimeCondition) bool {
			return (c.GetType() == runtimeapi.RuntimeReady || c.GetType() == runtimeapi.NetworkReady) && !c.GetStatus()
		})
		if ready {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("containerd is not ready: %v, %v", status, err)
		}
	}
}

// importImages imports the demo and the pause image, both the one program.
func importImages(t *testing.T, ctr, socket, extra string) {
	t.Helper()
	program, err := os.ReadFile(filepath.Join(extra, "demo"))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]ociimage.File{"/demo": {Mode: 0o755, Content: program}}
	for _, image := range []ociimage.Image{
		{Refs: []string{demoImage}, Files: files, Entrypoint: []string{"/demo"}},
		{Refs: []string{pauseImage}, Files: files, Entrypoint: []string{"/demo", "pause"}},
	} {
		var archive bytes.Buffer
		if _, err := ociimage.Build(&archive, image); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), ctr, "--address", socket, "--namespace", "k8s.io", "images", "import", "-")
		cmd.Stdin = &archive
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("import %s: %v\n%s", image.Refs[0], err, out)
		}
	}
}

// removePods removes what failed tests left.
func removePods(t *testing.T, s subject) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	pods, err := s.Pods(ctx)
	if err != nil {
		t.Errorf("clean-up: %v", err)
	}
	for _, p := range pods {
		for _, box := range p.Sandboxes {
			if err := errors.Join(s.StopSandbox(ctx, box.ID), s.RemoveSandbox(ctx, box.ID)); err != nil {
				t.Errorf("clean-up: %v", err)
			}
		}
	}
}

// removeTraces removes what a containerd that has ended leaves on the machine.
func removeTraces(t *testing.T, state, bridge, cgroup string) {
	t.Helper()
	if link, err := netlink.LinkByName(bridge); err == nil {
		if err := netlink.LinkDel(link); err != nil {
			t.Errorf("clean-up: %v", err)
		}
	}
	killShims(t, state)
	if err := os.RemoveAll(state); err != nil {
		t.Errorf("clean-up: %v", err)
	}
	_ = os.Remove(filepath.Dir(state)) // unless others use it
	groups, err := filepath.Glob("/sys/fs/cgroup/*" + cgroup)
	if err != nil {
		t.Error(err)
	}
	for _, group := range append(groups, "/sys/fs/cgroup"+cgroup) {
		var dirs []string
		err := filepath.WalkDir(group, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		for _, dir := range slices.Backward(dirs) {
			if err := os.Remove(dir); err != nil && !strings.Contains(err.Error(), "no such file") {
				t.Errorf("clean-up: %v", err)
			}
		}
	}
}

// killShims kills the shims that a client's death in a start has left: containerd
// knows nothing any more that they would serve.
func killShims(t *testing.T, state string) {
	t.Helper()
	processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range processes {
		line, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(line, []byte("shim")) || !bytes.Contains(line, []byte(state+"/")) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Errorf("clean-up: %v", err)
		}
	}
}
