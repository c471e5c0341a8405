package hoststats

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

// fakeHost is a machine of files.
func fakeHost(t *testing.T, files map[string]string) *Host {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return &Host{dir: root, root: root}
}

var files = map[string]string{
	"proc/meminfo":                   "MemTotal:  2048 kB\nMemFree:  500 kB\nMemAvailable:  900 kB\nInactive(file):  12 kB\nSwapTotal:  4 kB\nSwapFree:  1 kB\nHugePages_Total:  3\n",
	"proc/loadavg":                   "0.00 0.01 0.05 1/234 5678\n",
	"proc/sys/kernel/pid_max":        "32768\n",
	"proc/sys/kernel/osrelease":      "6.1.0-test\n",
	"proc/sys/kernel/random/boot_id": "boot-1\n",
	"etc/machine-id":                 "machine-1\n",
	"sys/class/dmi/id/product_uuid":  "ABCD-1\n",
	"etc/os-release":                 "NAME=x\nPRETTY_NAME=\"Test Linux 1\"\n",
	"sys/kernel/mm/hugepages/x":      "",
	"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "3\n",
}

func TestMachine(t *testing.T) {
	has, info, err := fakeHost(t, files).Machine()
	if err != nil {
		t.Fatal(err)
	}
	swap := int64(4096)
	if info.Swap == nil || *info.Swap.Capacity != swap {
		t.Errorf("swap = %v, want %d bytes", info.Swap, swap)
	}
	info.Swap, info.Architecture = nil, ""
	want := v1.NodeSystemInfo{
		MachineID: "machine-1", SystemUUID: "abcd-1", BootID: "boot-1", KernelVersion: "6.1.0-test",
		OSImage: "Test Linux 1", OperatingSystem: "linux",
	}
	if diff := cmp.Diff(want, info); diff != "" {
		t.Errorf("info (-want +got):\n%s", diff)
	}
	if got := has.Memory().Value(); got != 2<<20 {
		t.Errorf("memory = %d, want %d", got, 2<<20)
	}
	pages := has["hugepages-2Mi"]
	if got := pages.Value(); got != 6<<20 {
		t.Errorf("huge pages = %d bytes, want %d", got, 6<<20)
	}
	if got := has.StorageEphemeral().Value(); got <= 0 {
		t.Errorf("ephemeral storage = %d, want more than nothing", got)
	}
}

func TestFree(t *testing.T) {
	free, err := fakeHost(t, files).Free()
	if err != nil {
		t.Fatal(err)
	}
	if got := [2]uint64{*free.Memory.AvailableBytes, *free.Memory.WorkingSetBytes}; got != [2]uint64{512 << 10, 1536 << 10} {
		t.Errorf("available memory and working set = %v, want 512 KiB and the rest of 2 MiB", got)
	}
	if got := [2]uint64{*free.Swap.SwapAvailableBytes, *free.Swap.SwapUsageBytes}; got != [2]uint64{1 << 10, 3 << 10} {
		t.Errorf("swap that is left and used = %v, want 1 and 3 KiB", got)
	}
	if got := [2]int64{*free.Rlimit.NumOfRunningProcesses, *free.Rlimit.MaxPID}; got != [2]int64{234, 32768} {
		t.Errorf("tasks and their bound = %v, want 234 of 32768", got)
	}
}

func TestFilesystem(t *testing.T) {
	dir := t.TempDir()
	disk, device, err := New(dir).Filesystem(dir)
	if err != nil {
		t.Fatal(err)
	}
	if *disk.CapacityBytes == 0 || *disk.CapacityBytes < *disk.AvailableBytes {
		t.Errorf("%d bytes free of %d", *disk.AvailableBytes, *disk.CapacityBytes)
	}
	if _, proc, err := New(dir).Filesystem("/proc"); err != nil || proc == device {
		t.Errorf("/proc is on device %d as is %s (%v)", proc, dir, err)
	}
	if _, _, err := New(dir).Filesystem(filepath.Join(dir, "none")); err == nil {
		t.Error("a folder that is not there has a filesystem")
	}
}

func TestThisMachine(t *testing.T) {
	host := New(t.TempDir())
	has, info, err := host.Machine()
	if err != nil {
		t.Fatal(err)
	}
	if has.Cpu().Value() < 1 || info.KernelVersion == "" || info.BootID == "" {
		t.Errorf("machine = %v, %+v", has, info)
	}
	if _, err := host.Free(); err != nil {
		t.Error(err)
	}
}

func TestUnreadable(t *testing.T) {
	for name, missing := range map[string]string{"memory": "proc/meminfo", "tasks": "proc/loadavg", "bound": "proc/sys/kernel/pid_max"} {
		t.Run(name, func(t *testing.T) {
			host := fakeHost(t, files)
			if err := os.Remove(filepath.Join(host.root, missing)); err != nil {
				t.Fatal(err)
			}
			if _, err := host.Free(); err == nil {
				t.Errorf("Free without %s = nil, want an error", missing)
			}
		})
	}
}

func FuzzParseMeminfo(f *testing.F) {
	f.Add([]byte(files["proc/meminfo"]))
	f.Add([]byte("MemTotal: 9223372036854775807 kB\n:\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		for name, value := range parseMeminfo(content) {
			if value < 0 {
				t.Errorf("%q = %d", name, value)
			}
		}
	})
}
