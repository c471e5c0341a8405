package volumeplugin

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

// setUpEmptyDir makes an empty folder, on disk, in memory or on huge pages. A
// mark in the pod's folder says that it was made: from then on its permissions
// are the pod's business. After a reboot the mark is there and the memory is
// not: the volume starts anew, as upstream's does.
func (h *Host) setUpEmptyDir(ctx context.Context, dir string, v *podvolumes.Volume) error {
	ready := h.layout.Ready(v.PodUID, v.ID)
	isMount, err := mounted(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	inMemory := v.Medium == v1.StorageMediumMemory
	if err == nil && isMount == (inMemory || v.PageSize > 0) && exists(ready) {
		return nil
	}
	if err := makeDir(filepath.Dir(dir)); err != nil {
		return err
	}
	if err := os.Mkdir(dir, dirMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	mode := fs.FileMode(0o777)
	if inMemory {
		mode |= fs.ModeSticky // what the kernel gives a tmpfs, and upstream leaves
	}
	if !isMount {
		if err := mountMemory(dir, v); err != nil {
			return err
		}
	}
	if v.PageSize == 0 && !inMemory {
		h.assignProject(dir, v)
	}
	if v.Mode != nil {
		mode = fileMode(uint32(*v.Mode))
	}
	if err := os.Chmod(dir, mode); err != nil {
		return err
	}
	if v.FSGroup != nil {
		if err := h.setGroup(ctx, dir, v); err != nil {
			return err
		}
	}
	return mark(ready, "")
}

// mountMemory mounts what an emptyDir lies in, if that is not the disk.
func mountMemory(dir string, v *podvolumes.Volume) error {
	switch {
	case v.PageSize > 0:
		return mountHugePages(dir, v.PageSize, v.SizeLimit)
	case v.Medium == v1.StorageMediumMemory:
		return mountTmpfs(dir, v.SizeLimit, 0o1777)
	}
	return nil
}

// fileMode translates permission bits as chmod(2) has them.
func fileMode(bits uint32) fs.FileMode {
	mode := fs.FileMode(bits & 0o777)
	for bit, flag := range map[uint32]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if bits&bit != 0 {
			mode |= flag
		}
	}
	return mode
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// mark makes a file that holds text. It does not wait for the disk: after a
// power cut the mark may be missing or empty, and the volume is set up once more.
func mark(path, text string) error {
	if err := makeDir(filepath.Dir(path)); err != nil {
		return err
	}
	if err := os.WriteFile(path+".tmp", []byte(text), 0o640); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}
