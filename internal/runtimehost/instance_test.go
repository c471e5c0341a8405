package runtimehost

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/holdfast-dev/holdfast/internal/podnet"
	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// claimed are the subnets of this test's instances that have no bridge yet.
var claimed struct {
	sync.Mutex
	subnets []podnet.Used
}

// testConfig returns an instance of the test's own, removed when the test ends.
func testConfig(t *testing.T, id string) Config {
	t.Helper()
	testenv.Need(t, "root", "iptables")
	used, err := podnet.UsedSubnets("")
	if err != nil {
		t.Fatal(err)
	}
	claimed.Lock()
	defer claimed.Unlock()
	subnet, err := podnet.FreeSubnet(append(used, claimed.subnets...))
	if err != nil {
		t.Fatal(err)
	}
	claimed.subnets = append(claimed.subnets, podnet.Used{Prefix: subnet, By: id})
	cfg := Config{
		RootDir:      filepath.Join(t.TempDir(), "root"),
		RunDir:       "/run/holdfast-test/" + id,
		InstanceID:   id,
		RuntimeDir:   testenv.RuntimeDir(t),
		Bridge:       "hf-" + id,
		Subnet:       subnet,
		CgroupParent: "/holdfast-" + id,
		Log:          slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	t.Cleanup(func() {
		if _, err := New(cfg).Remove(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("clean-up: %v", err)
		}
	})
	return cfg
}

// run starts a Host and waits until it is ready. The returned function stops it,
// as SIGTERM does, and waits for it.
func run(t *testing.T, cfg Config) (h *Host, stop func()) {
	t.Helper()
	h = New(cfg)
	return h, start(t, h)
}

func start(t *testing.T, h *Host) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	select {
	case <-h.Ready():
	case err := <-ended:
		cancel()
		t.Fatalf("Run: %v", err)
	}
	return sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// A node is a CRI client of one instance.
type node struct {
	t   *testing.T
	cfg Config
	runtimeapi.RuntimeServiceClient
	images  runtimeapi.ImageServiceClient
	handler string // of new pods; empty: the default one
}

func dial(t *testing.T, h *Host) node {
	t.Helper()
	conn, err := h.connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return node{t, h.cfg, runtimeapi.NewRuntimeServiceClient(conn), runtimeapi.NewImageServiceClient(conn), ""}
}

// pod starts a pod with one demo container and returns their IDs and its address.
func (n node) pod(name string, ports []*runtimeapi.PortMapping, args ...string) (sandbox, container, ip string) {
	n.t.Helper()
	ctx := n.t.Context()
	podConfig := &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "default", Uid: name},
		Hostname:     name,
		LogDirectory: filepath.Join(n.cfg.RootDir, "podlogs", name),
		PortMappings: ports,
		Linux:        &runtimeapi.LinuxPodSandboxConfig{CgroupParent: n.cfg.CgroupParent + "/" + name},
	}
	if err := os.MkdirAll(podConfig.LogDirectory, 0o755); err != nil {
		n.t.Fatal(err)
	}
	pod, err := n.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: podConfig, RuntimeHandler: n.handler})
	if err != nil {
		n.t.Fatal(err)
	}
	made, err := n.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: pod.PodSandboxId,
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "demo"},
			Image:    &runtimeapi.ImageSpec{Image: DemoImage},
			Args:     args,
			LogPath:  "demo.log",
		},
		SandboxConfig: podConfig,
	})
	if err != nil {
		n.t.Fatal(err)
	}
	if _, err := n.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: made.ContainerId}); err != nil {
		n.t.Fatal(err)
	}
	got, err := n.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: pod.PodSandboxId})
	if err != nil {
		n.t.Fatal(err)
	}
	return pod.PodSandboxId, made.ContainerId, got.GetStatus().GetNetwork().GetIp()
}

func (n node) removePod(sandbox string) {
	n.t.Helper()
	_, err1 := n.StopPodSandbox(n.t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: sandbox})
	_, err2 := n.RemovePodSandbox(n.t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sandbox})
	if err := errors.Join(err1, err2); err != nil {
		n.t.Fatal(err)
	}
}

// running waits for an answer about the container and checks that it runs. A
// call that a dying containerd takes with it is made again.
func (n node) running(t *testing.T, container string) {
	t.Helper()
	for {
		resp, err := n.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: container}, grpc.WaitForReady(true))
		if status.Code(err) == codes.Unavailable {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := resp.GetStatus().GetState(); got != runtimeapi.ContainerState_CONTAINER_RUNNING {
			t.Errorf("container: got %v", got)
		}
		return
	}
}

func (n node) exec(container string, cmd ...string) (string, error) {
	n.t.Helper()
	resp, err := n.ExecSync(n.t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: container, Cmd: cmd, Timeout: 10})
	if err != nil {
		return "", err
	}
	if resp.GetExitCode() != 0 {
		return "", fmt.Errorf("exit code %d: %s", resp.GetExitCode(), resp.GetStderr())
	}
	return string(resp.GetStdout()), nil
}

// get asks url until it answers: a server needs a moment to listen.
func get(t *testing.T, url string) string {
	t.Helper()
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err == nil {
			defer resp.Body.Close()
			var b strings.Builder
			if err := resp.Write(&b); err != nil {
				t.Fatal(err)
			}
			return b.String()
		}
		select {
		case <-t.Context().Done():
			t.Fatal(err)
		case <-time.After(20 * time.Millisecond):
			if d, ok := t.Deadline(); ok && time.Until(d) < time.Minute {
				t.Fatal(err)
			}
		}
	}
}

func containerdPID(t *testing.T, cfg Config) int {
	t.Helper()
	found, err := cfg.findContainerd()
	if err != nil || len(found) != 1 {
		t.Fatalf("got %d containerds, %v; want 1", len(found), err)
	}
	if err := found[0].close(); err != nil {
		t.Fatal(err)
	}
	return found[0].pid
}

// traces returns what of an instance, or of containerd, is on the host.
func traces(t *testing.T, cfg Config) []string {
	t.Helper()
	var found []string
	for _, path := range []string{
		cfg.containerdDir(), cfg.cniDir(), cfg.RunDir, filepath.Dir(cfg.RunDir), cfg.logFile(),
		"/run/containerd", "/var/run/netns", "/etc/cni", "/etc/containerd", "/opt/cni", "/opt/containerd", "/var/lib/containerd", "/var/lib/cni",
	} {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			found = append(found, path)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, cfg.RunDir) || strings.Contains(line, cfg.RootDir) {
			found = append(found, line)
		}
	}
	links, err := netlink.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		found = append(found, l.Type()+" "+l.Attrs().Name)
	}
	procs, err := find(func(argv []string) bool {
		return slices.ContainsFunc(argv, func(a string) bool {
			return strings.Contains(a, cfg.RunDir) || strings.Contains(a, cfg.RootDir) || strings.HasPrefix(a, "/demo") || strings.HasPrefix(a, "/pause")
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range procs {
		found = append(found, fmt.Sprint("process ", p.pid))
		_ = p.close()
	}
	cache, err := filepath.Glob(filepath.Join(cniCache, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.Concat(found, cache, cfg.cgroups())
}
