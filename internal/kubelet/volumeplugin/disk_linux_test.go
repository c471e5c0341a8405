package volumeplugin

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
	"github.com/holdfast-dev/holdfast/internal/localdisk"
	"github.com/holdfast-dev/holdfast/internal/testenv"
)

const other types.UID = "66666666-7777-8888-9999-000000000000"

// onDisk is the volume of a local PersistentVolume on a device.
func onDisk(pv, device string) podvolumes.Volume {
	return podvolumes.Volume{ID: podvolumes.ID{Kind: podvolumes.Local, Dir: pv}, Name: "data", HostPath: device}
}

func raw(pv, device string) podvolumes.Volume {
	v := onDisk(pv, device)
	v.Block = true
	return v
}

func setUpFor(t *testing.T, h *Host, pod types.UID, v podvolumes.Volume) (string, error) {
	t.Helper()
	v.PodUID = pod
	return h.SetUp(t.Context(), &v)
}

func tool(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// newDiskHost returns a Host whose mounts are gone before its devices are.
func newDiskHost(t *testing.T, size int64) (h *Host, device string) {
	t.Helper()
	device = testenv.LoopDevice(t, size)
	return newHost(t), device
}

func fsOn(t *testing.T, device string) string {
	t.Helper()
	d, err := localdisk.Open(device)
	must(t, err)
	defer func() { must(t, d.Close()) }()
	content, err := d.Scan()
	must(t, err)
	return content.String()
}

// A blank device is formatted once, serves every pod of its claim, keeps its
// data, and is mounted nowhere when the last pod has gone.
func TestDisk(t *testing.T) {
	for _, fsType := range []string{"", "ext3", "ext4", "xfs", "btrfs"} {
		t.Run("fsType "+fsType, func(t *testing.T) {
			h, device := newDiskHost(t, 320<<20)
			v := onDisk("pv-1", device)
			v.FSType, v.MountOptions = fsType, []string{"noatime"}
			path, err := setUpFor(t, h, uid, v)
			must(t, err)
			write(t, filepath.Join(path, "file"), "data")
			want := fsType
			if want == "" {
				want = "ext4"
			}
			if got := fsOn(t, device); got != want {
				t.Errorf("the device holds %s", got)
			}
			global := string(h.layout) + "/plugins/kubernetes.io/local-volume/mounts/pv-1"
			on, err := deviceOn(global)
			must(t, err)
			if on == nil || on.Source != device || !slices.Contains(on.MountOptions, "noatime") {
				t.Errorf("mounted: %+v", on)
			}

			// Another pod, of another process, that only reads.
			again := New(Config{Dir: string(h.layout), Log: h.log})
			reader := v
			reader.ReadOnly = true
			second, err := setUpFor(t, again, other, reader)
			must(t, err)
			if got := content(t, filepath.Join(second, "file")); got != "data" {
				t.Errorf("the second pod reads %q", got)
			}
			if err := touch(filepath.Join(second, "new")); err == nil {
				t.Error("a read-only volume was written")
			}
			if _, err := setUpFor(t, again, uid, v); err != nil {
				t.Errorf("set up twice: %v", err)
			}
			found, err := again.Found(t.Context())
			must(t, err)
			if len(found) != 2 || !found[0].Complete || !found[1].Complete || found[0].Name != "data" {
				t.Errorf("found %+v", found)
			}

			must(t, again.TearDown(t.Context(), uid, v.ID))
			if on, err := deviceOn(global); err != nil || on == nil {
				t.Errorf("unmounted under the second pod: %v", err)
			}
			for range 2 {
				must(t, h.TearDown(t.Context(), other, v.ID))
			}
			if left := mountsBelow(t, string(h.layout)); len(left) > 0 || exists(global) {
				t.Errorf("left: %v", left)
			}

			path, err = setUpFor(t, h, uid, v)
			must(t, err)
			if got := content(t, filepath.Join(path, "file")); got != "data" {
				t.Errorf("after all: %q", got)
			}
		})
	}
}

func TestPlanDisk(t *testing.T) {
	named := func(names ...string) localdisk.Content { return localdisk.Content{Names: names} }
	blank, unknown := localdisk.Content{Zero: true}, localdisk.Content{}
	halfXFS := localdisk.Content{Names: []string{"xfs"}, Unfinished: true}
	tests := []struct {
		name    string
		content localdisk.Content
		disk    disk
		want    diskPlan
		refused string
	}{
		{"blank", blank, disk{}, diskPlan{fsType: "ext4", format: true}, ""},
		{"blank, named", blank, disk{fsType: "xfs"}, diskPlan{fsType: "xfs", format: true}, ""},
		{"blank, to be read", blank, disk{readOnly: true}, diskPlan{}, "to be read only"},
		{"as named", named("xfs"), disk{fsType: "xfs"}, diskPlan{fsType: "xfs"}, ""},
		{"none named", named("btrfs"), disk{}, diskPlan{fsType: "btrfs"}, ""},
		{"to be read", named("ext4"), disk{readOnly: true}, diskPlan{fsType: "ext4"}, ""},
		{"another filesystem", named("xfs"), disk{fsType: "ext4"}, diskPlan{}, "holds xfs, and spec.local.fsType is ext4"},
		{"another filesystem, and our mark", named("xfs"), disk{fsType: "ext4", ours: true}, diskPlan{}, "holds xfs"},
		{"no filesystem", named("crypto_LUKS"), disk{}, diskPlan{}, "holds crypto_LUKS"},
		{"no filesystem, and our mark", named("LVM2_member"), disk{ours: true}, diskPlan{}, "holds LVM2_member"},
		{"two", named("ext4", "linux_raid_member"), disk{fsType: "ext4"}, diskPlan{}, "holds ext4 and linux_raid_member"},
		{"unknown data", unknown, disk{}, diskPlan{}, "data of an unknown kind"},
		{"half made by us", unknown, disk{ours: true}, diskPlan{fsType: "ext4", format: true, wipe: true}, ""},
		{"not begun by us", blank, disk{ours: true}, diskPlan{fsType: "ext4", format: true}, ""},
		{"half made by us, finished", named("ext4"), disk{ours: true}, diskPlan{fsType: "ext4"}, ""},
		{"half-made xfs by somebody", halfXFS, disk{fsType: "xfs"}, diskPlan{}, "a half-made xfs"},
		{"half-made xfs by us", halfXFS, disk{fsType: "xfs", ours: true}, diskPlan{fsType: "xfs", format: true, wipe: true}, ""},
		{"half made by us, to be read", unknown, disk{ours: true, readOnly: true}, diskPlan{}, "to be read only"},
		{"no name of a filesystem", blank, disk{fsType: "ext4/../../evil"}, diskPlan{}, "spec.local.fsType"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := planDisk(tt.content, tt.disk)
			switch {
			case tt.refused == "" && err != nil, tt.refused != "" && (err == nil || !strings.Contains(err.Error(), tt.refused)):
				t.Errorf("err = %v, want %q", err, tt.refused)
			case got != tt.want:
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

// Whatever is on a device that is refused stays as it is.
func TestDiskRefused(t *testing.T) {
	h, device := newDiskHost(t, 32<<20)
	file, err := os.OpenFile(device, os.O_RDWR, 0)
	must(t, err)
	defer file.Close()
	put := func(text string, offset int64) {
		t.Helper()
		_, err := file.WriteAt([]byte(text), offset)
		must(t, err)
		must(t, file.Sync())
	}
	image := func() string {
		t.Helper()
		data := make([]byte, 32<<20)
		_, err := file.ReadAt(data, 0)
		must(t, err)
		return string(data)
	}
	tests := []struct {
		name, text string
		offset     int64
		want       string
	}{
		{"a database that writes raw", "my pages", 8192, "data of an unknown kind"},
		{"at the very end", "x", 32<<20 - 1, "data of an unknown kind"},
		{"encrypted", "LUKS\xba\xbe", 0, "crypto_LUKS"},
		{"part of a RAID", "\xfc\x4e\x2b\xa9", 32<<20 - 8<<10, "linux_raid_member"},
		{"partitions", "EFI PART", 512, "gpt"},
	}
	for _, tt := range tests {
		put(tt.text, tt.offset)
		before := image()
		_, err := setUpFor(t, h, uid, onDisk("pv-1", device))
		if err == nil || !strings.Contains(err.Error(), device+" holds "+tt.want) || !strings.Contains(err.Error(), "it is not touched") {
			t.Errorf("%s: %v", tt.name, err)
		}
		if image() != before {
			t.Errorf("%s: written to", tt.name)
		}
		put(strings.Repeat("\x00", len(tt.text)), tt.offset)
	}
	must(t, file.Close())

	v := onDisk("pv-1", device)
	v.FSType = "ext5"
	if _, err := setUpFor(t, h, uid, v); err == nil || !strings.Contains(err.Error(), device+" is blank: mkfs.ext5, which would make the filesystem, cannot be run: install it, or name another one in spec.local.fsType") {
		t.Errorf("a filesystem that nothing can make: %v", err)
	}
	tool(t, "mkfs.ext3", "-q", device)
	v.FSType = "ext4"
	if _, err := setUpFor(t, h, uid, v); err == nil || !strings.Contains(err.Error(), "holds ext3, and spec.local.fsType is ext4") {
		t.Errorf("another filesystem: %v", err)
	}
	if got := fsOn(t, device); got != "ext3" {
		t.Errorf("the device holds %s", got)
	}
	for path, want := range map[string]string{"/dev/null": "character device", filepath.Join(t.TempDir(), "gone"): "no such file"} {
		if _, err := setUpFor(t, h, uid, onDisk("pv-2", path)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
	must(t, h.TearDown(t.Context(), uid, v.ID))
	if left := mountsBelow(t, string(h.layout)); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// A device that somebody uses is not mounted, checked or formatted, whatever is
// on it: by another mount, alone by a program, or raw by a pod under another name.
func TestDiskInUse(t *testing.T) {
	h, device := newDiskHost(t, 32<<20)
	link := filepath.Join(t.TempDir(), "by-another-name")
	must(t, os.Symlink(device, link))
	refused := func(what, want string, v podvolumes.Volume) {
		t.Helper()
		if _, err := setUpFor(t, h, other, v); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
	}

	file, err := os.OpenFile(device, os.O_RDONLY|os.O_EXCL, 0)
	must(t, err)
	refused("a program, filesystem", "in use by another program", onDisk("pv-1", link))
	refused("a program, raw", "in use by another program", raw("pv-1", link))
	must(t, file.Close())

	_, err = setUpFor(t, h, uid, raw("pv-raw", device))
	must(t, err)
	refused("raw by a pod", "in use as a raw device by the pod with UID "+string(uid), onDisk("pv-1", link))
	if _, err := setUpFor(t, h, other, raw("pv-raw-2", link)); err != nil {
		t.Errorf("raw by two pods: %v", err)
	}
	must(t, h.TearDown(t.Context(), other, raw("pv-raw-2", link).ID))
	if got := fsOn(t, device); got != "nothing" {
		t.Fatalf("the device holds %s", got)
	}
	must(t, h.TearDown(t.Context(), uid, raw("pv-raw", device).ID))

	_, err = setUpFor(t, h, uid, onDisk("pv-1", link))
	must(t, err)
	refused("mounted for a pod, raw", "in use: mounted on "+h.layout.Disk("pv-1"), raw("pv-raw", device))
	refused("mounted under another name", "in use: mounted on "+h.layout.Disk("pv-1"), onDisk("pv-2", device))
	must(t, h.TearDown(t.Context(), uid, onDisk("pv-1", link).ID))

	dir := t.TempDir()
	must(t, unix.Mount(device, dir, "ext4", 0, ""))
	refused("mounted elsewhere", "in use: mounted on "+dir, onDisk("pv-1", device))
	must(t, unix.Unmount(dir, 0))
	_, err = setUpFor(t, h, other, onDisk("pv-1", device))
	must(t, err)
}

// halfMade leaves a device as a format that was killed does: most of a
// filesystem, and no superblock at its start.
func halfMade(t *testing.T, device string) {
	t.Helper()
	tool(t, "mkfs.ext4", "-q", device)
	file, err := os.OpenFile(device, os.O_WRONLY, 0)
	must(t, err)
	_, err = file.WriteAt(make([]byte, 2048), 0)
	must(t, err)
	must(t, file.Sync())
	must(t, file.Close())
}

// What a format left that was killed is formatted anew if a mark of ours proves
// that the device was blank before, and is refused otherwise.
func TestDiskHalfMade(t *testing.T) {
	h, device := newDiskHost(t, 32<<20)
	halfMade(t, device)
	v := onDisk("pv-1", device)
	refused := func(what string) {
		t.Helper()
		if _, err := setUpFor(t, h, uid, v); err == nil || !strings.Contains(err.Error(), "data of an unknown kind") {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("no mark")

	must(t, makeDir(filepath.Dir(h.layout.Formatting("pv-1"))))
	for _, text := range []string{"", "{", `{"version":2}`, `{"version":1,"device":{"size":33554432}}`} {
		write(t, h.layout.Formatting("pv-1"), text)
		refused("the mark " + text)
	}
	elsewhere, err := localdisk.Open(testenv.LoopDevice(t, 32<<20))
	must(t, err)
	must(t, h.beginFormatting("pv-1", elsewhere))
	must(t, elsewhere.Close())
	refused("the mark of another device")

	dev, err := localdisk.Open(device)
	must(t, err)
	must(t, h.beginFormatting("pv-1", dev))
	must(t, dev.Close())
	path, err := setUpFor(t, h, uid, v)
	must(t, err)
	write(t, filepath.Join(path, "file"), "data")
	if exists(h.layout.Formatting("pv-1")) {
		t.Error("the mark outlives the format")
	}
}

// A damaged filesystem is never formatted over, and the message says what to do.
func TestDiskBroken(t *testing.T) {
	damage := func(offset int64, size int) func(*testing.T, string) {
		return func(t *testing.T, device string) {
			t.Helper()
			file, err := os.OpenFile(device, os.O_WRONLY, 0)
			must(t, err)
			_, err = file.WriteAt([]byte(strings.Repeat("\xff", size)), offset)
			must(t, err)
			must(t, file.Sync())
			must(t, file.Close())
		}
	}
	tests := []struct {
		name, fsType string
		damage       func(*testing.T, string)
		want         string
	}{
		{"superblock, so that its checksum is wrong", "ext4", damage(1024+0x200, 8), "if it is damaged, mend it with fsck.ext4 "},
		{"what the check cannot mend alone", "ext4", func(t *testing.T, device string) {
			tool(t, "debugfs", "-w", "-R", "clri <2>", device) // the top folder
			tool(t, "debugfs", "-w", "-R", "set_super_value state 0", device)
		}, "its check did not mend it by itself: mend it with fsck.ext4 "},
		{"superblock, so that blkid says that there is nothing", "xfs", damage(64, 32), "blkid does not know it any more: mend it with xfs_repair "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h, device := newDiskHost(t, 320<<20)
			tool(t, "mkfs."+tt.fsType, "-q", device)
			tt.damage(t, device)
			_, err := setUpFor(t, h, uid, onDisk("pv-1", device))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("err = %v, want %q", err, tt.want)
			}
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("more than a line: %v", err)
			}
			if got := fsOn(t, device); got != tt.fsType {
				t.Errorf("the device holds %s", got)
			}
			must(t, h.TearDown(t.Context(), uid, onDisk("pv-1", device).ID))
			if left := mountsBelow(t, string(h.layout)); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// Wherever the agent dies, the next one ends with the volume mounted, or with
// nothing left, and the data is there.
func TestDiskDiesBetweenSteps(t *testing.T) {
	identify := func(t *testing.T, h *Host, device string) {
		t.Helper()
		dev, err := localdisk.Open(device)
		must(t, err)
		defer func() { must(t, dev.Close()) }()
		must(t, h.beginFormatting("pv-1", dev))
	}
	mountGlobal := func(t *testing.T, h *Host, device string) {
		t.Helper()
		must(t, makeDir(h.layout.Volume(uid, podvolumes.ID{Kind: podvolumes.Local, Dir: "pv-1"})))
		must(t, makeDir(h.layout.Disk("pv-1")))
		must(t, unix.Mount(device, h.layout.Disk("pv-1"), "ext4", 0, ""))
	}
	bound := func(t *testing.T, h *Host) string {
		t.Helper()
		dir := h.layout.Volume(uid, podvolumes.ID{Kind: podvolumes.Local, Dir: "pv-1"})
		must(t, unix.Mount(h.layout.Disk("pv-1"), dir, "", unix.MS_BIND, ""))
		return dir
	}
	steps := map[string]func(t *testing.T, h *Host, device string){
		"nothing done":         func(*testing.T, *Host, string) {},
		"marked":               identify,
		"marked and half made": func(t *testing.T, h *Host, device string) { halfMade(t, device); identify(t, h, device) },
		"marked and made":      func(t *testing.T, h *Host, device string) { tool(t, "mkfs.ext4", "-q", device); identify(t, h, device) },
		"made, folder": func(t *testing.T, h *Host, device string) {
			tool(t, "mkfs.ext4", "-q", device)
			must(t, makeDir(h.layout.Disk("pv-1")))
		},
		"mounted, with the mark": func(t *testing.T, h *Host, device string) {
			tool(t, "mkfs.ext4", "-q", device)
			identify(t, h, device)
			mountGlobal(t, h, device)
		},
		"mounted": func(t *testing.T, h *Host, device string) {
			tool(t, "mkfs.ext4", "-q", device)
			mountGlobal(t, h, device)
		},
		"bound": func(t *testing.T, h *Host, device string) {
			tool(t, "mkfs.ext4", "-q", device)
			mountGlobal(t, h, device)
			bound(t, h)
		},
		"bound, and the first mount undone by hand": func(t *testing.T, h *Host, device string) {
			tool(t, "mkfs.ext4", "-q", device)
			mountGlobal(t, h, device)
			bound(t, h)
			must(t, unmount(h.layout.Disk("pv-1")))
		},
		"torn down up to the first mount": func(t *testing.T, h *Host, device string) {
			tool(t, "mkfs.ext4", "-q", device)
			mountGlobal(t, h, device)
			must(t, unmount(bound(t, h)))
		},
		"torn down up to the folders": func(t *testing.T, h *Host, device string) {
			tool(t, "mkfs.ext4", "-q", device)
			mountGlobal(t, h, device)
			must(t, unmount(bound(t, h)))
			must(t, unmount(h.layout.Disk("pv-1")))
		},
	}
	for name, step := range steps {
		t.Run(name, func(t *testing.T) {
			h, device := newDiskHost(t, 16<<20)
			step(t, h, device)
			v := onDisk("pv-1", device)
			next := New(Config{Dir: string(h.layout), Log: h.log})
			path, err := setUpFor(t, next, uid, v)
			must(t, err)
			write(t, filepath.Join(path, "file"), "data")
			if exists(h.layout.Formatting("pv-1")) {
				t.Error("the mark is left")
			}
			must(t, next.TearDown(t.Context(), uid, v.ID))
			must(t, next.RemovePod(t.Context(), uid))
			if left := mountsBelow(t, string(h.layout)); len(left) > 0 || exists(h.layout.Disk("pv-1")) {
				t.Errorf("left: %v", left)
			}
		})
		t.Run(name+", and the pod is gone", func(t *testing.T) {
			h, device := newDiskHost(t, 16<<20)
			step(t, h, device)
			next := New(Config{Dir: string(h.layout), Log: h.log})
			found, err := next.Found(t.Context())
			must(t, err)
			for _, f := range found {
				must(t, next.TearDown(t.Context(), f.PodUID, f.ID))
			}
			must(t, next.RemovePod(t.Context(), uid))
			if left := mountsBelow(t, string(h.layout)); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}
