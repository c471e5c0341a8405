// Package procfs reads what processes use, and what machine this is, from /proc, for benchmarks.
package procfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Usage is what a process holds and what it has used. Sizes are in bytes.
type Usage struct {
	Anon    int64         `json:"rssAnon"`
	RSS     int64         `json:"rss"`
	CPU     time.Duration `json:"cpu"`
	Written int64         `json:"written"` // to disks
}

// ReadUsage reads the Usage of one process.
func ReadUsage(pid int) (Usage, error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return Usage{}, err
	}
	threads, err := filepath.Glob(filepath.Join(dir, "task", "*", "schedstat"))
	if err != nil {
		return Usage{}, err
	}
	io, err := os.ReadFile(filepath.Join(dir, "io"))
	if err != nil {
		return Usage{}, err
	}
	var u Usage
	if u.Anon, err = kibField(string(status), "RssAnon:"); err != nil {
		return Usage{}, err
	}
	if u.RSS, err = kibField(string(status), "VmRSS:"); err != nil {
		return Usage{}, err
	}
	if u.Written, err = numberField(string(io), "write_bytes:"); err != nil {
		return Usage{}, err
	}
	u.CPU, err = cpuTime(threads)
	return u, err
}

// kibField returns a size of /proc/PID/status or /proc/meminfo in bytes.
func kibField(text, field string) (int64, error) {
	kib, err := numberField(strings.ReplaceAll(text, " kB\n", "\n"), field)
	return kib << 10, err
}

// numberField returns the number behind the name of a field.
func numberField(text, field string) (int64, error) {
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, field)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(rest), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s %w", field, err)
		}
		return n, nil
	}
	return 0, fmt.Errorf("no %s", field)
}

// cpuTime adds up what threads have run, from their files
// /proc/PID/task/TID/schedstat. It is exact, where /proc/PID/stat charges a
// whole tick of the clock to whoever runs when it strikes: on a quiet machine
// that is the process which the same tick has woken, several times too much.
func cpuTime(threads []string) (time.Duration, error) {
	var sum time.Duration
	for _, file := range threads {
		data, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the thread has ended
		}
		if err != nil {
			return 0, err
		}
		ran, _, _ := strings.Cut(string(data), " ")
		ns, err := strconv.ParseInt(ran, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", file, err)
		}
		sum += time.Duration(ns)
	}
	return sum, nil
}

// FindContainerd returns the process of the private containerd in root.
func FindContainerd(root string) (int, error) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return 0, err
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		args := strings.Split(string(data), "\x00")
		if filepath.Base(args[0]) == "containerd" && strings.Contains(string(data), root+"/") {
			return strconv.Atoi(filepath.Base(filepath.Dir(file)))
		}
	}
	return 0, fmt.Errorf("no containerd runs for %s", root)
}

// PeakRSS runs the binary's version command and returns its largest resident
// size in bytes: what the program weighs before it does anything.
func PeakRSS(ctx context.Context, bin string) (int64, error) {
	cmd := exec.CommandContext(ctx, bin, "version")
	if err := cmd.Run(); err != nil {
		return 0, err
	}
	return cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10, nil
}

// A Machine says where the numbers come from.
type Machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Memory int64  `json:"memory"` // bytes
	Kernel string `json:"kernel"`
	Cgroup string `json:"cgroup"`
	Load   string `json:"load"` // of the last minute, before the run
}

// ReadMachine reads all but the number of cores.
func ReadMachine(cores int) (Machine, error) {
	m := Machine{Cores: cores, CPU: "unknown", Cgroup: "v1"}
	meminfo, errMem := os.ReadFile("/proc/meminfo")
	release, errKernel := os.ReadFile("/proc/sys/kernel/osrelease")
	load, errLoad := os.ReadFile("/proc/loadavg")
	cpuinfo, errCPU := os.ReadFile("/proc/cpuinfo")
	if err := errors.Join(errMem, errKernel, errLoad, errCPU); err != nil {
		return m, err
	}
	m.Kernel = strings.TrimSpace(string(release))
	m.Load, _, _ = strings.Cut(string(load), " ")
	for line := range strings.Lines(string(cpuinfo)) {
		if key, value, _ := strings.Cut(line, ":"); strings.TrimSpace(key) == "model name" {
			m.CPU = strings.TrimSpace(value)
			break
		}
	}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		m.Cgroup = "v2"
	}
	var err error
	m.Memory, err = kibField(string(meminfo), "MemTotal:")
	return m, err
}
