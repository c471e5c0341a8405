package doctor

import (
	"context"
	"errors"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// good is a machine on which nothing is wrong: a Debian with cgroup v2.
func good() Host {
	return Host{
		Config:       Config{RuntimeDir: "/usr/libexec/holdfast"},
		Capabilities: 1<<41 - 1,
		Programs:     []Program{{Name: "containerd", Version: "containerd v2.4.2"}, {Name: "cni/bridge"}},
		Cgroups:      Cgroups{V2: strings.Fields("cpuset cpu io memory hugetlb pids"), V2Only: true, V2Mounted: true, Known: true},
		Memory:       4 << 30,
		Now:          time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC),
		Disk:         Disk{Path: "/var/lib", Type: "ext4", Free: 50 << 30, FreeFiles: 1e6, Persistent: true},
		Ports:        []Port{{Name: "--api-port", Number: 6443}, {Name: "--kubelet-port", Number: 10250}},
		Forwarding:   "1", Iptables: Program{Path: "/usr/sbin/iptables", Version: "iptables v1.8.9"}, ForwardPolicy: "ACCEPT",
		Filesystems: "nodev\tproc\n\text4\n", Modules: "kernel/fs/overlayfs/overlay.ko.xz: \nkernel/net/bridge/bridge.ko\n",
		Seccomp: true, AppArmor: true, UserNamespaces: 15000, InotifyWatches: 65536, InotifyUsers: 1024, PIDs: 32768, OpenFiles: 65536,
		Nameservers: []string{"192.0.2.1"},
	}
}

func TestGoodMachine(t *testing.T) {
	for _, f := range Judge(good()) {
		if f.Level != OK {
			t.Errorf("%+v", f)
		}
	}
}

// TestJudge changes one thing about a good machine and wants just one finding.
func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Host)
		id     string
		level  Level
		found  string // a part of it
	}{
		{"not root", func(h *Host) { h.EUID, h.Capabilities = 1000, 0 }, "root", Error, "user 1000"},
		{"in a container", func(h *Host) { h.Capabilities &^= 1 << 21 }, "capabilities", Error, "CAP_SYS_ADMIN"},
		{"no CAP_SYS_RESOURCE", func(h *Host) { h.Capabilities &^= 1 << 24 }, "oom-scores", Note, "CAP_SYS_RESOURCE"},
		{"no runtime folder", func(h *Host) { h.RuntimeDir, h.RuntimeErr = "", errors.New("no containerd beside the binary") }, "runtime", Error, "beside"},
		{"a plugin is missing", func(h *Host) { h.Programs[1].Err = os.ErrNotExist }, "runtime", Error, "cni/bridge"},
		{"cgroup v1", func(h *Host) { h.Cgroups = Cgroups{V1: strings.Fields("blkio cpu memory pids"), Known: true} }, "cgroups", Note, "cgroup v1"},
		{
			"hybrid", func(h *Host) {
				h.Cgroups = Cgroups{V1: strings.Fields("blkio cpu memory pids"), V2Mounted: true, Known: true}
			}, "cgroups", Note, "cgroup hybrid",
		},
		{"memory is off at boot", func(h *Host) { h.Cgroups.V2 = strings.Fields("cpuset cpu io pids") }, "cgroups", Error, "lacks memory"},
		{"no cpuset", func(h *Host) { h.Cgroups.V2 = strings.Fields("cpu io memory hugetlb pids") }, "cgroups", Note, "lacks cpuset"},
		{"no cgroups", func(h *Host) { h.Cgroups = Cgroups{} }, "cgroups", Error, "no cgroup hierarchy"},
		{"swap", func(h *Host) { h.Swap = 1 << 30 }, "swap", Note, "1024 MiB"},
		{"little memory", func(h *Host) { h.Memory = 128 << 20 }, "memory", Warning, "128 MiB"},
		{"clock of 1970", func(h *Host) { h.Now = time.Unix(100, 0) }, "clock", Warning, "1970"},
		{"no time service", func(h *Host) { h.Unsynced = true }, "time-service", Note, "clock"},
		{"5 MiB free", func(h *Host) { h.Disk.Free = 5 << 20 }, "disk", Error, "5 MiB"},
		{"1 GiB free", func(h *Host) { h.Disk.Free = 1 << 30 }, "disk", Warning, "1024 MiB"},
		{"read-only root", func(h *Host) { h.Disk.ReadOnly = true }, "disk", Error, "read-only"},
		{"noexec", func(h *Host) { h.Disk.NoExec = true }, "disk", Error, "noexec"},
		{"nodev", func(h *Host) { h.Disk.NoDev = true }, "disk", Warning, "nodev"},
		{"in memory", func(h *Host) { h.Disk.Type, h.Disk.Persistent = "tmpfs", false }, "disk", Warning, "tmpfs"},
		{"disk that fails", func(h *Host) { h.Disk = Disk{Path: "/srv", Err: errors.New("input/output error")} }, "disk", Error, "/srv: input/output error"},
		{"no inodes", func(h *Host) { h.Disk.FreeFiles = 12 }, "inodes", Warning, "12 free"},
		{"on an overlay", func(h *Host) { h.Disk.Type = "overlay" }, "overlay", Error, "is overlay"},
		{"kernel without overlay", func(h *Host) { h.Modules = "kernel/net/bridge/bridge.ko\n" }, "overlay", Error, "no overlay"},
		{"kernel without bridge", func(h *Host) { h.Modules = "kernel/fs/overlayfs/overlay.ko\n" }, "bridge", Error, "no bridge"},
		{"port taken", func(h *Host) { h.Ports[0].Owner = "k3s (PID 7)" }, "port-api", Error, "6443 is taken by k3s (PID 7)"},
		{"no forwarding", func(h *Host) { h.Forwarding = "0" }, "ip-forward", Note, "off"},
		{"no iptables", func(h *Host) { h.Iptables = Program{Err: os.ErrNotExist} }, "iptables", Error, "not found"},
		{"iptables without its modules", func(h *Host) { h.Iptables.Err = errors.New("exit status 3") }, "iptables", Error, "exit status 3"},
		{"Docker", func(h *Host) { h.ForwardPolicy = "DROP" }, "forward-policy", Note, "DROP"},
		{"Docker runs", func(h *Host) { h.Neighbours = []string{"dockerd (PID 5)"} }, "neighbours", Note, "dockerd (PID 5)"},
		{"no seccomp", func(h *Host) { h.Seccomp = false }, "seccomp", Warning, "seccomp"},
		{"no AppArmor", func(h *Host) { h.AppArmor = false }, "apparmor", Note, "off"},
		{"no user namespaces", func(h *Host) { h.UserNamespaces = 0 }, "user-namespaces", Note, "none"},
		{"few watches", func(h *Host) { h.InotifyWatches = 100 }, "inotify", Warning, "100 watches"},
		{"no inotify", func(h *Host) { h.InotifyWatches = -1 }, "inotify", Warning, "no inotify"},
		{"few processes", func(h *Host) { h.PIDs = 1000 }, "pids", Warning, "1000"},
		{"few open files", func(h *Host) { h.OpenFiles = 1024 }, "open-files", Warning, "1024"},
		{"no DNS", func(h *Host) { h.Nameservers = nil }, "dns", Note, "no server"},
		{"DNS stub", func(h *Host) { h.Nameservers = []string{"127.0.0.53"} }, "dns", Note, "127.0.0.53"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := good()
			c.change(&h)
			var wrong []Finding
			for _, f := range Judge(h) {
				if f.Level != OK {
					wrong = append(wrong, f)
				}
			}
			if len(wrong) != 1 || wrong[0].ID != c.id || wrong[0].Level != c.level || !strings.Contains(wrong[0].Found, c.found) {
				t.Fatalf("got %+v, want one finding %s of level %s about %q", wrong, c.id, c.level, c.found)
			}
			f := wrong[0]
			if f.Why == "" || f.Level != Note && f.Remedy == "" {
				t.Errorf("no reason or remedy: %+v", f)
			}
		})
	}
}

func TestOwnRuntime(t *testing.T) {
	h := good()
	h.Endpoint, h.RuntimeDir, h.Programs = "unix:///run/containerd/containerd.sock", "", nil
	h.Runtime = Endpoint{Name: "containerd", Version: "1.6.20", API: "v1"}
	h.Iptables, h.Forwarding = Program{Err: os.ErrNotExist}, "0" // that runtime's matter
	if worst := Worst(Judge(h)); worst != Note {
		t.Errorf("got %s, want a note about the network: %+v", worst, Judge(h))
	}
	h.Runtime.API = "v1alpha2"
	if worst := Worst(Judge(h)); worst != Error {
		t.Errorf("an old CRI: got %s", worst)
	}
	h.Runtime = Endpoint{Err: errors.New("connection refused")}
	if worst := Worst(Judge(h)); worst != Error {
		t.Errorf("a runtime that does not answer: got %s", worst)
	}
}

func TestRunningNodeOwnsItsPorts(t *testing.T) {
	h := good()
	h.Ports[0].Owner, h.Ports[0].Ours = "holdfast (PID 9)", true
	if worst := Worst(Judge(h)); worst != OK {
		t.Errorf("got %s", worst)
	}
}

func TestIDsAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range Judge(good()) {
		if seen[f.ID] {
			t.Errorf("%s twice", f.ID)
		}
		seen[f.ID] = true
	}
}

// TestRead reads this machine, whatever it is.
func TestRead(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	port := l.Addr().(*net.TCPAddr).Port
	h := Read(t.Context(), Config{Root: t.TempDir() + "/later/still", NodePID: os.Getpid(), KubeletPort: port}, time.Now())
	if h.Memory == 0 || h.Filesystems == "" || h.Disk.Free == 0 || h.Disk.Err != nil || h.OpenFiles == 0 {
		t.Errorf("got %+v", h)
	}
	want := []Port{{Name: "--kubelet-port", Number: port, Owner: describe(os.Getpid()), Ours: true}}
	if diff := cmp.Diff(want, h.Ports); diff != "" {
		t.Error(diff)
	}
}

func TestPrograms(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"runc": 0o755, "ctr": 0o644, "shim": 0o755} {
		if err := os.WriteFile(dir+"/"+name, []byte("#!/bin/sh\necho runc version 1.5.3\necho more\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	got := runtimePrograms(t.Context(), dir, []string{"runc", "ctr", "shim", "gone"})
	if p := got[0]; p.Err != nil || p.Version != "runc version 1.5.3" {
		t.Errorf("runc: %+v", p)
	}
	if p := got[1]; !errors.Is(p.Err, os.ErrPermission) {
		t.Errorf("ctr, which may not be run: %+v", p)
	}
	if p := got[2]; p.Err != nil {
		t.Errorf("shim: %+v", p)
	}
	if p := got[3]; !errors.Is(p.Err, os.ErrNotExist) {
		t.Errorf("gone: %+v", p)
	}
}

func TestAskRuntime(t *testing.T) {
	if e := askRuntime(t.Context(), "unix://"+t.TempDir()+"/none.sock"); e.Err == nil {
		t.Errorf("got %+v of a socket that is not there", e)
	}
	hung := filepath.Join(t.TempDir(), "hung.sock")
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", hung)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if e := askRuntime(ctx, "unix://"+hung); e.Err == nil || !strings.Contains(e.Err.Error(), "no answer") {
		t.Errorf("got %+v of a socket that nobody answers at", e)
	}
}

func TestParsers(t *testing.T) {
	const controllers = "#subsys_name\thierarchy\ncpu\t1\ncpuacct\t1\nmemory\t2\n"
	mountinfo := strings.Join([]string{
		"30 20 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755",
		"31 30 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw",
		"32 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct",
		"33 30 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory", "",
	}, "\n")
	want := Cgroups{V1: []string{"cpu", "cpuacct", "memory"}, V2Mounted: true, Known: true}
	if diff := cmp.Diff(want, cgroups(mountinfo, controllers, "")); diff != "" {
		t.Error("hybrid:", diff)
	}
	want = Cgroups{V2: []string{"cpu", "memory"}, V2Only: true, V2Mounted: true, Known: true}
	if diff := cmp.Diff(want, cgroups("31 30 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "", "cpu memory\n")); diff != "" {
		t.Error("v2:", diff)
	}
	if mem, swap := memory("MemTotal:   2048 kB\nSwapTotal: 1024 kB\n"); mem != 2<<20 || swap != 1<<20 {
		t.Errorf("memory: %d, %d", mem, swap)
	}
	table := "  sl  local_address rem_address st\n" +
		"   0: 0100007F:192B 00000000:0000 0A 0:0 0:0 0 0 0 4711 1\n" +
		"   1: 0100007F:01BB 00000000:0000 01 0:0 0:0 0 0 0 4712 1\n"
	if got := listeners(table); !maps.Equal(got, map[string]int{"4711": 6443}) {
		t.Errorf("listeners: %v", got)
	}
	if got := capabilities("CapPrm:\t0\nCapEff:\t000001ffffffffff\n"); got != 1<<41-1 {
		t.Errorf("capabilities: %x", got)
	}
	if got := nameservers("# none\nsearch x\nnameserver 192.0.2.1\nnameserver  ::1\n"); !slices.Equal(got, []string{"192.0.2.1", "::1"}) {
		t.Errorf("nameservers: %v", got)
	}
	for list, want := range map[string]bool{
		"kernel/net/br_netfilter.ko.zst: kernel/net/bridge.ko": true, "br_netfilter 32768 0 - Live": true, "kernel/net/br-netfilter.ko": true, "kernel/net/br_netfilterx.ko": false,
	} {
		if got := hasModule(list+"\n", "br_netfilter"); got != want {
			t.Errorf("hasModule(%q): %v", list, got)
		}
	}
}

// TestDisk looks at filesystems that every machine has.
func TestDisk(t *testing.T) {
	if d := disk("/proc/none/at/all"); d.Path != "/proc" || d.Err != nil {
		t.Errorf("got %+v", d)
	}
	if d := disk("/proc/1/comm/below"); d.Err == nil {
		t.Errorf("below a file: got %+v", d)
	}
	if filesystems[unix.TMPFS_MAGIC] != "tmpfs" {
		t.Error("tmpfs has no name")
	}
}

// FuzzParsers holds that nothing that a kernel says makes the doctor panic.
func FuzzParsers(f *testing.F) {
	f.Add("31 30 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
	f.Add("   0: 0100007F:192B 00000000:0000 0A 0:0 0:0 0 0 0 4711 1\n")
	f.Add("MemTotal:   2048 kB\nCapEff:\t1f\nnameserver ::1\n")
	f.Fuzz(func(t *testing.T, s string) {
		cgroups(s, s, s)
		memory(s)
		capabilities(s)
		nameservers(s)
		hasModule(s, "overlay")
		for inode, port := range listeners(s) {
			if inode == "" || port < 0 || port > 65535 {
				t.Errorf("socket %q listens on %d", inode, port)
			}
		}
	})
}
