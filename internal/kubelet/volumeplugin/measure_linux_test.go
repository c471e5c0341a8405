package volumeplugin

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
	"github.com/holdfast-dev/holdfast/internal/projectquota"
	"github.com/holdfast-dev/holdfast/internal/testenv"
)

func measured(t *testing.T, path string) podvolumes.Usage {
	t.Helper()
	u, err := New(Config{Dir: "/", Log: slog.New(slog.DiscardHandler)}).Measure(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func fill(t *testing.T, path string, size int) {
	t.Helper()
	if err := os.WriteFile(path, make([]byte, size), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestMeasureFolders holds that folders that share a disk have figures of their own.
func TestMeasureFolders(t *testing.T) {
	dir := t.TempDir()
	for name, size := range map[string]int{"a": 1 << 20, "b": 3 << 20} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		fill(t, filepath.Join(dir, name, "f"), size)
		u := measured(t, filepath.Join(dir, name))
		if u.Method != podvolumes.ByWalk || *u.UsedBytes < uint64(size) || *u.UsedBytes > uint64(size)+64<<10 || *u.InodesUsed != 2 {
			t.Errorf("%s: %s, %d bytes, %d inodes; want its own %d and 2", name, u.Method, *u.UsedBytes, *u.InodesUsed, size)
		}
		if *u.CapacityBytes < *u.UsedBytes || u.AvailableBytes == nil {
			t.Errorf("%s: %d bytes of %d", name, *u.UsedBytes, *u.CapacityBytes)
		}
	}
	if err := os.Symlink("b", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if u := measured(t, filepath.Join(dir, "link")); *u.InodesUsed != 2 {
		t.Errorf("a hostPath that is a link: %d inodes, want those of its folder", *u.InodesUsed)
	}
	if u := measured(t, filepath.Join(dir, "a", "f")); *u.InodesUsed != 1 || *u.UsedBytes < 1<<20 {
		t.Errorf("a hostPath that is a file: %d inodes, %d bytes", *u.InodesUsed, *u.UsedBytes)
	}
}

func TestMeasureNothing(t *testing.T) {
	h := New(Config{Dir: "/", Log: slog.New(slog.DiscardHandler)})
	for _, path := range []string{"/proc", "/proc/sys"} {
		if _, err := h.Measure(t.Context(), path); !errors.Is(err, podvolumes.ErrNoUsage) {
			t.Errorf("%s: %v, want that it takes nothing", path, err)
		}
	}
	if _, err := h.Measure(t.Context(), filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := h.Measure(ctx, t.TempDir()); !errors.Is(err, context.Canceled) {
		t.Errorf("a count that was ended: %v", err)
	}
}

func TestMeasureMounts(t *testing.T) {
	testenv.Need(t, "root")
	dir := t.TempDir()
	whole, part := filepath.Join(dir, "whole"), filepath.Join(dir, "part")
	for _, d := range []string{whole, part} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	mount := func(source, target, kind string, flags uintptr, data string) {
		if err := unix.Mount(source, target, kind, flags, data); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(target, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
	}
	mount("tmpfs", whole, "tmpfs", 0, "size=8m,nr_inodes=100")
	sub := filepath.Join(whole, "sub")
	if err := os.Mkdir(sub, 0o755); err != nil {
		t.Fatal(err)
	}
	fill(t, filepath.Join(whole, "outside"), 1<<20)
	fill(t, filepath.Join(sub, "inside"), 2<<20)
	mount(sub, part, "", unix.MS_BIND, "")

	u := measured(t, whole)
	if u.Method != podvolumes.ByFilesystem || *u.CapacityBytes != 8<<20 || *u.UsedBytes != 3<<20 || *u.AvailableBytes != 5<<20 || *u.Inodes != 100 || *u.InodesUsed != 4 || *u.InodesFree != 96 {
		t.Errorf("a filesystem of its own: %s, %d of %d bytes, %d left, %d inodes", u.Method, *u.UsedBytes, *u.CapacityBytes, *u.AvailableBytes, *u.InodesUsed)
	}
	u = measured(t, part)
	if u.Method != podvolumes.ByWalk || *u.UsedBytes != 2<<20 || *u.InodesUsed != 2 || *u.CapacityBytes != 8<<20 {
		t.Errorf("a part of one: %s, %d bytes, %d inodes; want its own", u.Method, *u.UsedBytes, *u.InodesUsed)
	}
}

// TestMeasureKeepsNothingBusy holds that a volume can be unmounted while it is counted.
func TestMeasureKeepsNothingBusy(t *testing.T) {
	testenv.Need(t, "root")
	dir := t.TempDir()
	source, volume := filepath.Join(dir, "source"), filepath.Join(dir, "volume")
	for _, d := range []string{source, volume} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	fill(t, filepath.Join(source, "f"), 1)
	if _, err := detached(volume); err == nil {
		t.Error("a folder that nothing is mounted on is detached")
	}
	if err := unix.Mount(source, volume, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	f, err := detached(volume)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unmount(volume); err != nil {
		t.Errorf("unmount: %v", err)
	}
	if counted, err := count(t.Context(), filepath.Join("/proc/self/fd", strconv.Itoa(int(f.Fd())))); err != nil || counted.Inodes != 2 {
		t.Errorf("counted %+v, %v; want the folder and its file", counted, err)
	}
}

func TestMeasureQuota(t *testing.T) {
	for _, disk := range testenv.QuotaDirs(t) {
		t.Run(filepath.Base(disk), func(t *testing.T) {
			dir, err := os.MkdirTemp(disk, "measure-") //nolint:usetesting // the test's own folder is on another disk
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := os.RemoveAll(dir); err != nil {
					t.Error(err)
				}
			})
			if _, err := projectquota.Assign(dir, projectquota.Limit{Bytes: 4 << 20}); err != nil {
				t.Fatal(err)
			}
			fill(t, filepath.Join(dir, "f"), 1<<20)
			unix.Sync()
			u := measured(t, dir)
			if u.Method != podvolumes.ByQuota || *u.CapacityBytes != 4<<20 || *u.UsedBytes < 1<<20 || *u.InodesUsed != 2 || *u.AvailableBytes > 3<<20 {
				t.Errorf("%s: %d of %d bytes, %d left, %d inodes", u.Method, *u.UsedBytes, *u.CapacityBytes, *u.AvailableBytes, *u.InodesUsed)
			}
		})
	}
}

// TestMeasureDevice holds that of a device the size is known, and nothing else.
func TestMeasureDevice(t *testing.T) {
	testenv.Need(t, "root")
	link := filepath.Join(t.TempDir(), "device")
	if err := os.Symlink(testenv.LoopDevice(t, 3<<20), link); err != nil {
		t.Fatal(err)
	}
	want := podvolumes.Usage{Method: podvolumes.ByDevice, CapacityBytes: new(uint64(3 << 20))}
	if diff := cmp.Diff(want, measured(t, link)); diff != "" {
		t.Errorf("figures (-want +got):\n%s", diff)
	}
}

func FuzzWholeMount(f *testing.F) {
	f.Add("21 1 0:5 / /run rw - tmpfs tmpfs rw\n22 1 0:6 /sub /x rw - ext4 /dev/sda rw\n", uint64(22))
	f.Fuzz(func(t *testing.T, mountinfo string, id uint64) {
		if wholeMount(mountinfo, id) && !strings.Contains(mountinfo, "/") {
			t.Errorf("a root in %q", mountinfo)
		}
	})
}
