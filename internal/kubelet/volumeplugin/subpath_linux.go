package volumeplugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

// A SubPath asks for a part of a volume.
type SubPath = podvolumes.SubPath

// BindSubPath makes a part of a volume a mount of its own, so that a link that
// the pod puts in its place later leads nowhere else, and returns its path. A
// part that is not there is made as a folder with the permissions of the
// volume's top. Links on the way are followed as long as they stay inside the
// volume; others are refused.
func (h *Host) BindSubPath(ctx context.Context, s SubPath) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	target, err := h.bindSubPath(s)
	if err != nil {
		return "", fmt.Errorf("subPath %q of %s: %w", s.Path, podvolumes.Describe(s.Volume), err)
	}
	return target, nil
}

func (h *Host) bindSubPath(s SubPath) (string, error) {
	err := errors.Join(checkName(string(s.PodUID)), checkName(s.Volume), checkName(s.Container), checkSubPath(s.Path))
	if err != nil {
		return "", err
	}
	volume, err := openAt(unix.AT_FDCWD, s.VolumePath, unix.O_PATH, 0)
	if err != nil {
		return "", err
	}
	defer closeFD(volume)
	fd, err := openAt(volume, s.Path, unix.O_PATH, resolveBelow)
	switch {
	case !errors.Is(err, fs.ErrNotExist):
	case s.Content:
		return h.emptyPart(s)
	case !s.ReadOnly:
		fd, err = makeBelow(volume, s.Path)
	}
	if errors.Is(err, unix.EXDEV) {
		return "", errors.New("it leads out of the volume")
	}
	if err != nil {
		return "", err
	}
	defer closeFD(fd)
	return h.bindOpened(s, fd)
}

// bindOpened mounts what fd is open on, unless it is mounted already.
func (h *Host) bindOpened(s SubPath, fd int) (string, error) {
	var source unix.Stat_t
	if err := unix.Fstat(fd, &source); err != nil {
		return "", err
	}
	target := h.layout.SubPath(s.PodUID, s.Volume, s.Container, s.Index)
	isMount, err := mounted(target)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !stale(err) {
		return "", err
	}
	if isMount {
		var now unix.Stat_t
		if unix.Lstat(target, &now) == nil && now.Dev == source.Dev && now.Ino == source.Ino {
			return target, nil
		}
	}
	if isMount || stale(err) {
		// The content was replaced since; a container that runs keeps the old one.
		if err := detach(target); err != nil {
			return "", err
		}
	}
	if err := makeTarget(target, source.Mode&unix.S_IFMT == unix.S_IFDIR); err != nil {
		return "", err
	}
	return target, bind(fd, target)
}

// emptyPart gives an empty folder for a part that the content of a volume does
// not hold, such as the key of an optional ConfigMap. Upstream makes a folder
// in the volume for it, which would be in the way when the key appears.
func (h *Host) emptyPart(s SubPath) (string, error) {
	target := h.layout.SubPath(s.PodUID, s.Volume, s.Container, s.Index)
	if isMount, err := mounted(target); err == nil && isMount {
		if err := detach(target); err != nil {
			return "", err
		}
	}
	return target, makeTarget(target, true)
}

// makeTarget makes a file or a folder to mount on.
func makeTarget(target string, dir bool) error {
	if err := makeDir(filepath.Dir(target)); err != nil {
		return err
	}
	if info, err := os.Lstat(target); err == nil && info.IsDir() != dir {
		if err := os.Remove(target); err != nil {
			return err
		}
	}
	if dir {
		err := os.Mkdir(target, dirMode)
		if errors.Is(err, fs.ErrExist) {
			err = nil
		}
		return err
	}
	f, err := os.OpenFile(target, os.O_CREATE|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	return f.Close()
}

// makeBelow makes the missing folders of a path below volume and opens the
// last. Each is opened from the one before it, so that none can be exchanged.
func makeBelow(volume int, path string) (int, error) {
	var top unix.Stat_t
	if err := unix.Fstat(volume, &top); err != nil {
		return -1, err
	}
	if top.Mode&unix.S_IFMT != unix.S_IFDIR {
		return -1, errors.New("the volume is a file")
	}
	parts := strings.Split(filepath.Clean(path), "/")
	for i, part := range parts {
		before := filepath.Join(append([]string{"."}, parts[:i]...)...)
		parent, err := openAt(volume, before, unix.O_PATH|unix.O_DIRECTORY, resolveBelow)
		if err != nil {
			return -1, err
		}
		err = makeIn(parent, part, top)
		if err = errors.Join(err, unix.Close(parent)); err != nil {
			return -1, err
		}
	}
	return openAt(volume, path, unix.O_PATH, resolveBelow)
}

// makeIn makes the folder name in parent, if nothing of that name is there,
// with the permissions and the group of top.
func makeIn(parent int, name string, top unix.Stat_t) error {
	err := unix.Mkdirat(parent, name, 0o700)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	if err != nil {
		return &fs.PathError{Op: "mkdir", Path: name, Err: err}
	}
	fd, err := openAt(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, unix.RESOLVE_BENEATH)
	if err != nil {
		return err
	}
	err = unix.Fchmod(fd, top.Mode&0o7777)
	if top.Mode&unix.S_ISGID != 0 { // a volume with an fsGroup
		err = errors.Join(unix.Fchown(fd, -1, int(top.Gid)), unix.Fchmod(fd, top.Mode&0o7777))
	}
	return errors.Join(err, unix.Close(fd))
}

// checkSubPath refuses what the API's validation refuses too; the result of a
// subPathExpr has not seen that.
func checkSubPath(path string) error {
	if path == "" || filepath.IsAbs(path) || strings.ContainsRune(path, 0) {
		return errors.New("it must be a relative path")
	}
	for part := range strings.SplitSeq(path, "/") {
		if part == ".." {
			return errors.New(`it must not contain ".."`)
		}
	}
	return nil
}

// CleanSubPaths unmounts all parts of volumes of a pod and removes their folder.
func (h *Host) CleanSubPaths(ctx context.Context, uid types.UID) error {
	if err := errors.Join(ctx.Err(), checkName(string(uid))); err != nil {
		return err
	}
	top := h.layout.SubPaths(uid)
	// The folder is ours: volume, container, index.
	targets, err := filepath.Glob(filepath.Join(globQuote(top), "*", "*", "*"))
	if err != nil {
		return err
	}
	var errs []error
	for _, target := range targets {
		errs = append(errs, h.freeing(ctx, target, func() error { return unmount(target) }))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("unmount the subPaths of pod %s: %w", uid, err)
	}
	return removeTree(ctx, top)
}

// globQuote makes a path match only itself.
func globQuote(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}
