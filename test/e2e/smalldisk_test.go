package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/instance"
	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// smallDisk returns a folder on an ext4 of its own. It is unmounted when the test
// ends, after the node is gone.
func smallDisk(t *testing.T, size int64) string {
	t.Helper()
	testenv.Need(t, "root", "loop", "mkfs.ext4")
	dir, err := os.MkdirTemp("", "holdfast-e2e-") //nolint:usetesting // it is a mount point until after the node's own clean-up
	if err != nil {
		t.Fatal(err)
	}
	image := filepath.Join(t.TempDir(), "disk")
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, size)); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"mkfs.ext4", "-q", "-m", "0", image}, {"mount", "-o", "loop", image, dir}} {
		if out, err := run(t, "", args[0], args[1:]...); err != nil {
			t.Fatalf("%s: %v: %s", args[0], err, out)
		}
	}
	t.Cleanup(func() {
		if err := errors.Join(syscall.Unmount(dir, 0), os.Remove(dir)); err != nil {
			t.Errorf("take the disk away: %v", err)
		}
	})
	return dir
}

// fill fills a disk to its last byte, and returns what frees it.
func fill(t *testing.T, dir string) (free func()) {
	t.Helper()
	path := filepath.Join(dir, "full")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{1 << 20, 4 << 10, 1} {
		block := make([]byte, size)
		for err = nil; err == nil; {
			_, err = f.Write(block)
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFullDisk fills the disk below a node while pods start and while they end.
// What does not work is shown, by the node's own status, as the API takes no events
// then; what runs goes on, and all is well once there is room again.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t, 384<<20)
	n := newNodeIn(t, filepath.Join(disk, "node"))
	manifests := t.TempDir() // a person writes to another disk
	n.flags = append(n.flags, "--manifest-dir", manifests)
	n.configure("  evictionHard: {}\n") // it is about what cannot be written, not about who has to go
	n.up()
	in, err := instance.Open(n.root)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(manifests, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("stays.yaml", servePod("stays"))
	before := containers(n.running("stays-edge-1"))

	free := fill(t, disk)
	for i := range crowdSize {
		write(fmt.Sprintf("crowd-%d.yaml", i), fmt.Sprintf(crowdPod, i))
	}
	n.eventually("the status says why pods do not start", func() error {
		out, err := n.try("status", "-o", "wide")
		if err == nil {
			return errors.New("status exits 0")
		}
		return wants(out, "no space left on device")
	})
	free()
	n.eventually("pods start once there is room", func() error { return n.crowdIs(crowdSize) })

	free = fill(t, disk)
	for i := range crowdSize {
		if err := os.Remove(filepath.Join(manifests, fmt.Sprintf("crowd-%d.yaml", i))); err != nil {
			t.Fatal(err)
		}
	}
	n.eventually("their processes end all the same", func() error {
		inside := cgroupPIDs(t, in) // another node may have such a crowd
		if left := slices.DeleteFunc(pidsOf(t, "61m7s"), func(pid int) bool { return !slices.Contains(inside, pid) }); len(left) > 0 {
			return fmt.Errorf("processes %v", left)
		}
		return nil
	})
	free()
	n.eventually("they are gone", func() error { return n.crowdIs(0) })
	n.eventually("nothing is wrong", func() error {
		out, err := n.try("status")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	if after := containers(n.running("stays-edge-1")); after != before {
		t.Errorf("a pod that only ran was touched: %s, before %s", after, before)
	}
}
