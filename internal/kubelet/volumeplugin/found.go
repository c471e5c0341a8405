package volumeplugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/atomicdir"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

// Pods returns the UIDs of the pods that have a folder.
func (h *Host) Pods(ctx context.Context) ([]types.UID, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	names, err := folders(h.layout.Pods())
	if err != nil {
		return nil, fmt.Errorf("list the pods' folders: %w", err)
	}
	uids := make([]types.UID, 0, len(names))
	for _, name := range names {
		uids = append(uids, types.UID(name))
	}
	return uids, nil
}

// Found returns every volume that is on this machine, whole or in part, as a
// process that ended left it. It lists names and asks for no attribute of what
// is mounted on a folder that may hang.
func (h *Host) Found(ctx context.Context) ([]podvolumes.Found, error) {
	uids, err := h.Pods(ctx)
	if err != nil {
		return nil, err
	}
	var found []podvolumes.Found
	var errs []error
	for _, uid := range uids {
		volumes, err := h.foundOf(uid)
		found = append(found, volumes...)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return found, fmt.Errorf("list volumes: %w", err)
	}
	return found, nil
}

func (h *Host) foundOf(uid types.UID) ([]podvolumes.Found, error) {
	volumes, err := h.foundIn(uid, h.layout.Volumes(uid), false)
	devices, deviceErr := h.foundIn(uid, h.layout.VolumeDevices(uid), true)
	return append(volumes, devices...), errors.Join(err, deviceErr)
}

// foundIn returns what is in a folder of a pod that has a folder for every kind.
func (h *Host) foundIn(uid types.UID, top string, block bool) ([]podvolumes.Found, error) {
	kinds, err := folders(top)
	if err != nil {
		return nil, err
	}
	within := folders
	if block {
		within = entries // links and files on which a device is mounted
	}
	var found []podvolumes.Found
	for _, kind := range kinds {
		names, err := within(filepath.Join(top, kind))
		if err != nil {
			return found, err
		}
		for _, name := range names {
			id := podvolumes.ID{Kind: podvolumes.Kind(kind), Dir: name, Block: block}
			f := podvolumes.Found{PodUID: uid, ID: id, Path: h.layout.Volume(uid, id), Name: name}
			if id.Kind == podvolumes.Local {
				f.PV = name
			}
			if id.Kind == podvolumes.Local || id.Kind == podvolumes.NFS {
				mark, _ := os.ReadFile(h.layout.Ready(uid, id)) // none: a set-up that was cut short
				f.Name, f.ReadOnly = strings.CutSuffix(string(mark), readOnlyNote)
			}
			f.Complete = f.Name != "" && h.complete(uid, id)
			found = append(found, f)
		}
	}
	return found, nil
}

// complete reports whether a content volume holds all of some content, and
// whether a local PersistentVolume is mounted, so that the pod can go on with
// it whether or not its objects can be had now.
func (h *Host) complete(uid types.UID, id podvolumes.ID) bool {
	dir := h.layout.Volume(uid, id)
	if id.Block {
		info, err := os.Stat(dir)
		return err == nil && info.Mode().Type() == fs.ModeDevice
	}
	if id.Kind == podvolumes.NFS {
		isMount, err := mountedWithoutAsking(dir)
		return err == nil && isMount
	}
	if id.Kind.InMemory() || id.Kind == podvolumes.Local {
		if isMount, err := mounted(dir); err != nil || !isMount {
			return false
		}
	}
	return id.Kind == podvolumes.Local || id.Kind.HasContent() && atomicdir.Complete(dir)
}

// folders returns the names of the folders in dir; none if dir is not there.
func folders(dir string) ([]string, error) { return list(dir, os.DirEntry.IsDir) }

// entries returns the names of all that is in dir; none if dir is not there.
func entries(dir string) ([]string, error) {
	return list(dir, func(os.DirEntry) bool { return true })
}

func list(dir string, take func(os.DirEntry) bool) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, entry := range entries {
		if take(entry) {
			names = append(names, entry.Name())
		}
	}
	return names, err
}
