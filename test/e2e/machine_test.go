package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/instance"
	"github.com/holdfast-dev/holdfast/internal/mounttree"
	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// fetch returns what an HTTP server answers within a second.
func fetch(t *testing.T, url string) (string, error) {
	t.Helper()
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// reboot does to the node what a power cut does to its machine: everything that
// it runs is killed, nothing is mounted, and what the kernel and /run kept is
// gone.
func (n *node) reboot() *instance.Instance {
	n.t.Helper()
	in, err := instance.Open(n.root)
	if err != nil {
		n.t.Fatal(err)
	}
	if pid := n.report().PID; pid != 0 {
		kill(n.t, pid)
	}
	// containerd first: it would clean up behind the others.
	for _, text := range []string{filepath.Join(n.root, "containerd", "config.toml"), in.Run("containerd.sock")} {
		killAll(n.t, func() []int { return pidsOf(n.t, text) })
	}
	killAll(n.t, func() []int { return cgroupPIDs(n.t, in) })
	for _, dir := range []string{n.root, in.Run()} {
		n.eventually("nothing is mounted below "+dir, func() error { return unmountBelow(dir) })
	}
	if err := mounttree.Remove(in.Run()); err != nil {
		n.t.Fatal(err)
	}
	for _, file := range glob(n.t, "/var/lib/cni/results/holdfast-"+in.ID+"-*") {
		if err := os.Remove(file); err != nil {
			n.t.Fatal(err)
		}
	}
	if n.netns != "" {
		deleteNetwork(n.t, n.netns)
		makeNetwork(n.t, n.netns)
		return in
	}
	forget(n.t, in)
	return in
}

// ownNetwork makes a network namespace that has nothing but loopback: no uplink,
// no default route. A node that lives in it must be made after it.
func ownNetwork(t *testing.T) (name string) {
	t.Helper()
	testenv.Need(t, "root", "ip", "nsenter")
	name = fmt.Sprintf("hf-e2e-own-%d", os.Getpid())
	makeNetwork(t, name)
	t.Cleanup(func() { deleteNetwork(t, name) })
	return name
}

func makeNetwork(t *testing.T, name string) {
	t.Helper()
	for _, args := range [][]string{{"netns", "add", name}, {"-n", name, "link", "set", "lo", "up"}} {
		if out, err := run(t, "", "ip", args...); err != nil {
			t.Fatalf("ip %s: %s", strings.Join(args, " "), out)
		}
	}
}

func deleteNetwork(t *testing.T, name string) {
	t.Helper()
	if out, err := run(t, "", "ip", "netns", "delete", name); err != nil {
		t.Error(out)
	}
}

// forget takes away what the kernel keeps of an instance.
func forget(t *testing.T, in *instance.Instance) {
	t.Helper()
	_, _ = run(t, "", "ip", "link", "delete", in.Bridge()) // the pods' own ends went with their namespaces
	for _, table := range []string{"filter", "nat"} {
		listing, err := run(t, "", "iptables", "-w", "-t", table, "-S")
		if err != nil {
			t.Fatal(err)
		}
		var chains []string
		for line := range strings.Lines(listing) {
			words := strings.Fields(line)
			switch {
			case !strings.Contains(line, "HOLDFAST-"+in.ID) && !strings.Contains(line, "holdfast-"+in.ID):
			case words[0] == "-N":
				chains = append(chains, words[1])
			case words[0] == "-A" && !strings.HasPrefix(words[1], "HOLDFAST-"+in.ID):
				// The shell takes the quotes of a comment apart.
				if out, err := run(t, "", "sh", "-c", "iptables -w -t "+table+" -D "+strings.TrimPrefix(strings.TrimSpace(line), "-A ")); err != nil {
					t.Fatalf("%s: %s", line, out)
				}
				if to := words[len(words)-1]; strings.HasPrefix(to, "CNI-DN-") && !slices.Contains(chains, to) {
					chains = append(chains, to)
				}
			}
		}
		for _, c := range chains {
			for _, do := range []string{"-F", "-X"} {
				if out, err := run(t, "", "iptables", "-w", "-t", table, do, c); err != nil {
					t.Fatal(out)
				}
			}
		}
	}
	for _, dir := range glob(t, "/sys/fs/cgroup/*"+in.CgroupParent(), "/sys/fs/cgroup"+in.CgroupParent()) {
		if out, err := run(t, "", "find", dir, "-depth", "-type", "d", "-delete"); err != nil {
			t.Fatal(out)
		}
	}
}

// unmountBelow detaches what is mounted in dir, the innermost first.
func unmountBelow(dir string) error {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	left := 0
	for line := range strings.Lines(string(data)) {
		if point := strings.Fields(line)[4]; strings.HasPrefix(point, dir+"/") {
			left++
			_ = syscall.Unmount(point, syscall.MNT_DETACH) // the next round sees what is left
		}
	}
	if left > 0 {
		return fmt.Errorf("%d mounts", left)
	}
	return nil
}

// killAll kills the processes that list returns until it returns none.
func killAll(t *testing.T, list func() []int) {
	t.Helper()
	(&node{t: t}).eventually("processes end", func() error {
		pids := list()
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
		if len(pids) > 0 {
			return fmt.Errorf("processes %v", pids)
		}
		return nil
	})
}

// pidsOf returns the processes that have text as a word of their command line.
func pidsOf(t *testing.T, text string) []int {
	t.Helper()
	var pids []int
	for _, path := range glob(t, "/proc/[0-9]*/cmdline") {
		data, err := os.ReadFile(path)
		pid, errPID := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err == nil && errPID == nil && alive(pid) && strings.Contains("\x00"+string(data), "\x00"+text+"\x00") {
			pids = append(pids, pid)
		}
	}
	return pids
}

// cgroupPIDs returns the processes of an instance's pods.
func cgroupPIDs(t *testing.T, in *instance.Instance) []int {
	t.Helper()
	var pids []int
	for _, root := range glob(t, "/sys/fs/cgroup/*"+in.CgroupParent(), "/sys/fs/cgroup"+in.CgroupParent()) {
		out, err := run(t, "", "find", root, "-name", "cgroup.procs", "-exec", "cat", "{}", "+")
		if err != nil {
			continue // it went meanwhile
		}
		for word := range strings.FieldsSeq(out) {
			if pid, err := strconv.Atoi(word); err == nil && pid > 0 && alive(pid) {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}
