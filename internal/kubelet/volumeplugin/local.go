package volumeplugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/fsgroup"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

// setUpLocal binds the folder of a local PersistentVolume into the pod's, or the
// filesystem on its device.
func (h *Host) setUpLocal(ctx context.Context, dir string, v *podvolumes.Volume) error {
	// The path is the administrator's and may lead over links.
	source, err := filepath.EvalSymlinks(v.HostPath)
	if err != nil {
		return fmt.Errorf("local PersistentVolume %s: %w", v.Dir, err)
	}
	info, err := os.Stat(source)
	if err != nil {
		return fmt.Errorf("local PersistentVolume %s: %w", v.Dir, err)
	}
	// First: while the pod's folder is there, the next process undoes what follows.
	if err := makeDir(dir); err != nil {
		return err
	}
	options := []string{"bind"}
	switch {
	case info.IsDir():
		options = append(options, v.MountOptions...)
	case info.Mode().Type() == fs.ModeDevice:
		defer h.locks.lock(volumeKey(v.Dir))() // until it is bound, so that no other pod's end unmounts it
		if source, err = h.mountDisk(ctx, v); err != nil {
			return fmt.Errorf("local PersistentVolume %s: %w", v.Dir, err)
		}
	default:
		return fmt.Errorf("local PersistentVolume %s: %s is a %s, and neither a directory nor a block device", v.Dir, v.HostPath, describe(info.Mode()))
	}
	isMount, err := mounted(dir)
	if err != nil {
		return err
	}
	if isMount {
		return errors.Join(sameFolder(source, dir), mark(h.layout.Ready(v.PodUID, v.ID), v.Name))
	}
	shared, err := h.usedByPods(source)
	if err != nil {
		return err
	}
	if v.FSGroup != nil && !v.ReadOnly {
		if err := h.groupLocal(ctx, v, source, shared); err != nil {
			return err
		}
	}
	if v.ReadOnly {
		options = append(options, "ro")
	}
	if err := h.mounter.MountSensitiveWithoutSystemd(source, dir, "", options, nil); err != nil {
		return errors.Join(fmt.Errorf("bind %s: %w", source, err), unmount(dir))
	}
	// Who starts later learns from it which volume this is without the claim.
	return mark(h.layout.Ready(v.PodUID, v.ID), v.Name)
}

// groupLocal gives a local volume to the pod's group, before the pod can see
// it. A volume that another pod uses keeps the group it has, as upstream's does.
func (h *Host) groupLocal(ctx context.Context, v *podvolumes.Volume, source string, shared bool) error {
	if shared {
		if !fsgroup.Owns(source, *v.FSGroup) {
			h.log.Warn("volume is in use by another pod and keeps its group", "podUID", v.PodUID, "volume", v.Name, "fsGroup", *v.FSGroup)
		}
		return nil
	}
	if v.FSPolicy == v1.FSGroupChangeOnRootMismatch && fsgroup.Has(source, *v.FSGroup) {
		return nil
	}
	return h.setGroup(ctx, source, v)
}

// sameFolder returns an error unless what is mounted on dir is source.
func sameFolder(source, dir string) error {
	a, err := os.Stat(source)
	if err != nil {
		return err
	}
	b, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if !os.SameFile(a, b) {
		return fmt.Errorf("something else than %s is mounted on %s: unmount it", source, dir)
	}
	return nil
}

// usedByPods reports whether a folder is bound into any pod's volumes.
func (h *Host) usedByPods(folder string) (bool, error) {
	refs, err := h.mounter.GetMountRefs(folder)
	if err != nil {
		return false, fmt.Errorf("find who uses %s: %w", folder, err)
	}
	for _, ref := range refs {
		if strings.HasPrefix(ref, h.layout.Pods()+"/") && strings.Contains(ref, string(podvolumes.Local)) {
			return true, nil
		}
	}
	return false, nil
}
