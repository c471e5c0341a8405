package doctor

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// text returns what a file of the kernel says; nothing if there is none.
func text(file string) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	return string(data)
}

// number returns the number in a file; -1 where there is none.
func number(file string) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(text(file)), 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// capabilities returns the effective ones of /proc/PID/status.
func capabilities(status string) uint64 {
	for line := range strings.Lines(status) {
		if hex, ok := strings.CutPrefix(line, "CapEff:"); ok {
			bits, _ := strconv.ParseUint(strings.TrimSpace(hex), 16, 64) // 0: none
			return bits
		}
	}
	return 0
}

// memory returns the sizes of memory and of swap, in bytes.
func memory(meminfo string) (mem, swap int64) {
	for line := range strings.Lines(meminfo) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		kib, _ := strconv.ParseInt(fields[1], 10, 64) // 0: not known
		switch fields[0] {
		case "MemTotal:":
			mem = kib << 10
		case "SwapTotal:":
			swap = kib << 10
		}
	}
	return mem, swap
}

// cgroups says which controllers are in which hierarchy.
func cgroups(mountinfo, controllers, unified string) Cgroups {
	var c Cgroups
	for line := range strings.Lines(mountinfo) {
		before, after, ok := strings.Cut(line, " - ")
		fields, kind := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 5 || len(kind) < 3 {
			continue
		}
		switch kind[0] {
		case "cgroup2":
			c.Known, c.V2Mounted = true, true
			if fields[4] == "/sys/fs/cgroup" {
				c.V2Only, c.V2 = true, strings.Fields(unified)
			}
		case "cgroup":
			c.Known = true
			for option := range strings.SplitSeq(kind[2], ",") {
				if isController(controllers, option) {
					c.V1 = append(c.V1, option)
				}
			}
		}
	}
	slices.Sort(c.V1)
	return c
}

// isController reports whether name heads a line of /proc/cgroups.
func isController(controllers, name string) bool {
	for line := range strings.Lines(controllers) {
		if head, _, _ := strings.Cut(line, "\t"); head == name {
			return true
		}
	}
	return false
}

// nameservers returns the servers of a resolv.conf.
func nameservers(conf string) []string {
	var servers []string
	for line := range strings.Lines(conf) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "nameserver" {
			servers = append(servers, fields[1])
		}
	}
	return servers
}

// known are programs that share ports or firewall rules with a node, or run
// pods themselves.
var known = []string{"dockerd", "containerd", "kubelet", "k3s", "k0s", "microk8s", "crio", "podman", "firewalld", "ufw"}

// neighbours returns those of the known programs that run, but for what runs
// for the node in the folder root.
func neighbours(root string) []string {
	var list []string
	for _, pid := range processes() {
		ours := strings.Contains(text(filepath.Join("/proc", strconv.Itoa(pid), "cmdline")), root+"/")
		if !ours && slices.Contains(known, command(pid)) {
			list = append(list, describe(pid))
		}
	}
	return list
}

// listening returns who listens on which TCP port; 0 where it cannot be seen.
func listening() map[int]int {
	sockets := map[string]int{} // inode → port
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		maps.Copy(sockets, listeners(text(file)))
	}
	owners := map[int]int{}
	for _, port := range sockets {
		owners[port] = 0
	}
	for _, pid := range processes() {
		links, _ := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "fd", "*")) // none: it has ended
		for _, link := range links {
			target, _ := os.Readlink(link)
			inode, ok := strings.CutPrefix(target, "socket:[")
			if port, listens := sockets[strings.TrimSuffix(inode, "]")]; ok && listens {
				owners[port] = pid
			}
		}
	}
	return owners
}

// listeners returns the sockets of a /proc/net/tcp that listen, by inode.
func listeners(table string) map[string]int {
	const stateListen, columns = "0A", 10
	found := map[string]int{}
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) < columns || fields[3] != stateListen {
			continue
		}
		_, hex, _ := strings.Cut(fields[1], ":")
		if port, err := strconv.ParseUint(hex, 16, 16); err == nil {
			found[fields[9]] = int(port)
		}
	}
	return found
}

func processes() []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

func command(pid int) string {
	return strings.TrimSpace(text(filepath.Join("/proc", strconv.Itoa(pid), "comm")))
}

// describe names a process.
func describe(pid int) string {
	if pid == 0 {
		return "a program that cannot be seen from here"
	}
	return fmt.Sprintf("%s (PID %d)", command(pid), pid)
}

// modules returns the names of what the running kernel has built in, has
// loaded, or can load.
func modules() string {
	var release unix.Utsname
	if unix.Uname(&release) != nil {
		return ""
	}
	dir := filepath.Join("/lib/modules", unix.ByteSliceToString(release.Release[:]))
	return text(filepath.Join(dir, "modules.builtin")) + text(filepath.Join(dir, "modules.dep")) + text("/proc/modules")
}

func openFiles() uint64 {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return limit.Max
}

// unsynced reports whether the kernel says that nobody keeps its clock right.
func unsynced() bool {
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	return err == nil && state == unix.TIME_ERROR
}
