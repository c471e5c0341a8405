// Package hoststats reads what the machine is and how full it is, from /proc,
// /sys, /etc, /run and the filesystem of the kubelet's folder. It writes nothing.
// Each call reads anew; only the resolver settings are kept, for when they
// cannot be read. Everything may be used by several goroutines.
package hoststats

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// A Host is the machine we run on.
type Host struct {
	dir  string // the folder whose filesystem holds pods
	root string // in front of /proc, /sys and /etc; empty but in tests
}

// New describes this machine; dir is the kubelet's folder, whose filesystem is
// the node's ephemeral storage.
func New(dir string) *Host { return &Host{dir: dir} }

// Machine returns what the machine has (CPU, memory, ephemeral storage, huge
// pages) and what it is. Facts that the machine does not offer are left empty;
// only unreadable memory or storage is an error.
func (h *Host) Machine() (v1.ResourceList, v1.NodeSystemInfo, error) {
	meminfo, err := h.meminfo()
	if err != nil {
		return nil, v1.NodeSystemInfo{}, err
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(h.dir, &disk); err != nil {
		return nil, v1.NodeSystemInfo{}, &fs.PathError{Op: "statfs", Path: h.dir, Err: err}
	}
	has := v1.ResourceList{
		v1.ResourceCPU:              *resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI),
		v1.ResourceMemory:           *resource.NewQuantity(meminfo["MemTotal"], resource.BinarySI),
		v1.ResourceEphemeralStorage: *resource.NewQuantity(int64(disk.Blocks)*disk.Frsize, resource.BinarySI),
	}
	if err := h.hugePages(has); err != nil {
		return nil, v1.NodeSystemInfo{}, err
	}
	info := v1.NodeSystemInfo{
		MachineID:       h.line("etc/machine-id", "var/lib/dbus/machine-id"),
		SystemUUID:      strings.ToLower(h.line("sys/class/dmi/id/product_uuid", "proc/device-tree/vm,uuid", "etc/machine-id")),
		BootID:          h.line("proc/sys/kernel/random/boot_id"),
		KernelVersion:   h.line("proc/sys/kernel/osrelease"),
		OSImage:         h.osImage(),
		OperatingSystem: runtime.GOOS,
		Architecture:    runtime.GOARCH,
	}
	if swap := meminfo["SwapTotal"]; swap > 0 {
		info.Swap = &v1.NodeSwapStatus{Capacity: &swap}
	}
	return has, info, nil
}

// Free returns how full the machine is: its memory, its swap, and its process identifiers.
// Available is the memory that is free or holds file pages that were not used
// lately, the working set is all other, as the upstream kubelet counts them.
func (h *Host) Free() (stats.NodeStats, error) {
	meminfo, err := h.meminfo()
	if err != nil {
		return stats.NodeStats{}, err
	}
	maxPID, err := h.maxTasks()
	if err != nil {
		return stats.NodeStats{}, err
	}
	tasks, err := h.tasks()
	if err != nil {
		return stats.NodeStats{}, err
	}
	whole := uint64(meminfo["MemTotal"])
	available := min(uint64(meminfo["MemFree"]+meminfo["Inactive(file)"]), whole)
	swapFree := min(uint64(meminfo["SwapFree"]), uint64(meminfo["SwapTotal"]))
	return stats.NodeStats{
		Memory: &stats.MemoryStats{AvailableBytes: &available, WorkingSetBytes: new(whole - available)},
		Rlimit: &stats.RlimitStats{MaxPID: &maxPID, NumOfRunningProcesses: &tasks},
		Swap:   &stats.SwapStats{SwapAvailableBytes: &swapFree, SwapUsageBytes: new(uint64(meminfo["SwapTotal"]) - swapFree)},
	}, nil
}

// Filesystem returns how full the filesystem is that holds path, and which
// device that is. Its capacity is without what is kept for root.
func (h *Host) Filesystem(path string) (used stats.FsStats, device uint64, err error) {
	var disk unix.Statfs_t
	if err := unix.Statfs(path, &disk); err != nil {
		return stats.FsStats{}, 0, &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	var file unix.Stat_t
	if err := unix.Stat(path, &file); err != nil {
		return stats.FsStats{}, 0, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return stats.FsStats{
		AvailableBytes: new(disk.Bavail * uint64(disk.Frsize)),
		CapacityBytes:  new(blocks(&disk) * uint64(disk.Frsize)),
		InodesFree:     new(disk.Ffree),
		Inodes:         new(disk.Files),
	}, file.Dev, nil
}

// maxTasks returns how many processes and threads there may be: the smaller of
// two limits of the kernel's.
func (h *Host) maxTasks() (int64, error) {
	most, err := strconv.ParseInt(h.line("proc/sys/kernel/pid_max"), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read pid_max: %w", err)
	}
	if threads, err := strconv.ParseInt(h.line("proc/sys/kernel/threads-max"), 10, 64); err == nil {
		most = min(most, threads)
	}
	return most, nil
}

// meminfo reads /proc/meminfo into bytes.
func (h *Host) meminfo() (map[string]int64, error) {
	content, err := os.ReadFile(filepath.Join("/", h.root, "proc/meminfo"))
	if err != nil {
		return nil, err
	}
	values := parseMeminfo(content)
	for _, key := range []string{"MemTotal", "MemFree"} {
		if values[key] == 0 {
			return nil, fmt.Errorf("/proc/meminfo has no %s", key)
		}
	}
	return values, nil
}

// parseMeminfo reads the lines `Name:   123 kB` into bytes. Lines that are not
// of that form, and values too big to be bytes, are left out.
func parseMeminfo(content []byte) map[string]int64 {
	values := map[string]int64{}
	for line := range bytes.Lines(content) {
		name, rest, _ := strings.Cut(string(line), ":")
		number, isKB := strings.CutSuffix(strings.TrimSpace(rest), " kB")
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil || !isKB || n < 0 || n > 1<<52 {
			continue
		}
		values[name] = n << 10
	}
	return values
}

// tasks returns how many processes and threads exist: the fourth field of
// /proc/loadavg is running/existing.
func (h *Host) tasks() (int64, error) {
	fields := strings.Fields(h.line("proc/loadavg"))
	if len(fields) < 4 {
		return 0, errors.New("/proc/loadavg has no task count")
	}
	_, existing, _ := strings.Cut(fields[3], "/")
	n, err := strconv.ParseInt(existing, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read /proc/loadavg: %w", err)
	}
	return n, nil
}

// hugePages adds one resource a page size that the kernel has, as the upstream
// kubelet does, even where none is reserved.
func (h *Host) hugePages(has v1.ResourceList) error {
	dirs, err := filepath.Glob(filepath.Join("/", h.root, "sys/kernel/mm/hugepages/hugepages-*kB"))
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		text := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(dir), "hugepages-"), "kB")
		kib, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			continue // no size of the kernel's
		}
		content, err := os.ReadFile(filepath.Join(dir, "nr_hugepages"))
		if err != nil {
			return err
		}
		count, err := strconv.ParseInt(string(bytes.TrimSpace(content)), 10, 64)
		if err != nil {
			return fmt.Errorf("read %s: %w", dir, err)
		}
		size := resource.NewQuantity(kib<<10, resource.BinarySI)
		has[v1.ResourceName(v1.ResourceHugePagesPrefix+size.String())] = *resource.NewQuantity(count*kib<<10, resource.BinarySI)
	}
	return nil
}

// osImage returns the distribution's own name for itself.
func (h *Host) osImage() string {
	for _, name := range []string{"etc/os-release", "usr/lib/os-release"} {
		content, err := os.ReadFile(filepath.Join("/", h.root, name))
		if err != nil {
			continue
		}
		scanner := bufio.NewScanner(bytes.NewReader(content))
		for scanner.Scan() {
			if value, ok := strings.CutPrefix(scanner.Text(), "PRETTY_NAME="); ok {
				return strings.Trim(value, `"'`)
			}
		}
	}
	return "Unknown"
}

// line returns the first of the files that can be read, without surrounding
// space, or nothing.
func (h *Host) line(names ...string) string {
	for _, name := range names {
		if content, err := os.ReadFile(filepath.Join("/", h.root, name)); err == nil {
			return strings.Trim(string(content), " \t\r\n\x00")
		}
	}
	return ""
}
