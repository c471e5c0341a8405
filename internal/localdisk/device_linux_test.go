package localdisk

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-dev/holdfast/internal/testenv"
)

func open(t *testing.T, path string) *Device {
	t.Helper()
	d, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// What real tools write is found, by the name that blkid has for it.
func TestScanAsBlkid(t *testing.T) {
	tools := [][]string{{"mkfs.ext2", "-q"}, {"mkfs.ext3", "-q"}, {"mkfs.ext4", "-q"}, {"mkfs.xfs", "-q"}, {"mkfs.btrfs", "-q"}, {"mkswap"}, {"mkfs.minix"}}
	for _, tool := range tools {
		t.Run(tool[0], func(t *testing.T) {
			path := testenv.LoopDevice(t, 320<<20)
			d := open(t, path)
			if got, err := d.Scan(); err != nil || !got.Blank() || d.Size != 320<<20 {
				t.Fatalf("new: %v, %d bytes, %v", got, d.Size, err)
			}
			run(t, tool[0], append(tool[1:], path)...)
			want := strings.TrimSpace(run(t, "blkid", "-p", "-s", "TYPE", "-o", "value", path))
			if got, err := d.Scan(); err != nil || !slices.Equal(got.Names, []string{want}) {
				t.Errorf("got %v, %v, want %s", got, err, want)
			}
			if err := d.Wipe(); err != nil {
				t.Fatal(err)
			}
			if got, err := d.Scan(); err != nil || !got.Blank() {
				t.Errorf("wiped: %v, %v", got, err)
			}
		})
	}
}

func TestBusy(t *testing.T) {
	path := testenv.LoopDevice(t, 32<<20)
	d := open(t, path)
	if err := d.Busy(); err != nil {
		t.Errorf("free: %v", err)
	}
	run(t, "mkfs.ext4", "-q", path)
	dir := t.TempDir()
	if err := unix.Mount(path, dir, "ext4", 0, ""); err != nil {
		t.Fatal(err)
	}
	busy := d.Busy()
	wipe := d.Wipe()
	if err := unix.Unmount(dir, 0); err != nil {
		t.Fatal(err)
	}
	if busy == nil || !strings.Contains(busy.Error(), path+" is in use: mounted on "+dir) {
		t.Errorf("mounted: %v", busy)
	}
	if wipe == nil {
		t.Error("a mounted device was wiped")
	}
	file, err := os.OpenFile(path, os.O_RDONLY|os.O_EXCL, 0)
	if err != nil {
		t.Fatal(err)
	}
	err = d.Busy()
	if file.Close(); err == nil || !strings.Contains(err.Error(), "in use by another program") {
		t.Errorf("held by a program: %v", err)
	}
	if err := d.Busy(); err != nil {
		t.Errorf("free again: %v", err)
	}
}

// A medium that is attached again, even in the same place, is another one.
func TestIdentity(t *testing.T) {
	path := testenv.LoopDevice(t, 1<<20)
	first, second := open(t, path).Identity(), open(t, path).Identity()
	if !first.Same(second) {
		t.Errorf("%+v and %+v", first, second)
	}
	if other := open(t, testenv.LoopDevice(t, 1<<20)).Identity(); first.Same(other) {
		t.Errorf("%+v and %+v", first, other)
	}
	number := open(t, path).Number
	if Whole(number) != number || !Overlap(number, number) || Overlap(number, number+1) {
		t.Errorf("device %d overlaps wrongly", number)
	}
}
