package controlplane

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// runEnv makes the test binary a program that runs a control plane in the
// folder that it names, for TestDiesWithItsProcess.
const runEnv = "HOLDFAST_TEST_CONTROLPLANE_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(runEnv); dir != "" {
		if err := runAndFreeze(dir); err != nil {
			fmt.Println(err)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// runAndFreeze runs a control plane, freezes its API server, prints the
// processes' ids in a line, and waits.
func runAndFreeze(dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := New(Config{Dir: dir, Program: os.Getenv("HOLDFAST_CONTROLPLANE")})
	if err != nil {
		return err
	}
	go func() {
		<-c.Ready()
		if err := c.FreezeComponent(APIServer); err != nil {
			fmt.Println(err)
		}
		fmt.Println("pids", pids(c))
	}()
	return c.Run(ctx)
}

func pids(c *Cluster) string {
	var out []string
	for _, name := range components {
		if p := c.process(name); p != nil {
			out = append(out, fmt.Sprint(p.cmd.Process.Pid))
		}
	}
	return strings.Join(out, " ")
}

// TestDiesWithItsProcess kills a process that runs a control plane: no
// component outlives it, not even one that is frozen.
func TestDiesWithItsProcess(t *testing.T) {
	program := testenv.ControlPlane(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), runEnv+"="+t.TempDir(), "HOLDFAST_CONTROLPLANE="+program)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() || !strings.HasPrefix(lines.Text(), "pids ") {
		t.Errorf("the process said %q (%v)", lines.Text(), lines.Err())
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait() // killed
	components := strings.Fields(strings.TrimPrefix(lines.Text(), "pids "))
	if len(components) != 4 {
		t.Fatalf("components %q, want 4", components)
	}
	for _, pid := range components {
		awaitEnd(t, pid)
	}
}

// awaitEnd waits until a process has ended, as a zombie or altogether.
func awaitEnd(t *testing.T, pid string) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		data, err := os.ReadFile("/proc/" + pid + "/stat")
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) || strings.Contains(string(data), ") Z ") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %s still runs: %s", pid, data)
		}
		time.Sleep(healthPause)
	}
}

func TestConfigIsChecked(t *testing.T) {
	good := Config{Dir: "/tmp/x", Program: "/bin/sh", ServiceCIDR: "10.96.0.0/16", Address: "192.0.2.7"}
	if err := good.validate(); err != nil {
		t.Errorf("a good configuration: %v", err)
	}
	for _, tc := range []struct {
		name, want string
		change     func(*Config)
	}{
		{"no folder", "no folder", func(c *Config) { c.Dir = "" }},
		{"long path", "choose a shorter folder", func(c *Config) { c.Dir = "/" + strings.Repeat("x", 100) }},
		{"no program", "make bin/tools/controlplane", func(c *Config) { c.Program = "/nowhere" }},
		{"loopback", `address "127.0.0.1"`, func(c *Config) { c.Address = "127.0.0.1" }},
		{"any address", `address "0.0.0.0"`, func(c *Config) { c.Address = "0.0.0.0" }},
		{"IPv6", `address "fd00::1"`, func(c *Config) { c.Address = "fd00::1" }},
		{"service range", `service CIDR "x"`, func(c *Config) { c.ServiceCIDR = "x" }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := good
			tc.change(&cfg)
			if err := cfg.validate(); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q in it", err, tc.want)
			}
		})
	}
}
