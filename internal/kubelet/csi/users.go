package csi

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

// users knows which volumes pods have: what their records say. These are read once,
// when that is first asked; hundreds of volumes would otherwise be read again for each
// that goes. Of raw devices the links say it.
type users struct {
	mu sync.Mutex // guards the fields below, also while records are read

	read    bool
	volumes map[string]volume // by the folder of a pod's volume
	unknown []string          // such folders whose record cannot be read
}

// add notes that a pod is about to have a volume, before its record says so.
func (u *users) add(dir string, v volume) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.volumes[dir] = v
}

// remove notes that a pod has a volume no more, after its record is gone.
func (u *users) remove(dir string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.volumes, dir)
	u.unknown = slices.DeleteFunc(u.unknown, func(other string) bool { return other == dir })
}

// others reports whether a volume is in a folder other than dir.
func (u *users) others(l layout, v volume, dir string) (bool, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if err := u.readLocked(l); err != nil {
		return false, err
	}
	for other, theirs := range u.volumes {
		if other != dir && theirs == v {
			return true, nil
		}
	}
	for _, other := range u.unknown {
		if other == dir {
			continue
		}
		r, err := readRecord(other) // its pod may have been set up anew
		switch {
		case notThere(err):
		case err != nil:
			// A file that a power cut left empty is nobody's, if nothing is mounted.
			if isMount, _ := mounted(filepath.Join(other, "mount")); isMount {
				return false, fmt.Errorf("who else has the volume is not known: %w", err)
			}
		case r.volume() == v && !r.ephemeral():
			return true, nil
		}
	}
	return false, nil
}

func (u *users) readLocked(l layout) error {
	if u.read {
		return nil
	}
	dirs, err := filepath.Glob(filepath.Join(l.Pods(), "*", "volumes", string(podvolumes.CSI), "*"))
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		r, err := readRecord(dir)
		switch {
		case notThere(err):
		case err != nil:
			u.unknown = append(u.unknown, dir)
		case !r.ephemeral():
			u.volumes[dir] = r.volume()
		}
	}
	u.read = true
	return nil
}

// others reports whether a pod has a volume, other than the one with this UID.
func (h *Host) others(vol volume, uid types.UID, id podvolumes.ID) (bool, error) {
	if id.Block {
		return h.othersOfDevice(uid, id)
	}
	return h.users.others(h.layout, vol, h.layout.Volume(uid, id))
}

// othersOfDevice is others for a raw device: those that have a link, and those to
// which an upstream kubelet published it and removed the link.
func (h *Host) othersOfDevice(uid types.UID, id podvolumes.ID) (bool, error) {
	links, err := filepath.Glob(h.layout.Volume("*", id))
	targets, targetErr := filepath.Glob(h.layout.target("*", id))
	own := []string{h.layout.Volume(uid, id), h.layout.target(uid, id)}
	return slices.ContainsFunc(slices.Concat(links, targets), func(path string) bool { return !slices.Contains(own, path) }), errors.Join(err, targetErr)
}
