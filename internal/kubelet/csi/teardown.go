package csi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

// TearDown takes a volume from a pod and, after its last pod, off the node. It
// is nil if the volume is gone already. It needs the volume's driver.
func (h *Host) TearDown(ctx context.Context, uid types.UID, id podvolumes.ID) error {
	if err := errors.Join(ctx.Err(), checkNames(string(uid), id.Dir)); err != nil {
		return err
	}
	if err := h.tearDown(ctx, uid, id); err != nil {
		return fmt.Errorf("tear down volume %s of kind %s: %w", id.Dir, id.Kind, err)
	}
	return nil
}

func (h *Host) tearDown(ctx context.Context, uid types.UID, id podvolumes.ID) error {
	target := h.layout.target(uid, id)
	h.note(target, false)
	r, err := readRecord(h.layout.record(uid, id))
	switch {
	case notThere(err):
		// Nothing was ever asked for, or all is undone but these.
		if err := removeTarget(target); err != nil {
			return fmt.Errorf("%w; nothing says which driver it is of", err)
		}
		return h.removeNotes(uid, id)
	case err != nil:
		return err
	}
	vol := r.volume()
	unlock, err := h.lock(ctx, vol)
	if err != nil {
		return fmt.Errorf("wait for another pod's use of it: %w", err)
	}
	defer unlock()
	d, err := h.driver(r.Driver)
	if err != nil {
		return err
	}
	if id.Block {
		if err := h.cfg.Unmap(uid, id); err != nil {
			return err
		}
	}
	err = h.call(ctx, d, "NodeUnpublishVolume", func(ctx context.Context, c spec.NodeClient) error {
		_, err := c.NodeUnpublishVolume(ctx, &spec.NodeUnpublishVolumeRequest{VolumeId: vol.handle, TargetPath: target})
		return err
	})
	if err != nil {
		return err
	}
	if err := removeTarget(target); err != nil {
		return err
	}
	if !r.ephemeral() {
		if err := h.unstage(ctx, d, vol, uid, id); err != nil {
			return err
		}
	}
	return h.removeNotes(uid, id)
}

// removeNotes removes what says that a pod has a volume: the mark, then the record
// or the link.
func (h *Host) removeNotes(uid types.UID, id podvolumes.ID) error {
	ready, place := h.layout.Ready(uid, id), h.layout.Volume(uid, id)
	if id.Block {
		return remove(ready, filepath.Dir(ready), place)
	}
	if err := remove(ready, filepath.Dir(ready), filepath.Join(place, recordName), place); err != nil {
		return err
	}
	h.users.remove(place)
	return nil
}

// unstage takes a volume off the node unless a pod has it other than the one with
// this UID.
func (h *Host) unstage(ctx context.Context, d *driver, vol volume, uid types.UID, id podvolumes.ID) error {
	staging := h.layout.staging(vol, id)
	above := filepath.Dir(staging)
	if !isThere(above) && !id.Block {
		return nil // and of a raw device, the record remains
	}
	others, err := h.others(vol, uid, id)
	if err != nil || others {
		return err
	}
	if d.stages() && (!id.Block || isThere(staging)) {
		err := h.call(ctx, d, "NodeUnstageVolume", func(ctx context.Context, c spec.NodeClient) error {
			_, err := c.NodeUnstageVolume(ctx, &spec.NodeUnstageVolumeRequest{VolumeId: vol.handle, StagingTargetPath: staging})
			return err
		})
		if err != nil {
			return err
		}
	}
	h.mu.Lock()
	delete(h.mu.staged, staging)
	delete(h.mu.grown, vol)
	h.mu.Unlock()
	if err := removeTarget(staging); err != nil {
		return err
	}
	if !id.Block {
		return remove(filepath.Join(above, recordName), above)
	}
	record := h.layout.record(uid, id)
	return remove(filepath.Dir(h.layout.target(uid, id)), filepath.Join(record, recordName), record, h.layout.DeviceMap(id), filepath.Dir(record))
}

func isThere(path string) bool {
	_, err := os.Lstat(path)
	return !notThere(err)
}

// remove removes files and empty folders that are there, in order.
func remove(paths ...string) error {
	for _, path := range paths {
		if err := os.Remove(path); err != nil && !notThere(err) {
			return err
		}
	}
	return nil
}

// removeTarget removes what a driver may have left of a target: drivers are to
// remove it themselves. What is mounted or not empty stays, and is an error.
func removeTarget(path string) error {
	isMount, err := mounted(path)
	switch {
	case notThere(err):
		return nil
	case err != nil:
		return err
	case isMount:
		return fmt.Errorf("something is still mounted on %s", path)
	}
	if err := os.Remove(path); err != nil && !notThere(err) {
		return err
	}
	return nil
}
