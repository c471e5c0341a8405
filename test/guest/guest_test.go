package guest_test

import (
	"os"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/testenv"
	"github.com/holdfast-dev/holdfast/test/guest"
	"github.com/holdfast-dev/holdfast/test/guest/wire"
)

// newMachine returns a machine that does not run yet. Its power is cut when the
// test ends.
func newMachine(t *testing.T, cfg guest.Config) *guest.Machine {
	t.Helper()
	testenv.Need(t, "qemu-system-x86_64", "busybox", "dpkg-deb")
	cfg.Dir = t.TempDir()
	m, err := guest.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.CutPower(); err != nil {
			t.Error(err)
		}
		if !t.Failed() {
			return
		}
		data, err := os.ReadFile(m.ConsoleLog())
		if err != nil {
			t.Error(err)
		}
		t.Logf("console, its last part:\n%s", tail(string(data), 6000))
	})
	return m
}

func boot(t *testing.T, m *guest.Machine) {
	t.Helper()
	if err := m.Boot(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// sh runs a shell script in the machine, which must succeed, and returns what it
// printed.
func sh(t *testing.T, m *guest.Machine, script string) string {
	t.Helper()
	return run(t, m, guest.Command{Argv: []string{"sh", "-ec", script}})
}

// run runs a program in the machine, which must succeed, and returns what it
// printed.
func run(t *testing.T, m *guest.Machine, c guest.Command) string {
	t.Helper()
	result, err := m.Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if result.Code != 0 {
		t.Fatalf("%s: exit code %d\n%s%s", strings.Join(c.Argv, " "), result.Code, result.Stdout, result.Stderr)
	}
	return result.Stdout
}

// TestMachine shows that the machine is what tests take it for.
func TestMachine(t *testing.T) {
	m := newMachine(t, guest.Config{Disks: []wire.Disk{{MiB: 64, FS: "ext4", Mount: "/data"}}})
	boot(t, m)

	if got := sh(t, m, "cat /sys/fs/cgroup/cgroup.controllers"); !strings.Contains(got, "memory") {
		t.Errorf("controllers of cgroup v2: %q", got)
	}
	if got := sh(t, m, "ls /sys/class/net"); got != "lo\n" {
		t.Errorf("network: %q, want the loopback alone", got)
	}
	// What "guest" in the table of host gaps promises.
	sh(t, m, "grep -q Y /sys/module/apparmor/parameters/enabled; test -e /dev/mapper/control; grep -q nfs4 /proc/filesystems")
	sh(t, m, "iptables -t nat -A POSTROUTING -s 10.0.0.0/8 -j MASQUERADE; iptables-save -t nat")

	result, err := m.Run(t.Context(), guest.Command{Argv: []string{"sh", "-c", "cat; echo bad >&2; exit 7"}, Stdin: "in"})
	if err != nil || result != (guest.Result{Stdout: "in", Stderr: "bad\n", Code: 7}) {
		t.Errorf("Run = %+v, %v", result, err)
	}
	if _, err := m.Run(t.Context(), guest.Command{Argv: []string{"nosuch"}}); err == nil {
		t.Error("a program that is not there ran")
	}
	if _, err := m.Run(t.Context(), guest.Command{Argv: []string{"sleep", "1000"}, Timeout: 1}); err == nil {
		t.Error("a program that does not end ended")
	}

	// The one is on its way to the disk, the other is not.
	before := sh(t, m, "echo kept > /data/kept; sync; echo lost > /data/lost; cat /proc/sys/kernel/random/boot_id")
	if err := m.CutPower(); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Run(t.Context(), guest.Command{Argv: []string{"true"}}); err == nil {
		t.Error("a program ran without power")
	}
	boot(t, m)
	if got := sh(t, m, "cd /data; cat lost kept also 2>&- || true"); got != "kept\n" {
		t.Errorf("after the power cut: %q, want what was synced alone", got)
	}

	sh(t, m, "echo also > /data/also; sleep 100 >/dev/null 2>&1 &")
	if err := m.Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := sh(t, m, "cd /data; cat lost kept also 2>&- || true"); got != "kept\nalso\n" {
		t.Errorf("after the reboot: %q, want everything", got)
	}
	if after := sh(t, m, "cat /proc/sys/kernel/random/boot_id"); after == before {
		t.Error("the machine did not boot again")
	}
}
