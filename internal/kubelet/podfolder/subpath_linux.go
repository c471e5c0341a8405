package podfolder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podfiles"
)

// subpathsFolder is where paths inside volumes are held open, by volume,
// container and mount, as upstream has it.
const subpathsFolder = "volume-subpaths"

// Subpath returns a path that is, and stays, the folder or file sub inside
// volume. What is in a volume may be under the control of whoever wrote to it,
// and may change at any moment: the path is resolved by the kernel, which
// refuses a link that leads out, and then held by a bind mount of the very file
// that was found. A missing folder is made.
func (f *Folders) Subpath(at podfiles.SubpathTarget, volume, sub string) (string, error) {
	if err := checkNames(string(at.UID), at.Volume, at.Container); err != nil {
		return "", err
	}
	if err := makeInside(volume, sub); err != nil {
		return "", err
	}
	fd, dir, err := openBeneath(volume, sub)
	if err != nil {
		return "", err
	}
	defer func() { _ = unix.Close(fd) }()
	target := filepath.Join(podfiles.PodFolder(f.root, at.UID), subpathsFolder, at.Volume, at.Container, strconv.Itoa(at.Index))
	if err := makeTarget(target, dir); err != nil {
		return "", err
	}
	if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", fd), target, "", unix.MS_BIND, ""); err != nil {
		return "", fmt.Errorf("bind %q: %w", target, err)
	}
	return target, nil
}

// makeInside makes the folder sub inside volume if nothing is there, with the
// volume's mode, so that whoever may write to the volume may write there.
func makeInside(volume, sub string) error {
	root, err := os.OpenRoot(volume)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	if _, err := root.Stat(sub); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	info, err := root.Stat(".")
	if err != nil {
		return err
	}
	mode := info.Mode() & (fs.ModePerm | fs.ModeSetgid | fs.ModeSticky)
	if err := root.MkdirAll(sub, mode&fs.ModePerm); err != nil {
		return err
	}
	return root.Chmod(sub, mode) // the umask may have cut it
}

// openBeneath opens sub inside volume by a handle that can only be mounted and
// asked for its kind.
func openBeneath(volume, sub string) (fd int, dir bool, err error) {
	base, err := unix.Open(volume, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, false, &fs.PathError{Op: "open", Path: volume, Err: err}
	}
	defer func() { _ = unix.Close(base) }()
	how := &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
	}
	for {
		fd, err = unix.Openat2(base, sub, how)
		// EAGAIN: something was renamed meanwhile and the kernel wants to look again.
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			break
		}
	}
	if err != nil {
		return 0, false, &fs.PathError{Op: "open inside volume", Path: sub, Err: err}
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd)
		return 0, false, &fs.PathError{Op: "stat", Path: sub, Err: err}
	}
	return fd, st.Mode&unix.S_IFMT == unix.S_IFDIR, nil
}

// makeTarget makes the mount point, of the kind of what is mounted there. What
// an earlier start of the container mounted there goes first.
func makeTarget(target string, dir bool) error {
	if err := unmountAll(target); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
		return err
	}
	if err := os.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if dir {
		return os.Mkdir(target, 0o750)
	}
	file, err := os.OpenFile(target, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	return file.Close()
}

// unmountAll takes away what is mounted at path, or nothing.
func unmountAll(path string) error {
	for {
		err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		switch {
		case err == nil, errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT): // not mounted, not there
			return nil
		default:
			return &fs.PathError{Op: "unmount", Path: path, Err: err}
		}
	}
}

// ReleaseSubpaths takes away all that Subpath mounted for a pod. It removes
// mount points one by one and never what was mounted.
func (f *Folders) ReleaseSubpaths(uid types.UID) error {
	if err := checkNames(string(uid)); err != nil {
		return err
	}
	return releaseTree(filepath.Join(podfiles.PodFolder(f.root, uid), subpathsFolder), 3)
}

// releaseTree goes depth levels down to the mount points, and removes each
// level after the one below.
func releaseTree(path string, depth int) error {
	if depth == 0 {
		if err := unmountAll(path); err != nil {
			return err
		}
		return os.Remove(path)
	}
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := releaseTree(filepath.Join(path, e.Name()), depth-1); err != nil {
			return err
		}
	}
	return os.Remove(path)
}
