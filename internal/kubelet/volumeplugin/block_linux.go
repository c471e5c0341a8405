package volumeplugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
	"github.com/holdfast-dev/holdfast/internal/localdisk"
)

// setUpBlock links to the device of a local PersistentVolume from the pod's
// folder, where upstream has that link. The link says that the pod may use the
// device: as long as it is there, no filesystem of the device is mounted, under
// whatever name.
func (h *Host) setUpBlock(_ context.Context, link string, v *podvolumes.Volume) error {
	dev, err := localdisk.Open(v.HostPath)
	if err != nil {
		return fmt.Errorf("local PersistentVolume %s: %w", v.Dir, err)
	}
	defer func() { _ = dev.Close() }() // nothing was written through it
	defer h.locks.lock(deviceKey(dev.Number))()
	users, err := h.rawUsers(dev.Number)
	if err != nil {
		return err
	}
	// A pod that has the device already may hold it alone, and share it all the same.
	if !slices.ContainsFunc(users, func(u rawUser) bool { return u.number == dev.Number }) {
		if err := dev.Busy(); err != nil {
			return fmt.Errorf("local PersistentVolume %s: %w", v.Dir, err)
		}
	}
	note := v.Name
	if v.ReadOnly {
		note += readOnlyNote
	}
	ready := h.layout.Ready(v.PodUID, v.ID)
	if err := mark(ready, note); err != nil { // first: who finds the link knows the name
		return err
	}
	if err := makeDir(filepath.Dir(link)); err != nil {
		return err
	}
	fresh := filepath.Join(filepath.Dir(ready), "device")
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(dev.Path, fresh); err != nil {
		return err
	}
	return os.Rename(fresh, link)
}

// readOnlyNote ends the mark of a block volume that containers may only read.
const readOnlyNote = "\nro"

// tearDownBlock takes the device from the pod. What an upstream kubelet set up
// beside the link goes first.
func (h *Host) tearDownBlock(uid types.UID, id podvolumes.ID) error {
	if err := h.Unmap(uid, id); err != nil {
		return err
	}
	err := os.Remove(h.layout.Volume(uid, id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Unmap undoes how an upstream kubelet holds a device for a pod: the device
// mounted on a file below its plugins folder, and a loop device on that. Ours
// needs neither: the number of a device in use stays with it, and a loop device
// left behind keeps a disk busy for ever.
func (h *Host) Unmap(uid types.UID, id podvolumes.ID) error {
	folder := h.layout.DeviceMap(id)
	point := filepath.Join(folder, string(uid))
	if !exists(point) {
		return nil
	}
	loops, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return err
	}
	for _, file := range loops {
		backing, err := os.ReadFile(file)
		if err != nil || strings.TrimSuffix(string(backing), "\n") != point {
			continue // another's, or gone meanwhile
		}
		if err := detachLoop(filepath.Join("/dev", filepath.Base(filepath.Dir(filepath.Dir(file))))); err != nil {
			return err
		}
	}
	if err := unmount(point); err != nil {
		return err
	}
	if err := os.Remove(point); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Remove(folder); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTEMPTY) {
		return err // not empty: other pods have it
	}
	return nil
}

func detachLoop(path string) error {
	loop, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer loop.Close()
	if err := unix.IoctlSetInt(int(loop.Fd()), unix.LOOP_CLR_FD, 0); err != nil && !errors.Is(err, unix.ENXIO) {
		return &fs.PathError{Op: "detach", Path: path, Err: err}
	}
	return nil
}
