package volumemanager_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
	"github.com/holdfast-dev/holdfast/internal/testenv"
	"github.com/holdfast-dev/holdfast/test/hangingfs"
)

// A full node has 110 pods; they come and go all at once, and nothing is left.
func TestFullNode(t *testing.T) {
	n := newNode(t)
	n.put("settings", "1")
	each := func(do func(uid types.UID) error) {
		t.Helper()
		errs := make(chan error)
		for i := range 110 {
			go func() { errs <- do(types.UID(fmt.Sprint("pod-", i))) }()
		}
		for range 110 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
	}
	each(func(uid types.UID) error { return n.WaitForMount(t.Context(), fourVolumes(uid)) })
	if got := n.mounts(); len(got) != 220 { // memory and secret
		t.Errorf("%d mounts", len(got))
	}
	for i := range 110 {
		uid := types.UID(fmt.Sprint("pod-", i))
		n.eventually(filepath.Join(n.Paths(uid)["config"], "key"), "1")
		n.eventually(filepath.Join(n.Paths(uid)["secret"], "key"), "1")
	}
	each(func(uid types.UID) error { return n.Unmount(t.Context(), uid) })
	n.sweep()
}

// After a reboot the marks are there and the mounts are not: what is in memory
// begins anew, what is on disk is as it was.
func TestReboot(t *testing.T) {
	n := newNode(t)
	n.put("settings", "1")
	data := t.TempDir()
	n.putClaim("data", data)
	pod, other := fourVolumes("a"), claimed("b", "data")
	n.mount(pod)
	n.mount(other)
	paths := n.Paths("a")
	for _, file := range []string{filepath.Join(paths["disk"], "mine"), filepath.Join(paths["memory"], "mine"), filepath.Join(n.Paths("b")["data"], "mine")} {
		if err := os.WriteFile(file, []byte("kept"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before := n.mounts()
	n.stop()
	for _, point := range before {
		if err := unix.Unmount(point, unix.MNT_DETACH); err != nil {
			t.Fatal(err)
		}
	}
	n.start()
	n.mount(pod)
	n.mount(other)
	after := n.mounts()
	slices.Sort(before)
	slices.Sort(after)
	if !slices.Equal(before, after) {
		t.Errorf("mounts: %v, were %v", after, before)
	}
	n.eventually(filepath.Join(paths["disk"], "mine"), "kept")
	n.eventually(filepath.Join(n.Paths("b")["data"], "mine"), "kept")
	n.eventually(filepath.Join(paths["secret"], "key"), "1")
	if _, err := os.Stat(filepath.Join(paths["memory"], "mine")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what was in memory: %v", err)
	}
	n.unmount("a")
	n.unmount("b")
	n.sweep()
	n.eventually(filepath.Join(data, "mine"), "kept")
}

// What somebody mounted into the folder of a pod that is gone stays, and so
// does the folder. The fault names it; once it is unmounted, the folder goes.
func TestOrphanWithAMount(t *testing.T) {
	n := newNode(t)
	place := filepath.Join(n.dir, "pods/gone/etc/place")
	if err := os.MkdirAll(place, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", place, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(place, "precious"), []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := n.Sweep(t.Context(), func(types.UID) bool { return false }); err != nil {
		t.Fatal(err)
	}
	n.until("a fault names the mount", func() error {
		faults := n.Faults()
		if len(faults) != 1 || faults[0].Object != "Pod with UID gone" || !strings.Contains(faults[0].Message, place) {
			return fmt.Errorf("faults: %v", faults)
		}
		return nil
	})
	n.eventually(filepath.Join(place, "precious"), "data")
	if err := unix.Unmount(place, 0); err != nil {
		t.Fatal(err)
	}
	n.sweep()
}

// disk is a small ext4 on a loop device, mounted.
type disk struct {
	t    *testing.T
	file string // behind the loop device
	dir  string // where it is mounted
}

func newDisk(t *testing.T) *disk {
	t.Helper()
	testenv.Need(t, "root", "loop", "mkfs.ext4")
	d := &disk{t: t, file: filepath.Join(t.TempDir(), "image"), dir: t.TempDir()}
	d.run("truncate", "-s", "8M", d.file)
	d.run("mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", d.file)
	d.run("mount", "-o", "loop", d.file, d.dir)
	t.Cleanup(func() {
		if err := unix.Unmount(d.dir, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH); err != nil {
			t.Errorf("unmount the disk: %v", err)
		}
	})
	return d
}

func (d *disk) run(args ...string) {
	d.t.Helper()
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		d.t.Fatalf("%v: %v: %s", args, err, out)
	}
}

// remount has the kernel forget what it knows of the disk's content.
func (d *disk) remount() {
	d.t.Helper()
	d.run("umount", d.dir)
	d.run("mount", "-o", "loop", d.file, d.dir)
}

// fill leaves no room on the disk, until the returned function is called.
func (d *disk) fill() (empty func()) {
	d.t.Helper()
	name := filepath.Join(d.dir, "filler")
	f, err := os.Create(name)
	if err != nil {
		d.t.Fatal(err)
	}
	for size := 64 << 10; size > 0; size /= 2 {
		for {
			if _, err := f.Write(make([]byte, size)); err != nil {
				break
			}
		}
	}
	// Folders need inodes and blocks of their own: none is left for these either.
	for i := 0; ; i++ {
		if err := os.Mkdir(fmt.Sprintf("%s-%d", name, i), 0o700); err != nil {
			break
		}
	}
	if err := f.Close(); err != nil {
		d.t.Fatal(err)
	}
	return func() {
		left, err := filepath.Glob(name + "*")
		if err != nil {
			d.t.Fatal(err)
		}
		for _, path := range left {
			if err := os.Remove(path); err != nil {
				d.t.Fatal(err)
			}
		}
	}
}

// die has every access to the disk fail from now on, as when it is pulled out.
func (d *disk) die() {
	d.t.Helper()
	dir, err := os.Open(d.dir)
	if err != nil {
		d.t.Fatal(err)
	}
	defer dir.Close()
	const shutdown, noFlush = 0x8004587d, 2 // EXT4_IOC_SHUTDOWN, EXT4_GOING_FLAGS_NOLOGFLUSH
	flags := uint32(noFlush)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, dir.Fd(), shutdown, uintptr(unsafe.Pointer(&flags))); errno != 0 {
		d.t.Fatalf("shut the disk down: %v", errno)
	}
	if err := os.Truncate(d.file, 0); err != nil {
		d.t.Fatal(err)
	}
}

// On a full disk what is there stays whole, a new pod waits and says why, and
// pods go as always. Once there is room, all goes on by itself.
func TestFullDisk(t *testing.T) {
	d := newDisk(t)
	n := newNodeIn(t, filepath.Join(d.dir, "kubelet"))
	n.put("settings", "1")
	first, second := fourVolumes("a"), fourVolumes("b")
	n.mount(first)
	n.mount(fourVolumes("c"))
	config := filepath.Join(n.Paths("a")["config"], "key")
	big := strings.Repeat("2", 100_000)

	empty := d.fill()
	n.put("settings", big)
	n.until("a fault says that the disk is full", func() error {
		for _, f := range n.Faults() {
			if f.Object == "Pod ns/a" && strings.Contains(f.Message, "no space left on device") {
				return nil
			}
		}
		return errors.New("it does not")
	})
	n.eventually(config, "1") // the old content, and all of it
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := n.WaitForMount(ctx, second); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("a new pod: %v", err)
	}
	n.unmount("c")

	empty()
	n.eventually(config, big)
	n.mount(second)
	n.unmount("a")
	n.unmount("b")
	n.sweep()
}

// A disk that died below a local volume costs the pods that use it: what is
// mounted can be unmounted, a new mount says what is wrong, others go on.
func TestDeadDisk(t *testing.T) {
	d := newDisk(t)
	n := newNode(t)
	n.put("settings", "1")
	folder, other := filepath.Join(d.dir, "volume"), filepath.Join(d.dir, "of/another/volume")
	if err := errors.Join(os.MkdirAll(filepath.Join(folder, "sub"), 0o755), os.MkdirAll(other, 0o755)); err != nil {
		t.Fatal(err)
	}
	d.remount() // the kernel remembers nothing of the other volume
	n.putClaim("data", folder)
	n.putClaim("other", other)
	n.mount(claimed("a", "data"))
	if _, err := n.SubPath(t.Context(), podvolumes.SubPath{PodUID: "a", Container: "app", Volume: "data", Path: "sub"}); err != nil {
		t.Fatal(err)
	}
	n.stop()
	d.die()
	if _, err := os.Stat(other); !errors.Is(err, unix.EIO) {
		t.Fatalf("the disk is not dead: %v", err)
	}
	n.start()
	if _, err := n.SubPath(t.Context(), podvolumes.SubPath{PodUID: "a", Container: "app", Volume: "data", Path: "sub"}); err == nil {
		t.Error("a part of a volume that nobody wants yet")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := n.WaitForMount(ctx, claimed("b", "other")); !errors.Is(err, unix.EIO) {
		t.Errorf("a new pod: %v", err)
	}
	n.mount(fourVolumes("c"))
	for _, uid := range []types.UID{"a", "b", "c"} {
		n.unmount(uid)
	}
	n.sweep()
}

// A filesystem that does not answer stops its own pods and no other: those that
// mount have one try under way however often they are asked for, those that
// have it mounted can go, also after a restart. When it answers, all goes on.
func TestHungMounts(t *testing.T) {
	n := newNode(t)
	n.put("settings", "1")
	dir := t.TempDir()
	fs := hangingfs.Mount(t, dir)
	folder := filepath.Join(dir, "volume")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	n.putClaim("data", folder)
	n.mount(claimed("old", "data"))
	n.mount(claimed("stays", "data"))
	if _, err := n.SubPath(t.Context(), podvolumes.SubPath{PodUID: "old", Container: "app", Volume: "data", Path: "sub"}); err != nil {
		t.Fatal(err)
	}

	n.stop()
	fs.Hang()
	n.start() // what is mounted is found, and not asked for anything
	n.unmount("old")
	for range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		if err := n.WaitForMount(ctx, claimed("new", "data")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it does not hang: %v", err)
		}
		cancel()
	}
	fs.AwaitAsked(t)
	n.mount(fourVolumes("other"))
	n.unmount("other")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := n.Unmount(ctx, "new"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("unmounted while it is being mounted: %v", err)
	}

	fs.Answer()
	n.unmount("new")
	n.mount(claimed("stays", "data"))
	if err := os.WriteFile(filepath.Join(n.Paths("stays")["data"], "file"), []byte("x"), 0o600); err != nil {
		t.Error(err)
	}
	n.unmount("stays")
	n.sweep()
	n.eventually(filepath.Join(folder, "file"), "x")
}

// A part of a volume that hangs is tried once for all who ask, and its pod's
// volumes go when it ended and not before: nothing is bound behind them.
func TestHangingPart(t *testing.T) {
	n := newNode(t)
	n.put("settings", "1")
	dir := t.TempDir()
	fs := hangingfs.Mount(t, dir)
	if err := os.MkdirAll(filepath.Join(dir, "volume/sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	n.putClaim("data", filepath.Join(dir, "volume"))
	n.mount(claimed("a", "data"))
	n.mount(fourVolumes("b"))
	fs.Hang()
	part := podvolumes.SubPath{PodUID: "a", Container: "app", Volume: "data", Path: "sub"}
	for range 5 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		if path, err := n.SubPath(ctx, part); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("bound %q: %v", path, err)
		}
		cancel()
	}
	fs.AwaitAsked(t)
	if _, err := n.SubPath(t.Context(), podvolumes.SubPath{PodUID: "b", Container: "app", Volume: "disk", Path: "sub"}); err != nil {
		t.Errorf("a part of another pod's volume: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := n.Unmount(ctx, "a"); err == nil {
		t.Error("unmounted below a part that is being bound")
	}
	fs.Answer()
	n.unmount("a")
	n.unmount("b")
	n.sweep()
}
