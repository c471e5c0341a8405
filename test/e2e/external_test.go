package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/podnet"
	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// A hostRuntime is the distribution's containerd, started with folders of its
// own, as an administrator would have set it up: another network, another place.
type hostRuntime struct {
	dir, socket, bridge string
}

const hostRuntimeConfig = `version = 2
root = "%[1]s/root"
state = "%[2]s/state"
oom_score = 0
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
  address = "%[2]s/c.sock"
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
  sandbox_image = "%[3]s"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "%[4]s"
    conf_dir = "%[1]s/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
`

const hostRuntimeNetwork = `{"cniVersion": "0.4.0", "name": %[1]q, "plugins": [
  {"type": "bridge", "bridge": %[1]q, "isGateway": true, "ipMasq": false,
   "ipam": {"type": "host-local", "dataDir": %[2]q, "ranges": [[{"subnet": %[3]q}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}, "snat": true}
]}`

// startHostRuntime starts it with a sandbox image of the given name, which it
// does not have.
func startHostRuntime(t *testing.T, sandboxImage string) hostRuntime {
	t.Helper()
	testenv.Need(t, "root", "containerd", "runc", "ip")
	run1, err := os.MkdirTemp("/run", "hf-e2e-") //nolint:usetesting // short: sockets are in it
	if err != nil {
		t.Fatal(err)
	}
	r := hostRuntime{dir: t.TempDir(), socket: filepath.Join(run1, "c.sock"), bridge: fmt.Sprintf("hfx%d", os.Getpid())}
	used, err := podnet.UsedSubnets("")
	if err != nil {
		t.Fatal(err)
	}
	subnet, err := podnet.FreeSubnet(append(used, podnet.Used{Prefix: netip.MustParsePrefix("10.77.0.0/16"), By: "nodes under test"}))
	if err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{
		"config.toml":           fmt.Sprintf(hostRuntimeConfig, r.dir, run1, sandboxImage, mustAbs(filepath.Join(binDir, "runtime", "cni"))),
		"net.d/10-own.conflist": fmt.Sprintf(hostRuntimeNetwork, r.bridge, run1+"/leases", subnet),
	} {
		path = filepath.Join(r.dir, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		// What a test that failed may have left: shims and what they lead.
		killAll(t, func() []int {
			var left []int
			for _, shim := range pidsOf(t, r.socket) {
				data, err := os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", shim))
				if err != nil {
					continue // it has ended
				}
				for word := range strings.FieldsSeq(string(data)) {
					if name, err := run(t, "", "ip", "netns", "identify", word); err == nil && strings.TrimSpace(name) != "" {
						_, _ = run(t, "", "ip", "netns", "delete", strings.TrimSpace(name)) // of another container of the pod
					}
					if pid, err := strconv.Atoi(word); err == nil && alive(pid) {
						left = append(left, pid)
					}
				}
				left = append(left, shim)
			}
			return left
		})
		(&node{t: t}).eventually("nothing is mounted", func() error { return errors.Join(unmountBelow(run1), unmountBelow(r.dir)) })
		_, _ = run(t, "", "ip", "link", "delete", r.bridge) // no pod made it
		if err := os.RemoveAll(run1); err != nil {
			t.Error(err)
		}
	})
	r.start(t)
	return r
}

// start starts containerd; it is stopped when the test ends.
func (r hostRuntime) start(t *testing.T) {
	t.Helper()
	var log bytes.Buffer
	cmd := exec.Command("containerd", "--config", filepath.Join(r.dir, "config.toml"))
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // the test may have ended it
		err := cmd.Wait()
		if t.Failed() {
			out := log.String()
			t.Logf("containerd ended: %v\n%s", err, out[max(0, len(out)-8000):])
		}
	})
}

// pid returns the process of the running containerd.
func (r hostRuntime) pid(t *testing.T) int {
	t.Helper()
	pids := pidsOf(t, filepath.Join(r.dir, "config.toml"))
	if len(pids) != 1 {
		t.Fatalf("containerd is processes %v", pids)
	}
	return pids[0]
}

func (r hostRuntime) ctr(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	out, err := run(t, stdin, "ctr", append([]string{"--address", r.socket, "--namespace", "k8s.io"}, args...)...)
	if err != nil {
		t.Fatalf("ctr %v: %s", args, out)
	}
	return out
}

// TestHostRuntime runs a node on the distribution's containerd 1.6, which has no
// events and none of our images.
func TestHostRuntime(t *testing.T) {
	t.Parallel()
	whole := t
	runtime := startHostRuntime(t, "holdfast.local/pause:1")
	n := newNode(t)
	n.flags = []string{"--container-runtime-endpoint", "unix://" + runtime.socket}
	n.up()
	n.write("web.yaml", servePod("web", "{containerPort: 8080, hostPort: 18070}")+`      readinessProbe: {httpGet: {port: 8080, path: /healthz}, periodSeconds: 1}
      livenessProbe: {exec: {command: [/demo, ls, /]}, periodSeconds: 1}
`)

	step(t, "a missing pause image is explained", func(t *testing.T) {
		n.t = t
		n.eventually("the event says what to do", func() error {
			return wants(n.kubectl("get", "events"), "FailedCreatePodSandBox", "holdfast.local/pause:1", "holdfast export-image pause")
		})
		for _, name := range []string{"pause", "demo"} {
			file := filepath.Join(t.TempDir(), "image.tar")
			n.holdfast("export-image", name, file)
			runtime.ctr(t, "", "images", "import", file)
		}
	})

	var before string
	step(t, "a pod runs, with probes, logs, exec and a host port", func(t *testing.T) {
		n.t = t
		before = containers(n.running("web-edge-1"))
		n.eventually("logs", func() error { return wants(n.kubectl("logs", "web-edge-1"), "8080") })
		if err := wants(n.kubectl("exec", "web-edge-1", "--", "/demo", "echo", "here I am"), "here I am"); err != nil {
			t.Error(err)
		}
		n.eventually("the host port", func() error {
			out, err := fetch(t, "http://127.0.0.1:18070/")
			return errors.Join(err, wants(out, "hello from web"))
		})
	})

	step(t, "a container that ends is started again", func(t *testing.T) {
		n.t = t
		n.write("ends.yaml", strings.Replace(servePod("ends"), "[serve]", `[sleep, "1"]`, 1))
		n.eventually("two starts", func() error {
			pod := n.pod("ends-edge-1")
			if pod == nil || len(pod.Status.ContainerStatuses) == 0 || pod.Status.ContainerStatuses[0].RestartCount < 1 {
				return errors.New("not yet")
			}
			return nil
		})
		n.remove("ends.yaml")
		n.eventually("the pod goes", func() error {
			if n.pod("ends-edge-1") != nil {
				return errors.New("it is there")
			}
			return nil
		})
	})

	step(t, "another agent takes over", func(t *testing.T) {
		n.t = t
		kill(t, n.report().PID)
		n.up()
		if got := containers(n.running("web-edge-1")); got != before {
			t.Errorf("containers changed:\n%swant\n%s", got, before)
		}
	})

	step(t, "the runtime is restarted below the agent", func(t *testing.T) {
		n.t = t
		kill(t, runtime.pid(t))
		runtime.start(whole)
		n.eventually("exec works", func() error {
			out, err := n.tryKubectl("", "exec", "web-edge-1", "--", "/demo", "echo", "here I am")
			return errors.Join(err, wants(out, "here I am"))
		})
		if got := containers(n.running("web-edge-1")); got != before {
			t.Errorf("containers changed:\n%swant\n%s", got, before)
		}
	})

	step(t, "the runtime hangs", func(t *testing.T) {
		n.t = t
		pid := runtime.pid(t)
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		n.eventually("the node says so", func() error {
			out, err := n.try("status")
			if err == nil {
				return errors.New("status exits 0")
			}
			return wants(out, "container runtime is down")
		})
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		n.eventually("nothing is wrong", func() error {
			_, err := n.try("status")
			return err
		})
	})

	step(t, "down stops the pods and leaves the runtime", func(t *testing.T) {
		n.t = t
		n.holdfast("down")
		if out := runtime.ctr(t, "", "tasks", "list", "-q"); strings.TrimSpace(out) != "" {
			t.Errorf("still running: %s", out)
		}
		n.up()
		n.running("web-edge-1")
	})

	step(t, "uninstall takes the pods off the runtime and nothing else", func(t *testing.T) {
		n.t = t
		n.holdfast("uninstall", "--yes")
		if out := runtime.ctr(t, "", "containers", "list", "-q"); strings.TrimSpace(out) != "" {
			t.Errorf("left on the runtime: %s", out)
		}
		if out := runtime.ctr(t, "", "images", "list", "-q"); !strings.Contains(out, "holdfast.local/demo:latest") {
			t.Errorf("images of the runtime: %s", out)
		}
		for _, rule := range takeInventory(t).Rules {
			if regexp.MustCompile(`\b18070\b`).MatchString(rule) {
				t.Errorf("left in the firewall: %s", rule)
			}
		}
	})
	n.t = t
}
