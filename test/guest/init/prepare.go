package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/holdfast-dev/holdfast/test/guest/wire"
)

// environment is what programs get.
var environment = []string{"PATH=/bin:/opt/holdfast", "HOME=/root", "TERM=linux", "LANG=C.UTF-8"}

// prepare does what must be done before anything else can run.
func prepare(ctx context.Context) error {
	if err := leaveRootfs(); err != nil {
		return fmt.Errorf("leave the kernel's root: %w", err)
	}
	for _, m := range []struct {
		target, fs string
		flags      uintptr
		data       string
	}{
		{"/proc", "proc", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
		{"/sys", "sysfs", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
		{"/dev", "devtmpfs", unix.MS_NOSUID, "mode=0755"},
		{"/dev/pts", "devpts", unix.MS_NOSUID | unix.MS_NOEXEC, "mode=0620,ptmxmode=0666"},
		{"/dev/shm", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
		{"/dev/mqueue", "mqueue", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
		{"/run", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=0755"},
		{"/tmp", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
		{"/sys/fs/cgroup", "cgroup2", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, "nsdelegate"},
		{"/sys/kernel/security", "securityfs", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
	} {
		err := os.MkdirAll(m.target, 0o755)
		if err == nil {
			err = unix.Mount(m.fs, m.target, m.fs, m.flags, m.data)
		}
		if err != nil {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	if err := os.WriteFile("/proc/sys/kernel/modprobe", []byte("/bin/modprobe"), 0o644); err != nil {
		return err
	}
	for _, module := range []string{"virtio_pci", "virtio_blk", "virtio_console", "virtio_rng", "overlay", "loop", "dm_mod", "nfs"} {
		if err := say(ctx, "modprobe", module); err != nil {
			return err
		}
	}
	if err := errors.Join(say(ctx, "hostname", "guest"), say(ctx, "ip", "link", "set", "lo", "up")); err != nil {
		return err
	}
	return disks(ctx)
}

// leaveRootfs makes the root a mount of its own on top of the kernel's first
// root, which pivot_root, and with it every container, refuses to leave.
func leaveRootfs() error {
	if err := os.MkdirAll("/root.new", 0o755); err != nil {
		return err
	}
	if err := unix.Mount("/", "/root.new", "", unix.MS_BIND, ""); err != nil {
		return err
	}
	if err := unix.Chdir("/root.new"); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return err
	}
	if err := unix.Chroot("."); err != nil {
		return err
	}
	return unix.Chdir("/")
}

// disks mounts the disks that the kernel's parameter names, each after a look
// whether it is new and must be formatted.
func disks(ctx context.Context) error {
	parameters, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return err
	}
	list, err := wire.ParseDisks(string(parameters))
	if err != nil {
		return err
	}
	for i, disk := range list {
		device := fmt.Sprintf("/dev/vd%c", 'a'+i)
		if err := mount(ctx, device, disk); err != nil {
			return fmt.Errorf("disk %s: %w", device, err)
		}
	}
	return nil
}

func mount(ctx context.Context, device string, disk wire.Disk) error {
	if disk.FS == "" {
		return nil
	}
	blank, err := isBlank(device)
	if err != nil {
		return err
	}
	if blank {
		args := append([]string{"mkfs." + disk.FS, "-q"}, disk.MkfsArgs...)
		if err := say(ctx, append(args, device)...); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(disk.Mount, 0o755); err != nil {
		return err
	}
	options := disk.Options
	if options == "" {
		options = "defaults"
	}
	return say(ctx, "mount", "-t", disk.FS, "-o", options, device, disk.Mount)
}

// isBlank reports whether the disk's first 128 KiB, where every file system has its
// mark, are zero.
func isBlank(device string) (bool, error) {
	f, err := os.Open(device)
	if err != nil {
		return false, err
	}
	defer f.Close()
	head := make([]byte, 128<<10)
	if _, err := io.ReadFull(f, head); err != nil {
		return false, err
	}
	return bytes.Equal(head, make([]byte, len(head))), nil
}

// say runs a program whose output is the console's. PATH is not set yet.
func say(ctx context.Context, argv ...string) error {
	cmd := exec.CommandContext(ctx, filepath.Join("/bin", argv[0]), argv[1:]...)
	cmd.Env = environment
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(argv, " "), err)
	}
	return nil
}

// alone reports whether no process is left but number 1, this one and the
// kernel's own.
func alone() bool {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	return !slices.ContainsFunc(dirs, func(dir string) bool {
		pid := filepath.Base(dir)
		if pid == "1" || pid == fmt.Sprint(os.Getpid()) {
			return false
		}
		line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		return err == nil && len(line) > 0 // a kernel thread has none
	})
}
