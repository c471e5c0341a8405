package runtimehost

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// beginNetwork makes a network for a sandbox, as a containerd does that is killed
// before it has noted the sandbox.
func beginNetwork(t *testing.T, cfg Config, id string) (netns string) {
	t.Helper()
	netns = filepath.Join(cfg.RunDir, "containerd", "io.containerd.grpc.v1.cri", "netns", "cni-"+id[:8])
	if err := os.WriteFile(netns, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "unshare", "--net="+netns, "true").CombinedOutput(); err != nil {
		t.Fatalf("unshare: %v: %s", err, out)
	}
	var result json.RawMessage
	for _, plugin := range cfg.plugins(0) {
		plugin["cniVersion"], plugin["name"] = cniVersion, cfg.network()
		if result != nil {
			plugin["prevResult"] = result
			plugin["runtimeConfig"] = object{"portMappings": []object{{"hostPort": 18098, "containerPort": 80, "protocol": "tcp"}}}
		}
		config, err := json.Marshal(plugin)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), cfg.program("cni/"+plugin["type"].(string)))
		cmd.Env = append(os.Environ(), "CNI_COMMAND=ADD", "CNI_CONTAINERID="+id, "CNI_IFNAME=eth0", "CNI_NETNS="+netns, "CNI_PATH="+cfg.program("cni"))
		cmd.Stdin = bytes.NewReader(config)
		if result, err = cmd.Output(); err != nil {
			t.Fatalf("%s: %v: %s", plugin["type"], err, result)
		}
	}
	return netns
}

// network returns everything of a sandbox's network that is there, by its ID.
func network(t *testing.T, cfg Config, id string) string {
	t.Helper()
	var found []string
	leases, err := filepath.Glob(filepath.Join(cfg.leases(), cfg.network(), "*.*.*.*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range leases {
		if data, _ := os.ReadFile(path); strings.HasPrefix(string(data), id) {
			found = append(found, "lease")
		}
	}
	rules, err := exec.CommandContext(t.Context(), "iptables", "-w", "-t", "nat", "-S").Output()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(rules), id) {
		found = append(found, "rules")
	}
	return strings.Join(found, " ")
}

// TestNetworksAreTakenBack kills containerd where it has made a network and not
// noted the sandbox. The next one gives that back, and nothing of a pod that it
// knows.
func TestNetworksAreTakenBack(t *testing.T) {
	testenv.Need(t, "unshare")
	cfg := testConfig(t, "begun")
	h, stop := run(t, cfg)
	defer stop()
	n := dial(t, h)
	sandbox, container, _ := n.pod("web", nil, "serve")
	lost := strings.Repeat("0123456789abcdef", 4)
	netns := beginNetwork(t, cfg, lost)
	if got := network(t, cfg, lost); got != "lease rules" {
		t.Fatalf("begun: %q", got)
	}
	if err := syscall.Kill(containerdPID(t, cfg), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is given back", func() error {
		if got := network(t, cfg, lost); got != "" {
			return errors.New(got)
		}
		if _, err := os.Stat(netns); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s: %w", netns, err)
		}
		return nil
	})
	n.running(t, container)
	if got := network(t, cfg, sandbox); got != "lease" {
		t.Errorf("network of the pod that runs: %q", got)
	}
}

func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// shimOf returns the process ID of a sandbox's shim, 0 if there is none.
func shimOf(t *testing.T, cfg Config, sandbox string) (pid int) {
	t.Helper()
	shims, err := cfg.findShims()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range shims {
		if cmdline, _ := os.ReadFile(procPath(p.pid, "cmdline")); strings.Contains(string(cmdline), sandbox) {
			pid = p.pid
		}
		if err := p.close(); err != nil {
			t.Error(err)
		}
	}
	return pid
}

// TestForgottenShims takes the folders by which containerd finds shims. One without
// containers is ended; one that still has some is left alone, and so is one that
// containerd knows.
func TestForgottenShims(t *testing.T) {
	cfg := testConfig(t, "shims")
	h, stop := run(t, cfg)
	n := dial(t, h)
	known, container, _ := n.pod("known", nil, "serve")
	full, _, _ := n.pod("full", nil, "serve")
	empty, _, _ := n.pod("empty", nil, "serve")
	fullShim, emptyShim := shimOf(t, cfg, full), shimOf(t, cfg, empty)
	if fullShim == 0 || emptyShim == 0 {
		t.Fatal("there are no shims")
	}
	stop()
	if err := syscall.Kill(containerdPID(t, cfg), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for _, sandbox := range []string{full, empty} {
		bundle := filepath.Join(cfg.RunDir, "containerd", "io.containerd.runtime.v2.task", "k8s.io", sandbox)
		if err := os.Rename(bundle, filepath.Join(cfg.RunDir, sandbox)); err != nil {
			t.Fatal(err)
		}
	}
	inside, err := childrenOf(emptyShim)
	if err != nil || len(inside) == 0 {
		t.Fatalf("processes of the pod: %v, %v", inside, err)
	}
	for _, pid := range inside {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	h = New(cfg)
	h.shimPeriod = 100 * time.Millisecond
	defer start(t, h)()
	eventually(t, "the shim without containers is ended", func() error {
		if pid := shimOf(t, cfg, empty); pid != 0 {
			return fmt.Errorf("process %d", pid)
		}
		return nil
	})
	if pid := shimOf(t, cfg, full); pid != fullShim {
		t.Errorf("the shim that has containers is process %d, want %d", pid, fullShim)
	}
	if shimOf(t, cfg, known) == 0 {
		t.Error("a shim that containerd knows was ended")
	}
	n.running(t, container)
}
