// Package leaks finds what a node left on its machine: things of pods that are
// gone, while it runs (Left), and anything at all, after it was uninstalled
// (Gone). It is for tests of real nodes.
//
// It looks from outside only, at what the kernel, the runtime and the disk show,
// and needs no picture from before: each thing names its owner, a pod or a
// container, and an owner that is not there makes it a leak. What is being made or
// removed at the moment looks like one too, so callers ask again for a while.
package leaks

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/instance"
)

// A Node says which node to look at.
type Node struct {
	Instance *instance.Instance
	// Ctr is the ctr program of the node's private containerd.
	Ctr string
	// Endpoint is the socket of a runtime that is not the node's own, whose
	// files and network are left alone. Empty: the private containerd.
	Endpoint string
	// NetNS is the name of the network namespace that the node lives in. Empty:
	// the host's.
	NetNS string
}

// imageVolume is where containerd mounts an image for a sandbox: what follows the
// sandbox's ID is the image's digest.
var imageVolume = regexp.MustCompile(`(/image-volumes/[0-9a-f]{64})/[0-9a-f]{64}\b`)

// wholeID is a container's or sandbox's ID wherever it stands.
var wholeID = regexp.MustCompile(`\b[0-9a-f]{64}\b`)

// podOf is a pod's UID in a path of its folder or cgroup.
var podOf = regexp.MustCompile(`(?:/kubelet/pods/|/kubepods/(?:burstable/|besteffort/)?pod)([^/]+)`)

// Left returns, one line each, what is there for none of pods.
func Left(ctx context.Context, n Node, pods []types.UID) ([]string, error) {
	socket := strings.TrimPrefix(n.Endpoint, "unix://")
	if socket == "" {
		socket = n.Instance.Run("containerd.sock")
	}
	known, left, err := askRuntime(ctx, socket, pods)
	if err != nil {
		return nil, err
	}
	l := &look{node: n, owners: *known, found: left}
	l.mounts()
	l.folders()
	l.cgroups()
	l.files()
	if n.Endpoint == "" {
		l.processes()
		l.network(ctx)
		l.snapshots(ctx)
	}
	slices.Sort(l.found)
	return l.found, errors.Join(l.errs...)
}

// A look gathers what was found.
type look struct {
	node   Node
	owners owners
	found  []string
	errs   []error
}

func (l *look) leak(format string, args ...any) {
	l.found = append(l.found, fmt.Sprintf(format, args...))
}

// check finds path a leak if a pod or a container that it names is not there.
func (l *look) check(what, path string) {
	for _, id := range wholeID.FindAllString(imageVolume.ReplaceAllString(path, "$1"), -1) {
		if !l.owners.ids[id] {
			l.leak("%s %s: no such container", what, path)
			return
		}
	}
	if m := podOf.FindStringSubmatch(path); m != nil && !l.owners.pods[types.UID(m[1])] {
		l.leak("%s %s: no such pod", what, path)
	}
}

// below reports whether path is the node's.
func (l *look) below(path string) bool {
	in := l.node.Instance
	return strings.HasPrefix(path, in.Root+"/") || strings.HasPrefix(path, in.Run()+"/")
}

func (l *look) mounts() {
	points, err := mountPoints()
	l.errs = append(l.errs, err)
	seen := map[string]bool{}
	netns := 0
	for _, point := range points {
		if !l.below(point) {
			continue
		}
		if seen[point] {
			l.leak("mount %s: more than once", point)
		}
		seen[point] = true
		if strings.Contains(point, "/netns/") {
			netns++
		}
		l.check("mount", point)
	}
	if netns > len(l.owners.networks) {
		l.leak("network namespaces: %d for %d sandboxes", netns, len(l.owners.networks))
	}
}

// folders looks at folders of which each is one pod's or one container's.
func (l *look) folders() {
	in := l.node.Instance
	l.entries("folder", in.Path("kubelet", "pods"))
	for _, name := range l.names(in.Path("logs", "pods")) {
		uid := types.UID(name[strings.LastIndex(name, "_")+1:])
		if !l.owners.pods[uid] {
			l.leak("folder %s: no such pod", in.Path("logs", "pods", name))
		}
	}
	if l.node.Endpoint != "" {
		return
	}
	for _, base := range []string{in.Run("containerd"), in.Path("containerd")} {
		for _, dir := range []string{"io.containerd.runtime.v2.task/k8s.io", "io.containerd.grpc.v1.cri/containers", "io.containerd.grpc.v1.cri/sandboxes"} {
			l.entries("folder", filepath.Join(base, dir))
		}
	}
	l.entries("folder", in.Run("runc", "k8s.io"))
}

func (l *look) entries(what, dir string) {
	for _, name := range l.names(dir) {
		l.check(what, filepath.Join(dir, name))
	}
}

// names returns what is in a folder; nothing if there is none.
func (l *look) names(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.errs = append(l.errs, err)
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func (l *look) cgroups() {
	for _, root := range cgroupRoots(l.node.Instance) {
		l.errs = append(l.errs, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // it went meanwhile
			}
			if err == nil && d.IsDir() && !l.goesWithPod(path) {
				l.check("cgroup", path)
			}
			return err
		}))
	}
}

// goesWithPod reports whether a group is an empty one below that of a pod that is
// there. runc leaves such a one when the start of a container is cut short; it
// is removed with its pod's.
func (l *look) goesWithPod(path string) bool {
	m := podOf.FindStringSubmatch(path)
	inside, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
	return m != nil && l.owners.pods[types.UID(m[1])] && err == nil && len(inside) == 0
}

// cgroupRoots returns the node's group in each tree, of version 1 or 2.
func cgroupRoots(in *instance.Instance) []string {
	v1, _ := filepath.Glob("/sys/fs/cgroup/*" + in.CgroupParent()) // the pattern is good
	v2, _ := filepath.Glob("/sys/fs/cgroup" + in.CgroupParent())
	return append(v1, v2...)
}

// processes looks for shims: each is named after its sandbox, and ends with it.
func (l *look) processes() {
	for pid, words := range commands() {
		i := slices.Index(words, "-id")
		if i < 0 || i+1 >= len(words) || !slices.Contains(words, l.node.Instance.Run("containerd.sock")) {
			continue
		}
		if !l.owners.ready[words[i+1]] {
			l.leak("process %d: a shim of %s, which does not run", pid, words[i+1])
		}
	}
}

// files looks at what the agent and its containerd have open.
func (l *look) files() {
	in := l.node.Instance
	for _, pid := range []int{Agent(in), Containerd(in)} {
		for _, path := range openFiles(pid) {
			if l.below(path) && !strings.Contains(path, "/blobs/") { // content is named by its hash
				l.check(fmt.Sprintf("process %d has open", pid), path)
			}
		}
	}
}

// network looks at what the plugins keep for each sandbox that has a network of
// its own.
func (l *look) network(ctx context.Context) {
	in := l.node.Instance
	name := "holdfast-" + in.ID
	leases := in.Run("leases", name)
	for _, file := range l.names(leases) {
		if file == "lock" || strings.HasPrefix(file, "last_reserved_ip") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(leases, file))
		if err == nil {
			l.sandbox("lease "+file, string(data))
		}
	}
	results, _ := filepath.Glob("/var/lib/cni/results/" + name + "-*")
	for _, path := range results {
		l.sandbox("result", path)
	}
	for _, rule := range l.rules(ctx, name) {
		l.sandbox("firewall", rule)
	}
	links, err := l.run(ctx, "ip", "-o", "link", "show", "master", in.Bridge())
	if err != nil && len(l.owners.networks) > 0 {
		l.errs = append(l.errs, err)
	}
	if err == nil {
		if n := strings.Count(links, "\n"); n > len(l.owners.networks) {
			l.leak("links of the bridge: %d for %d sandboxes", n, len(l.owners.networks))
		}
	}
}

// sandbox finds a thing a leak if the sandbox that text names has no network.
func (l *look) sandbox(what, text string) {
	for _, id := range wholeID.FindAllString(text, -1) {
		if !l.owners.networks[id] {
			l.leak("%s: %s: no such sandbox", what, strings.TrimSpace(text))
		}
	}
}

// rules returns the firewall's lines that hold text.
func (l *look) rules(ctx context.Context, text string) []string {
	var rules []string
	for _, table := range []string{"filter", "nat"} {
		out, err := l.run(ctx, "iptables", "-w", "-t", table, "-S")
		l.errs = append(l.errs, err)
		for line := range strings.Lines(out) {
			if strings.Contains(line, text) {
				rules = append(rules, strings.TrimSpace(line))
			}
		}
	}
	return rules
}

// snapshots looks at containerd's own lists, which may have more than CRI shows.
func (l *look) snapshots(ctx context.Context) {
	ctr := []string{"--address", l.node.Instance.Run("containerd.sock"), "--namespace", "k8s.io"}
	for what, args := range map[string][]string{"snapshot": {"snapshots", "list"}, "containerd's container": {"containers", "list", "-q"}} {
		out, err := l.run(ctx, l.node.Ctr, append(slices.Clone(ctr), args...)...)
		l.errs = append(l.errs, err)
		for line := range strings.Lines(out) {
			if words := strings.Fields(line); len(words) > 0 { // layers of images have names with a colon
				if id := words[0]; wholeID.FindString(id) == id {
					l.check(what, id)
				}
			}
		}
	}
}

// run runs a program where the node lives and returns its output.
func (l *look) run(ctx context.Context, program string, args ...string) (string, error) {
	if l.node.NetNS != "" {
		args = append([]string{"--net=/run/netns/" + l.node.NetNS, program}, args...)
		program = "nsenter"
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String(), nil
}

// mountPoints returns all mount points of this namespace.
func mountPoints() ([]string, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	var points []string
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) > 4 {
			points = append(points, fields[4])
		}
	}
	return points, err
}

// commands returns the command lines of all processes.
func commands() map[int][]string {
	all := map[int][]string{}
	paths, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is good
	for _, path := range paths {
		pid, errPID := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		data, err := os.ReadFile(path)
		if err == nil && errPID == nil && len(data) > 0 { // else it has ended
			all[pid] = strings.Split(string(data), "\x00")
		}
	}
	return all
}

// Agent returns the process that runs the node, 0 if none does.
func Agent(in *instance.Instance) int {
	pid, _ := in.Running()
	n, _ := strconv.Atoi(pid) // "unknown" and "" are 0
	return n
}

// Containerd returns the node's private containerd, 0 if it does not run.
func Containerd(in *instance.Instance) int {
	config := in.Path("containerd", "config.toml")
	for pid, words := range commands() {
		if slices.Contains(words, config) {
			return pid
		}
	}
	return 0
}

// openFiles returns what a process has open.
func openFiles(pid int) []string {
	var targets []string
	links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid)) // the pattern is good
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil { // else it was closed
			targets = append(targets, target)
		}
	}
	return targets
}

// A Size is how much of what can run out a process has.
type Size struct{ Files, Threads int }

// SizeOf returns the size of a process.
func SizeOf(pid int) (Size, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Size{}, err
	}
	s := Size{Files: len(openFiles(pid))}
	for lines := bufio.NewScanner(bytes.NewReader(status)); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "Threads:"); ok {
			s.Threads, err = strconv.Atoi(strings.TrimSpace(text))
		}
	}
	return s, err
}
