package volumeplugin

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A privileged pod may mount something in its volume, and with the propagation
// Bidirectional that is on the host too, and stays when the pod has ended. So does
// every other volume that the runtime mounted inside such a one. Upstream
// deletes what is in these mounts from a volume on the disk, and then tries for ever to
// remove the folder that they are on; any other volume it cannot unmount.

// freeing does what EBUSY keeps from its end while something is mounted below dir, a
// volume of a pod that has ended: what is mounted there is taken away, and do
// is called again. Nothing in it is touched.
func (h *Host) freeing(ctx context.Context, dir string, do func() error) error {
	err := do()
	if !errors.Is(err, unix.EBUSY) {
		return err
	}
	left, leftErr := detachBelow(ctx, dir)
	if left > 0 {
		h.log.Info("unmounted what a pod left mounted in its volume", "path", dir, "count", left)
	}
	if left == 0 || leftErr != nil {
		return errors.Join(err, leftErr)
	}
	return do()
}

// detachBelow unmounts all that is mounted below dir, at once from everybody's
// sight, and returns how many mounts it took away itself. Whoever uses one keeps it.
//
// Two things must not be led elsewhere. The path: it is opened from dir without
// following a link, which another pod that shares the volume could plant. And
// the kernel's propagation: a mount that was made of a folder of the host shares
// what is mounted in it with that folder, so it becomes private before.
func detachBelow(ctx context.Context, dir string) (detached int, err error) {
	points, err := mountPoints()
	if err != nil {
		return 0, err
	}
	tops := topsBelow(points, dir)
	if len(tops) == 0 {
		return 0, nil
	}
	fd, err := openAt(unix.AT_FDCWD, dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return 0, err
	}
	defer closeFD(fd)
	if slices.Contains(points, dir) {
		if err := makePrivate(fd, dir); err != nil {
			return 0, err
		}
	}
	for len(tops) > 0 { // each round may bring to light what others lay on
		for _, point := range tops {
			if err := ctx.Err(); err != nil {
				return detached, context.Cause(ctx)
			}
			if err := detachIn(fd, dir, point); err != nil {
				return detached, err
			}
			detached++
		}
		if points, err = mountPoints(); err != nil {
			return detached, err
		}
		tops = topsBelow(points, dir)
	}
	return detached, nil
}

// topsBelow returns those of some mount points that are strictly below dir, without
// what is mounted below these in turn. Each is named once.
func topsBelow(points []string, dir string) []string {
	var tops []string
	for _, point := range slices.Sorted(slices.Values(points)) {
		if strings.HasPrefix(point, dir+"/") && !slices.ContainsFunc(tops, func(top string) bool {
			return point == top || strings.HasPrefix(point, top+"/")
		}) {
			tops = append(tops, point)
		}
	}
	return tops
}

// detachIn unmounts point, which is below dir, on which fd is open, with all that
// is mounted below it.
func detachIn(fd int, dir, point string) error {
	name, err := filepath.Rel(dir, point)
	if err != nil {
		return err
	}
	top, err := openAt(fd, name, unix.O_PATH|unix.O_NOFOLLOW, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_SYMLINKS)
	if err != nil {
		return err
	}
	defer closeFD(top)
	if err := makePrivate(top, point); err != nil {
		return err
	}
	// By the descriptor, which is open on this very mount.
	if err := unix.Unmount(byFD(top), unix.MNT_DETACH); err != nil {
		return fmt.Errorf("detach %s: %w", point, err)
	}
	return nil
}

// makePrivate has the mount that fd is open on, and those below it, share no more
// with others what is mounted in them.
func makePrivate(fd int, path string) error {
	if err := unix.Mount("", byFD(fd), "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("make the mount on %s private: %w", path, err)
	}
	return nil
}
