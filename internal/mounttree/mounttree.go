// Package mounttree deletes folders that may have something mounted in them,
// without ever deleting what is mounted there.
//
// It reads /proc/self/mountinfo and changes mounts and files below the given
// folder only. Calls for different folders may run at once.
package mounttree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Remove unmounts all that is mounted below dir and deletes dir. It deletes
// nothing while anything is mounted below: that would be the content of somebody
// else's folder. A dir that is a mount point itself, of a disk that the user put
// there, is emptied and stays.
func Remove(dir string) error {
	real, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := Unmount(real); err != nil {
		return err
	}
	entries, err := os.ReadDir(real)
	errs := []error{err}
	for _, e := range entries {
		errs = append(errs, os.RemoveAll(filepath.Join(real, e.Name())))
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, unix.EBUSY) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Unmount unmounts everything below dir. It goes round again for mounts
// that came to light when those above them went.
func Unmount(dir string) error {
	const rounds = 5
	var errs []error
	for range rounds {
		points, err := mountsBelow(dir)
		if err != nil || len(points) == 0 {
			return err
		}
		errs = nil
		for _, point := range slices.Backward(points) {
			errs = append(errs, unmountPoint(point))
		}
	}
	return fmt.Errorf("%s is not deleted, something is still mounted below: %w", dir, errors.Join(errs...))
}

func unmountPoint(point string) error {
	err := unix.Unmount(point, unix.UMOUNT_NOFOLLOW)
	if errors.Is(err, unix.EBUSY) {
		// A process that we may not end has a file open there. The mount leaves
		// the tree now and ends with that process.
		err = unix.Unmount(point, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
	}
	if err != nil {
		return fmt.Errorf("unmount %s: %w", point, err)
	}
	return nil
}

func mountsBelow(dir string) ([]string, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	return pointsBelow(string(data), dir), nil
}

// pointsBelow returns the mount points strictly below dir, in the order of a
// mountinfo file (proc(5)): a mount comes after the one that it lies on.
func pointsBelow(mountinfo, dir string) []string {
	var points []string
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		if point := unescape(fields[4]); strings.HasPrefix(point, strings.TrimSuffix(dir, "/")+"/") {
			points = append(points, point)
		}
	}
	return points
}

// unescape undoes the kernel's \ooo for space, tab, newline and backslash.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) && octal(s[i+1]) && octal(s[i+2]) && octal(s[i+3]) {
			b.WriteByte((s[i+1]-'0')<<6 | (s[i+2]-'0')<<3 | (s[i+3] - '0'))
			i += 3
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func octal(c byte) bool { return '0' <= c && c <= '7' }
