package stats

import (
	"errors"
	"io/fs"
	"path"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/holdfast-dev/holdfast/internal/cadvisormetrics"
	"github.com/holdfast-dev/holdfast/internal/cgroupfs"
)

// details are what cAdvisor's series need of the machine.
type details interface {
	Machine() (v1.ResourceList, v1.NodeSystemInfo, error)
	Interfaces(process int) ([]cadvisormetrics.Interface, error)
	Files(process int) (cadvisormetrics.Files, error)
}

// devices are the machine's block devices.
type devices interface {
	// Device names one by its numbers, empty if there is none.
	Device(major, minor uint32) string
	// DeviceWork is what one has done; false: there is none of the name.
	DeviceWork(name string) (work cadvisormetrics.Device, ok bool, err error)
}

// target is a control group that cAdvisor's series are read of.
type target struct {
	group   cadvisormetrics.Group // what is known of it beforehand
	network networkOwner          // whose it has
	disks   []diskUse
}

type networkOwner int

// The networks that a group may tell of.
const (
	noNetwork      networkOwner = iota
	machineNetwork              // our own
	groupNetwork                // that of any process of the group
)

// diskUse is what a group has of a filesystem.
type diskUse struct {
	path string // somewhere on it; empty: not known
	of   *statsapi.FsStats
}

// nodeTargets are the machine and all pods.
func (c *Collector) nodeTargets(node *statsapi.NodeStats) []target {
	machine := target{group: cadvisormetrics.Group{ID: "/", Start: node.StartTime.Time}, network: machineNetwork}
	if node.Fs != nil {
		machine.disks = append(machine.disks, diskUse{c.cfg.Dir, node.Fs})
	}
	return []target{machine, {group: cadvisormetrics.Group{ID: c.cfg.PodGroups.AllPods(), Start: node.StartTime.Time}}}
}

// podTargets are a pod, its sandbox and its containers, as far as they run. layers is a
// path on the filesystem of their writable layers.
func (c *Collector) podTargets(of source, summary *statsapi.PodStats, layers string) []target {
	pod, status := of.pod, of.status
	group := c.cfg.PodGroups.Group(pod)
	all := []target{{group: cadvisormetrics.Group{ID: group, Namespace: pod.Namespace, Pod: pod.Name, Start: summary.StartTime.Time}}}
	if sandbox := status.ReadySandbox(); sandbox != nil {
		t := target{group: all[0].group}
		t.group.ID, t.group.Name, t.group.Start = path.Join(group, sandbox.GetId()), sandbox.GetId(), time.Unix(0, sandbox.GetCreatedAt())
		if !isHostNetwork(pod) {
			t.network = groupNetwork
		}
		all = append(all, t)
	}
	for i := range summary.Containers {
		figures := &summary.Containers[i]
		s := status.Container(figures.Name)
		t := target{group: all[0].group}
		t.group.ID, t.group.Name = path.Join(group, s.ID), s.ID
		t.group.Container, t.group.Image, t.group.Start = s.Name, s.Image, s.StartedAt
		if figures.Rootfs != nil {
			t.disks = []diskUse{{layers, &statsapi.FsStats{UsedBytes: figures.Rootfs.UsedBytes}}}
		}
		all = append(all, t)
	}
	return all
}

// machine is what the machine has; nil: it is not known.
func (c *Collector) machine() *cadvisormetrics.Machine {
	has, info, err := c.cfg.Machine.Machine()
	if err != nil {
		return nil // who tells the API of the node tells that, too
	}
	m := &cadvisormetrics.Machine{
		Cores: has.Cpu().Value(), MemoryBytes: has.Memory().Value(), MachineID: info.MachineID, SystemUUID: info.SystemUUID, BootID: info.BootID,
	}
	if info.Swap != nil && info.Swap.Capacity != nil {
		m.SwapBytes = *info.Swap.Capacity
	}
	return m
}

// groups reads all groups of a collection that are still there. It may run beside the
// collector's loop.
func (c *Collector) groups(last *Collection) []cadvisormetrics.Group {
	targets := c.nodeTargets(&last.Summary.Node)
	for i := range last.pods {
		targets = append(targets, c.podTargets(last.pods[i], &last.Summary.Pods[i], last.layers)...)
	}
	all := make([]cadvisormetrics.Group, 0, len(targets))
	names := map[uint64]string{} // of devices
	for i := range targets {
		t := &targets[i]
		g := t.group
		err := c.cfg.Groups.Read(g.ID, &g.Reading)
		if err != nil {
			c.unreadGroup(err)
			continue
		}
		c.unreadGroup(c.cfg.Groups.ReadDetails(g.ID, &g.Details))
		processes, err := c.cfg.Groups.Processes(g.ID)
		if err == nil && g.Name != "" { // those of groups below are not among them
			g.Processes = cgroupfs.Value{N: uint64(len(processes)), Known: true}
			g.Files = c.files(processes)
		}
		for _, io := range g.Details.Devices {
			// Of the machine its devices themselves tell more.
			if name := c.device(names, io.Major, io.Minor); name != "" && t.network != machineNetwork {
				g.Devices = append(g.Devices, cadvisormetrics.Device{Name: name, IO: io})
			}
		}
		switch {
		case t.network == machineNetwork:
			g.Network, err = c.cfg.Machine.Interfaces(0)
			c.unreadGroup(err)
		case t.network == groupNetwork && len(processes) > 0:
			g.Network, _ = c.cfg.Machine.Interfaces(processes[0]) // it may just have ended
		}
		for _, d := range t.disks {
			name := c.deviceOf(names, d.path)
			if t.network == machineNetwork {
				work, ok, err := c.cfg.Machine.DeviceWork(name)
				c.unreadGroup(err)
				if ok {
					g.Devices = append(g.Devices, work)
				}
			}
			g.Disks = append(g.Disks, cadvisormetrics.Disk{
				Device: name, Used: d.of.UsedBytes, Limit: d.of.CapacityBytes, InodesTotal: d.of.Inodes, InodesUnused: d.of.InodesFree,
			})
		}
		all = append(all, g)
	}
	return all
}

// files adds up what processes have open; nil: not known. One that has just ended has
// nothing.
func (c *Collector) files(processes []int) *cadvisormetrics.Files {
	var all *cadvisormetrics.Files
	for _, p := range processes {
		files, err := c.cfg.Machine.Files(p)
		switch {
		case err != nil:
		case all == nil:
			all = &files
		default:
			all.Open, all.Sockets = all.Open+files.Open, all.Sockets+files.Sockets
		}
	}
	return all
}

// unreadGroup counts what could not be read. What is gone is no fault.
func (c *Collector) unreadGroup(err error) {
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.errors.WithLabelValues("cadvisor").Inc()
	}
}

// device names a block device; names are those that were asked for.
func (c *Collector) device(names map[uint64]string, major, minor uint32) string {
	number := unix.Mkdev(major, minor)
	name, ok := names[number]
	if !ok {
		name = c.cfg.Machine.Device(major, minor)
		names[number] = name
	}
	return name
}

// deviceOf names the device of the filesystem that file is on.
func (c *Collector) deviceOf(names map[uint64]string, file string) string {
	if file == "" {
		return ""
	}
	_, number, err := c.cfg.Machine.Filesystem(file)
	if err != nil {
		return ""
	}
	return c.device(names, unix.Major(number), unix.Minor(number))
}
