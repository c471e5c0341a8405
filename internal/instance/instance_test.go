package instance_test

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/holdfast-dev/holdfast/internal/instance"
)

func pick() (netip.Prefix, error) { return netip.MustParsePrefix("10.85.7.0/24"), nil }

func TestIdentityIsMadeOnce(t *testing.T) {
	root := filepath.Join(t.TempDir(), "node")
	if _, err := instance.Open(root); !errors.Is(err, instance.ErrNone) {
		t.Errorf("Open of an empty folder: %v, want ErrNone", err)
	}
	made, err := instance.OpenOrCreate(root, pick)
	if err != nil {
		t.Fatal(err)
	}
	again, err := instance.OpenOrCreate(root, func() (netip.Prefix, error) {
		t.Error("a subnet was chosen twice")
		return netip.Prefix{}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(again, made, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
		t.Error(diff)
	}
	if got, want := made.Gateway(), netip.MustParseAddr("10.85.7.1"); got != want {
		t.Errorf("gateway: got %v, want %v", got, want)
	}
	if n := len(made.Bridge()); n > 15 {
		t.Errorf("bridge name has %d bytes, the kernel takes 15", n)
	}
	if n := len(made.Run("containerd.sock.ttrpc")); n > 107 {
		t.Errorf("socket path has %d bytes, the kernel takes 107", n)
	}
}

func TestMoveKeepsTheIdentity(t *testing.T) {
	in, err := instance.OpenOrCreate(t.TempDir(), pick)
	if err != nil {
		t.Fatal(err)
	}
	moved, err := in.Move(netip.MustParsePrefix("10.85.8.0/24"))
	if err != nil {
		t.Fatal(err)
	}
	again, err := instance.Open(in.Root)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(again, moved, cmpopts.EquateComparable(netip.Prefix{})); diff != "" || again.ID != in.ID {
		t.Errorf("ID %s, want %s; %s", again.ID, in.ID, diff)
	}
}

func TestOpenRefuses(t *testing.T) {
	for name, test := range map[string]struct{ content, want string }{
		"no JSON":        {"{", "is damaged"},
		"nothing in it":  {"{}", "lacks an id or a subnet"},
		"a newer format": {`{"version": 2, "id": "abc"}`, "use that newer version"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			if err := os.WriteFile(filepath.Join(root, "instance.json"), []byte(test.content), 0o644); err != nil {
				t.Fatal(err)
			}
			_, err := instance.Open(root)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q in it", err, test.want)
			}
		})
	}
}

func TestLock(t *testing.T) {
	in, err := instance.OpenOrCreate(t.TempDir(), pick)
	if err != nil {
		t.Fatal(err)
	}
	release, err := in.Lock()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := in.Lock(); !errors.Is(err, instance.ErrRunning) {
		t.Errorf("second Lock: %v, want ErrRunning", err)
	}
	if pid, running := in.Running(); !running || pid == "unknown" {
		t.Errorf("Running: %q, %v", pid, running)
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	if _, running := in.Running(); running {
		t.Error("still running after release")
	}
}
