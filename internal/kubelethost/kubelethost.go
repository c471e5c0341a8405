// Package kubelethost is what a kubelet's configuration asks of its machine: why it
// does not start there, what is to be told of it, and what the kubelet's own
// process is given.
//
// Read reads the machine; the rest but Settle is pure.
package kubelethost

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/opencontainers/cgroups"
	"k8s.io/kubelet/config/v1beta1"
)

// A Host is what matters of a machine.
type Host struct {
	CgroupV2 bool     // all controllers are in the unified hierarchy
	Swaps    []string // files and devices to which memory is swapped
}

// Read returns what matters of this machine.
func Read() (Host, error) {
	swaps, err := os.ReadFile("/proc/swaps")
	if err != nil && !errors.Is(err, os.ErrNotExist) { // a kernel without swap has no such file
		return Host{}, fmt.Errorf("see whether the machine swaps: %w", err)
	}
	return Host{CgroupV2: cgroups.IsCgroup2UnifiedMode(), Swaps: parseSwaps(swaps)}, nil
}

// parseSwaps returns the names in /proc/swaps, whose first line is a head.
func parseSwaps(text []byte) []string {
	var names []string
	for i, line := range bytes.Split(text, []byte("\n")) {
		if fields := strings.Fields(string(line)); i > 0 && len(fields) > 0 {
			names = append(names, fields[0])
		}
	}
	return names
}

// Refuses returns all reasons why a kubelet of this configuration, which has its
// defaults, does not start on the machine.
func (h Host) Refuses(k *v1beta1.KubeletConfiguration) error {
	var errs []error
	if !h.CgroupV2 && *k.FailCgroupV1 {
		errs = append(errs, errors.New("kubelet is configured to not run on a host using cgroup v1: boot with cgroup v2 (kernel parameter systemd.unified_cgroup_hierarchy=1), or write failCgroupV1: false"))
	}
	if !h.CgroupV2 && k.SingleProcessOOMKill != nil && !*k.SingleProcessOOMKill {
		errs = append(errs, errors.New("singleProcessOOMKill: false is not possible with cgroup v1: leave it out"))
	}
	if len(h.Swaps) > 0 && *k.FailSwapOn {
		errs = append(errs, fmt.Errorf("the machine swaps to %s: turn that off with swapoff -a, and take it out of /etc/fstab", strings.Join(h.Swaps, ", ")))
	}
	return errors.Join(errs...)
}

// Warnings returns what an operator is to know of the machine.
func (h Host) Warnings() []string {
	if h.CgroupV2 {
		return nil
	}
	return []string{"the machine uses cgroup v1, which Kubernetes will not support much longer: boot with cgroup v2"}
}

// Settle gives this process the OOM score and the number of open files that the
// configuration says. What cannot be given, for want of CAP_SYS_RESOURCE most
// often, is an error each; the kubelet works all the same.
func Settle(k *v1beta1.KubeletConfiguration) []error {
	var errs []error
	if err := setOOMScore("/proc/self/oom_score_adj", int(*k.OOMScoreAdj)); err != nil {
		errs = append(errs, fmt.Errorf("oomScoreAdj %d: %w", *k.OOMScoreAdj, err))
	}
	if err := setOpenFiles(uint64(k.MaxOpenFiles)); err != nil { //nolint:gosec // not negative: validated
		errs = append(errs, fmt.Errorf("maxOpenFiles %d: %w", k.MaxOpenFiles, err))
	}
	return errs
}

// setOOMScore writes the score of a process if it has another.
func setOOMScore(file string, score int) error {
	has, err := os.ReadFile(file)
	if err == nil && strings.TrimSpace(string(has)) == strconv.Itoa(score) {
		return nil
	}
	return os.WriteFile(file, []byte(strconv.Itoa(score)), 0o644) //nolint:gosec // a file of the kernel
}

// setOpenFiles lets this process have n files open at once. If it may not raise
// its bound it gets what is below that.
func setOpenFiles(n uint64) error {
	err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: n, Max: n})
	if err == nil {
		return nil
	}
	var has syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &has) == nil && has.Max >= n {
		return syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: n, Max: has.Max})
	}
	return fmt.Errorf("the bound of this process is %d: %w", has.Max, err)
}
