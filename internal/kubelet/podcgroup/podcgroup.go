// Package podcgroup keeps the control groups that stand above containers: one
// for all pods, one for each of the two lower QoS classes, one for each pod.
//
//	<parent>/kubepods                      all pods; Guaranteed pods directly below
//	<parent>/kubepods/burstable/pod<UID>
//	<parent>/kubepods/besteffort/pod<UID>
//
// The names are the upstream kubelet's with the cgroupfs driver. On a v1 or
// hybrid host each group exists in every mounted hierarchy, because the
// runtime makes its containers' groups in all of them; on a v2 host it exists
// once, with the controllers handed down.
//
// The package reads and writes the cgroup filesystems and /proc/self/mountinfo
// and nothing else: what it knows of a pod after a restart comes back with the
// pod's next Ensure. A Manager may be used by several goroutines.
package podcgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The parts of a group's path that this package names.
const (
	podsGroup       = "kubepods"
	burstableGroup  = "burstable"
	bestEffortGroup = "besteffort"
	podPrefix       = "pod"
)

// ErrBusy is returned by End and RemoveAll when a group still holds processes. The
// caller tries again later.
var ErrBusy = errors.New("cgroup is busy")

// Config says where the groups are and what bounds them.
type Config struct {
	// Parent is the group above kubepods, such as /holdfast-ab12cd. Default: the root group.
	Parent string
	// NodeMilliCPU is what the node has for pods, in thousandths of a CPU;
	// pods as a whole get that weight against the rest of the machine. 0
	// leaves the kernel's weight.
	NodeMilliCPU int64
	// AllMemory is how many bytes all pods together may have, and AllPIDs how many
	// processes and threads, once Bound was called. 0: no limit.
	AllMemory, AllPIDs int64
	// PidsLimit is how many processes a pod may have. 0 or less: no limit.
	PidsLimit int64
	// Log gets one line for each pod whose left-over group was removed, at debug level.
	Log *slog.Logger
}

// A Manager makes and removes the groups of pods.
type Manager struct {
	cfg  Config
	tree tree

	mu         sync.Mutex          // guards the fields below, and keeps two pods from making a shared parent at once
	burstable  map[types.UID]int64 // thousandths of a CPU asked for by each burstable pod
	topIsReady bool
}

// New finds the machine's cgroup filesystems. It makes no group.
func New(cfg Config) (*Manager, error) {
	t, err := detect()
	if err != nil {
		return nil, fmt.Errorf("find cgroup filesystems: %w", err)
	}
	return newManager(cfg, t)
}

func newManager(cfg Config, t tree) (*Manager, error) {
	cfg.Parent = path.Join("/", cfg.Parent)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if len(t.dirs) == 0 {
		return nil, errors.New("no cgroup filesystem is mounted")
	}
	return &Manager{cfg: cfg, tree: t, burstable: map[types.UID]int64{}}, nil
}

// V2 reports whether the machine has the unified hierarchy alone. Where it is
// false, the machine is a v1 or a hybrid one.
func (m *Manager) V2() bool { return m.tree.unified }

// Ensure makes the group of pod, with those above it, sets its limits, and
// returns its path as the runtime wants it for a sandbox. It changes only what
// differs, so it is cheap to call at every sync.
func (m *Manager) Ensure(pod *v1.Pod) (string, error) {
	if err := validUID(pod.UID); err != nil {
		return "", err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.ensureTopLocked(); err != nil {
		return "", err
	}
	want := limitsOf(pod, m.cfg.PidsLimit)
	group := path.Join(m.classGroup(want.class), podPrefix+string(pod.UID))
	if err := m.tree.make(group); err != nil {
		return "", fmt.Errorf("make cgroup %s: %w", group, err)
	}
	if err := m.tree.set(group, want); err != nil {
		return "", fmt.Errorf("limit cgroup %s: %w", group, err)
	}
	if want.class == v1.PodQOSBurstable && m.burstable[pod.UID] != want.milliCPU {
		m.burstable[pod.UID] = want.milliCPU
		if err := m.weighBurstableLocked(); err != nil {
			return "", err
		}
	}
	return group, nil
}

// Group returns the path of a pod's group, whether or not it is there. Each of its
// containers has a group below it, called as the runtime calls the container.
func (m *Manager) Group(pod *v1.Pod) string {
	return path.Join(m.classGroup(limitsOf(pod, m.cfg.PidsLimit).class), podPrefix+string(pod.UID))
}

// AllPods returns the path of the group of all pods.
func (m *Manager) AllPods() string { return m.podsGroup() }

// AllMemory is how many bytes all pods together may have; 0: no limit.
func (m *Manager) AllMemory() int64 { return m.cfg.AllMemory }

// Bound sets the limits of all pods together, or takes away those of before. One that
// is lower than what pods have already is an error until they have less.
func (m *Manager) Bound() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.ensureTopLocked(); err != nil {
		return err
	}
	if err := m.tree.bound(m.podsGroup(), m.cfg.AllMemory, m.cfg.AllPIDs); err != nil {
		return fmt.Errorf("limit cgroup %s: %w", m.podsGroup(), err)
	}
	return nil
}

// End removes the groups of a pod whose containers are gone, whatever its class,
// and first kills what still runs in them: a start that broke off can leave a
// process that no runtime knows, and upstream's kubelet kills such ones here, too.
// A pod without groups is no error. What has not died when ctx ends gives ErrBusy,
// and the rest is removed.
func (m *Manager) End(ctx context.Context, uid types.UID) error {
	for told := false; ; {
		err := m.remove(uid)
		if !errors.Is(err, ErrBusy) {
			return err
		}
		killed, errKill := m.kill(uid)
		if errKill != nil {
			return errors.Join(err, errKill)
		}
		if len(killed) > 0 && !told {
			told = true
			m.cfg.Log.Warn("Processes that no container had were killed", "podUID", uid, "pid", killed)
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(lookAgain):
		}
	}
}

// lookAgain is how long a killed process is given before its group is looked at anew.
const lookAgain = 10 * time.Millisecond

// kill kills the processes of a pod's groups and returns them.
func (m *Manager) kill(uid types.UID) ([]int, error) {
	var found []int
	for _, parent := range m.classGroups() {
		pids, err := m.tree.processes(path.Join(parent, podPrefix+string(uid)))
		if err != nil {
			return nil, fmt.Errorf("find processes of pod %s: %w", uid, err)
		}
		found = append(found, pids...)
	}
	for _, pid := range found {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			return nil, fmt.Errorf("kill process %d of pod %s: %w", pid, uid, err)
		}
	}
	return found, nil
}

// remove removes the groups of a pod with the empty groups below.
func (m *Manager) remove(uid types.UID) error {
	if err := validUID(uid); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for _, parent := range m.classGroups() {
		errs = append(errs, m.tree.remove(path.Join(parent, podPrefix+string(uid))))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove cgroups of pod %s: %w", uid, err)
	}
	if _, ok := m.burstable[uid]; ok {
		delete(m.burstable, uid)
		return m.weighBurstableLocked()
	}
	return nil
}

// List returns the pods that have a group in any hierarchy, in no order.
func (m *Manager) List() ([]types.UID, error) {
	found := map[types.UID]bool{}
	for _, parent := range m.classGroups() {
		names, err := m.tree.children(parent)
		if err != nil {
			return nil, fmt.Errorf("list cgroups below %s: %w", parent, err)
		}
		for _, name := range names {
			if uid, ok := strings.CutPrefix(name, podPrefix); ok && validUID(types.UID(uid)) == nil {
				found[types.UID(uid)] = true
			}
		}
	}
	uids := make([]types.UID, 0, len(found))
	for uid := range found {
		uids = append(uids, uid)
	}
	return uids, nil
}

// Sweep removes the groups of all pods that are not known. One that still has
// processes is left for the next sweep: its containers are being stopped.
func (m *Manager) Sweep(known func(types.UID) bool) error {
	uids, err := m.List()
	if err != nil {
		return err
	}
	var errs []error
	for _, uid := range uids {
		if known(uid) {
			continue
		}
		switch err := m.remove(uid); {
		case errors.Is(err, ErrBusy):
		case err != nil:
			errs = append(errs, err)
		default:
			m.cfg.Log.Debug("Left-over cgroup was removed", "pod", uid)
		}
	}
	return errors.Join(errs...)
}

// RemoveAll removes every group of this instance: its parent and all below,
// or kubepods alone where the parent is the root group.
func (m *Manager) RemoveAll() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	top := m.cfg.Parent
	if top == "/" {
		top = path.Join(top, podsGroup)
	}
	m.topIsReady = false
	clear(m.burstable)
	if err := m.tree.remove(top); err != nil {
		return fmt.Errorf("remove cgroup %s: %w", top, err)
	}
	return nil
}

// ensureTopLocked makes the groups that all pods share. Their limits are set
// once a process: somebody who changes them by hand after that meant it.
func (m *Manager) ensureTopLocked() error {
	if m.topIsReady {
		return nil
	}
	for _, group := range m.classGroups() {
		if err := m.tree.make(group); err != nil {
			return fmt.Errorf("make cgroup %s: %w", group, err)
		}
	}
	if m.cfg.NodeMilliCPU > 0 {
		for _, group := range []string{m.cfg.Parent, m.podsGroup()} {
			if group == "/" {
				continue
			}
			if err := m.tree.setShares(group, cpuShares(m.cfg.NodeMilliCPU)); err != nil {
				return fmt.Errorf("weigh cgroup %s: %w", group, err)
			}
		}
	}
	if err := m.tree.setShares(path.Join(m.podsGroup(), bestEffortGroup), minShares); err != nil {
		return fmt.Errorf("weigh the best-effort cgroup: %w", err)
	}
	// The burstable group is weighed with the first burstable pod, not here:
	// after a restart it holds running pods that nobody has told us of yet.
	m.topIsReady = true
	return nil
}

// weighBurstableLocked gives the burstable pods together what they asked for,
// as the upstream kubelet does, so that a Guaranteed pod keeps its own share.
func (m *Manager) weighBurstableLocked() error {
	var sum int64
	for _, milli := range m.burstable {
		sum += milli
	}
	group := path.Join(m.podsGroup(), burstableGroup)
	if err := m.tree.setShares(group, cpuShares(sum)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("weigh cgroup %s: %w", group, err)
	}
	return nil
}

func (m *Manager) podsGroup() string { return path.Join(m.cfg.Parent, podsGroup) }

func (m *Manager) classGroup(class v1.PodQOSClass) string {
	switch class {
	case v1.PodQOSBurstable:
		return path.Join(m.podsGroup(), burstableGroup)
	case v1.PodQOSBestEffort:
		return path.Join(m.podsGroup(), bestEffortGroup)
	default:
		return m.podsGroup()
	}
}

func (m *Manager) classGroups() []string {
	return []string{
		m.classGroup(v1.PodQOSGuaranteed), m.classGroup(v1.PodQOSBurstable), m.classGroup(v1.PodQOSBestEffort),
	}
}

// validUID refuses what would name another folder.
func validUID(uid types.UID) error {
	if uid == "" || strings.ContainsAny(string(uid), "/\x00") || strings.Contains(string(uid), "..") {
		return fmt.Errorf("pod UID %q cannot name a cgroup", uid)
	}
	return nil
}
