package eviction

import (
	"context"
	"errors"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// mounts are where the runtime keeps images and writable layers; empty: not
// known.
type mounts struct{ images, layers string }

// observe reads every signal anew. What cannot be read is left out.
func (m *Manager) observe(ctx context.Context) (observations, layout) {
	seen := observations{}
	now := time.Now()
	free, err := m.cfg.Machine.Free()
	m.note("machine", err)
	if err == nil {
		m.observeMachine(seen, &free, now)
	}
	l := m.observeDisks(ctx, seen, now)
	return seen, l
}

func (m *Manager) observeMachine(seen observations, free *stats.NodeStats, now time.Time) {
	if memory := free.Memory; memory != nil && memory.AvailableBytes != nil && memory.WorkingSetBytes != nil {
		whole := value(memory.AvailableBytes) + value(memory.WorkingSetBytes)
		seen[MemoryAvailable] = observation{value(memory.AvailableBytes), whole, now}
		pods, err := m.cfg.Cgroups.WorkingSet()
		m.note("memory of pods", err)
		if err == nil {
			if m.cfg.PodMemory > 0 {
				whole = m.cfg.PodMemory
			}
			seen[AllocatableMemoryAvailable] = observation{whole - value(&pods), whole, now}
		}
	}
	if r := free.Rlimit; r != nil && r.MaxPID != nil && r.NumOfRunningProcesses != nil {
		seen[PIDAvailable] = observation{*r.MaxPID - *r.NumOfRunningProcesses, *r.MaxPID, now}
	}
}

// observeDisks reads the three filesystems. Where the runtime does not answer,
// images and layers are taken to be where they were.
func (m *Manager) observeDisks(ctx context.Context, seen observations, now time.Time) layout {
	m.askMounts(ctx)
	node, nodeOK := m.observeDisk(seen, m.cfg.Dir, NodeFSAvailable, NodeFSInodesFree, now)
	images, imagesOK := m.observeDisk(seen, m.mounts.images, ImageFSAvailable, ImageFSInodesFree, now)
	layers, layersOK := m.observeDisk(seen, m.mounts.layers, ContainerFSAvailable, ContainerFSInodesFree, now)
	return layout{
		imagesWithVolumes: nodeOK && imagesOK && node == images,
		layersWithVolumes: nodeOK && layersOK && node == layers,
		layersWithImages:  imagesOK && layersOK && images == layers,
	}
}

func (m *Manager) observeDisk(seen observations, path string, bytes, files Signal, now time.Time) (device uint64, ok bool) {
	if path == "" {
		return 0, false
	}
	disk, device, err := m.cfg.Machine.Filesystem(path)
	m.note(path, err)
	if err != nil {
		return 0, false
	}
	if disk.AvailableBytes != nil && value(disk.CapacityBytes) > 0 {
		seen[bytes] = observation{value(disk.AvailableBytes), value(disk.CapacityBytes), now}
	}
	// A filesystem without a fixed number of inodes says 0 of 0.
	if disk.InodesFree != nil && value(disk.Inodes) > 0 {
		seen[files] = observation{value(disk.InodesFree), value(disk.Inodes), now}
	}
	return device, true
}

var errNoImageFS = errors.New("the container runtime names no filesystem of images")

func (m *Manager) askMounts(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.Timeout)
	defer cancel()
	answer, err := m.cfg.Runtime.ImageFS(ctx)
	if err == nil && mountOf(answer.GetImageFilesystems()) == "" {
		err = errNoImageFS
	}
	m.note("image filesystem", err)
	if err != nil {
		return
	}
	m.mounts = mounts{images: mountOf(answer.GetImageFilesystems()), layers: mountOf(answer.GetContainerFilesystems())}
	if m.mounts.layers == "" {
		m.mounts.layers = m.mounts.images // a runtime of before they were told apart
	}
}

func mountOf(filesystems []*runtimeapi.FilesystemUsage) string {
	if len(filesystems) == 0 {
		return ""
	}
	return filesystems[0].GetFsId().GetMountpoint()
}

// note logs that something cannot be read, or is read again, once.
func (m *Manager) note(what string, err error) {
	before, failed := m.unread[what]
	switch {
	case err == nil && failed:
		delete(m.unread, what)
		m.cfg.Log.Info("readings for evictions are there again", "object", what)
	case err != nil && err.Error() != before:
		m.unread[what] = err.Error()
		m.cfg.Log.Warn("readings for evictions are missing, nothing is done by them", "object", what, "err", err)
	}
}
