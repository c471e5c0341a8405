package hoststats

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/holdfast-dev/holdfast/internal/cadvisormetrics"
)

// ticks are what /proc counts processor time in, a second. It is part of the kernel's
// interface and the same on every machine.
const ticks = 100

// Process returns what one process, with all its threads, has used and uses, without its
// children; 0 is our own. The processor time has steps of ten milliseconds. The working set
// is what is resident: what of that could be had back the kernel does not tell of a process.
func (h *Host) Process(process int) (stats.ContainerStats, error) {
	who := "self"
	if process > 0 {
		who = strconv.Itoa(process)
	}
	dir := filepath.Join("/", h.root, "proc", who)
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return stats.ContainerStats{}, err
	}
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return stats.ContainerStats{}, err
	}
	boot, err := h.BootTime()
	if err != nil {
		return stats.ContainerStats{}, err
	}
	p, err := parseStat(string(stat))
	if err != nil {
		return stats.ContainerStats{}, fmt.Errorf("read /proc/%s/stat: %w", who, err)
	}
	now, memory := metav1.Now(), parseMeminfo(status)
	if memory["VmRSS"] == 0 {
		return stats.ContainerStats{}, fmt.Errorf("process %s has no memory: it has ended", who)
	}
	inBytes := func(name string) *uint64 {
		n := uint64(memory[name]) //nolint:gosec // never negative
		return &n
	}
	return stats.ContainerStats{
		StartTime: metav1.NewTime(boot.Add(time.Duration(p.started) * (time.Second / ticks))), //nolint:gosec // not 3 million years
		CPU:       &stats.CPUStats{Time: now, UsageCoreNanoSeconds: new(p.busy * uint64(time.Second/ticks))},
		Memory: &stats.MemoryStats{
			Time: now, UsageBytes: inBytes("VmRSS"), WorkingSetBytes: inBytes("VmRSS"), RSSBytes: inBytes("RssAnon"),
			PageFaults: &p.faults, MajorPageFaults: &p.majorFaults,
		},
		Swap: &stats.SwapStats{Time: now, SwapUsageBytes: inBytes("VmSwap")},
	}, nil
}

// processStat is what is used of /proc/PID/stat.
type processStat struct {
	faults, majorFaults uint64
	busy, started       uint64 // ticks, of processor time and since the machine's start
}

// parseStat reads /proc/PID/stat (proc(5)). The second field, in brackets, may hold
// anything.
func parseStat(text string) (processStat, error) {
	end := strings.LastIndexByte(text, ')')
	fields := strings.Fields(text[end+1:])
	if end < 0 || len(fields) < 20 {
		return processStat{}, errors.New("it has too few fields")
	}
	var err error
	field := func(number int) uint64 { // as in proc(5), from 1 on
		n, bad := strconv.ParseUint(fields[number-3], 10, 64)
		err = errors.Join(err, bad)
		return n
	}
	p := processStat{faults: field(10), majorFaults: field(12), busy: field(14) + field(15), started: field(22)}
	return p, err
}

// Files returns how many files and sockets a process has open, and may have.
func (h *Host) Files(process int) (cadvisormetrics.Files, error) {
	dir := filepath.Join("/", h.root, "proc", strconv.Itoa(process))
	entries, err := os.ReadDir(filepath.Join(dir, "fd"))
	if err != nil {
		return cadvisormetrics.Files{}, err
	}
	files := cadvisormetrics.Files{Open: uint64(len(entries))}
	for _, e := range entries {
		if to, err := os.Readlink(filepath.Join(dir, "fd", e.Name())); err == nil && strings.HasPrefix(to, "socket:") {
			files.Sockets++
		}
	}
	limits, err := os.ReadFile(filepath.Join(dir, "limits"))
	if err != nil {
		return cadvisormetrics.Files{}, err
	}
	for line := range strings.Lines(string(limits)) {
		if rest, ok := strings.CutPrefix(line, "Max open files"); ok {
			if fields := strings.Fields(rest); len(fields) > 0 {
				if n, err := strconv.ParseUint(fields[0], 10, 64); err == nil { // "unlimited" is none
					files.Limit = &n
				}
			}
		}
	}
	return files, nil
}

// Listener returns the process that listens on a unix socket of this machine. 0: it is not
// to be seen from here, as one in another PID namespace.
func (*Host) Listener(ctx context.Context, path string) (process int, err error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var peer *unix.Ucred
	var asked error
	err = raw.Control(func(fd uintptr) { peer, asked = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(err, asked); err != nil {
		return 0, fmt.Errorf("ask who listens on %s: %w", path, err)
	}
	return int(peer.Pid), nil
}
