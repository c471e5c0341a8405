package hoststats

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/cadvisormetrics"
	"github.com/holdfast-dev/holdfast/internal/cgroupfs"
)

const diskstats = `   7       0 loop0 9 9 9 9 9 9 9 9 9 9 9
   8       1 sda1 10 1 2048 3000 20 2 4096 4000 5 6000 7000 497 0 68321728 522 5102 7224
   8       2 sda2 1 2 x 4 5 6 7 8 9 10 11
   8       3 sda3 1 2
`

func TestDeviceWork(t *testing.T) {
	host := fakeHost(t, map[string]string{"proc/diskstats": diskstats})
	got, ok, err := host.DeviceWork("/dev/sda1")
	want := cadvisormetrics.Device{
		Name: "/dev/sda1", IO: cgroupfs.DeviceIO{Major: 8, Minor: 1, Reads: 10, ReadBytes: 1 << 20, Writes: 20, WriteBytes: 2 << 20},
		Queue: &cadvisormetrics.Queue{ReadsMerged: 1, WritesMerged: 2, ReadTime: 3 * time.Second, WriteTime: 4 * time.Second, Current: 5, Busy: 6 * time.Second, Weighted: 7 * time.Second},
	}
	if diff := cmp.Diff(got, want); !ok || err != nil || diff != "" {
		t.Errorf("%v, %v (-got +want):\n%s", ok, err, diff)
	}
	for _, name := range []string{"/dev/sda2", "/dev/sda3", "/dev/sdb", ""} {
		if got, ok, err := host.DeviceWork(name); ok || err != nil {
			t.Errorf("%q: %+v, %v", name, got, err)
		}
	}
	if _, _, err := fakeHost(t, nil).DeviceWork("/dev/sda1"); err == nil {
		t.Error("no file and no error")
	}
}

func FuzzParseDiskstats(f *testing.F) {
	f.Add([]byte(diskstats), "sda1")
	f.Add([]byte("1 2 3"), "3")
	f.Fuzz(func(t *testing.T, content []byte, device string) {
		if got, ok := parseDiskstats(content, device); ok == (got.Queue == nil) {
			t.Errorf("%v, %+v", ok, got)
		}
	})
}

func TestDevice(t *testing.T) {
	host := fakeHost(t, map[string]string{"sys/devices/pci/block/sda/sda1/dev": "8:1\n"})
	dir := filepath.Join(host.root, "sys/dev/block")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../../devices/pci/block/sda/sda1", filepath.Join(dir, "8:1")); err != nil {
		t.Fatal(err)
	}
	if got := host.Device(8, 1); got != "/dev/sda1" {
		t.Errorf("8:1 is %q", got)
	}
	if got := host.Device(0, 42); got != "" {
		t.Errorf("no device is %q", got)
	}
}
