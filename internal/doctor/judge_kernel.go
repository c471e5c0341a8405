package doctor

import (
	"fmt"
	"strings"
)

// The least room in which a node can work: the store takes 64 MiB ahead for its log,
// and images want the rest.
const (
	leastDisk  = 256 << 20
	scarceDisk = 2 << 30
	leastFiles = 10_000
)

func storage(h Host) Finding {
	d := h.Disk
	found := fmt.Sprintf("%s: %s, %d MiB free", d.Path, orUnknown(d.Type), d.Free>>20)
	switch {
	case d.Err != nil:
		return Finding{"disk", Error, fmt.Sprintf("%s: %v", d.Path, d.Err), "everything of the node is kept there", "--root-dir with another folder"}
	case d.ReadOnly:
		return Finding{"disk", Error, d.Path + " is mounted read-only", "everything of the node is kept there", "mount -o remount,rw, or --root-dir with another folder"}
	case d.NoExec:
		return Finding{"disk", Error, d.Path + " is mounted noexec", "programs in containers do not start from there", "mount -o remount,exec, or --root-dir with another folder"}
	case d.NoDev || d.NoSUID:
		return Finding{"disk", Warning, d.Path + " is mounted nodev or nosuid", "devices and set-user-ID programs in containers do not work from there", "mount -o remount,dev,suid, or --root-dir with another folder"}
	case d.Free < leastDisk:
		return Finding{"disk", Error, found, "the store alone takes 64 MiB ahead", "free some, or --root-dir on another disk"}
	case d.Free < scarceDisk:
		return Finding{"disk", Warning, found, "images, logs and volumes of pods are kept there", "free some, or --root-dir on another disk"}
	case !d.Persistent:
		return Finding{"disk", Warning, found, "it is in memory: everything of the node is gone after a reboot", "--root-dir on a disk"}
	}
	return ok("disk", "%s", found)
}

func orUnknown(s string) string {
	if s == "" {
		return "a filesystem that is not known"
	}
	return s
}

func inodes(h Host) Finding {
	switch {
	case h.Disk.Err != nil || h.Disk.FreeFiles < 0:
		return Finding{}
	case h.Disk.FreeFiles < leastFiles:
		return Finding{"inodes", Warning, fmt.Sprintf("%d free in %s", h.Disk.FreeFiles, h.Disk.Path), "an image has thousands of files", "remove small files, or --root-dir on another disk"}
	}
	return ok("inodes", "%d free", h.Disk.FreeFiles)
}

// noUpper are filesystems that overlayfs takes no upper folder on
// (Documentation/filesystems/overlayfs in the kernel's sources).
var noUpper = []string{"overlay", "nfs", "cifs", "fuse", "vfat", "ecryptfs", "squashfs"}

func overlay(h Host) Finding {
	if h.Endpoint != "" {
		return Finding{} // its images are not kept here
	}
	for _, kind := range noUpper {
		if h.Disk.Type == kind {
			return Finding{"overlay", Error, fmt.Sprintf("%s is %s", h.Disk.Path, kind), "containers' filesystems cannot be laid over one another there", "--root-dir on ext4, xfs or btrfs"}
		}
	}
	if strings.Contains(h.Filesystems, "\toverlay\n") || hasModule(h.Modules, "overlay") {
		return ok("overlay", "the kernel has it")
	}
	return Finding{"overlay", Error, "the kernel has no overlay filesystem", "containers' filesystems are laid over their images", "modprobe overlay, or a kernel that has it"}
}

func seccomp(h Host) Finding {
	if h.Seccomp {
		return ok("seccomp", "the kernel has it")
	}
	return Finding{"seccomp", Warning, "the kernel has no seccomp filters", "a pod with a seccompProfile does not start", "a kernel with CONFIG_SECCOMP_FILTER"}
}

func appArmor(h Host) Finding {
	if h.AppArmor {
		return ok("apparmor", "on")
	}
	return Finding{"apparmor", Note, "off", "a pod with an appArmorProfile other than Unconfined is refused", ""}
}

func userNamespaces(h Host) Finding {
	if h.UserNamespaces > 0 {
		return ok("user-namespaces", "%d at most", h.UserNamespaces)
	}
	return Finding{"user-namespaces", Note, "none are allowed", "programs in pods that make their own, such as browsers and builders, do not work", "sysctl user.max_user_namespaces=15000"}
}

func inotify(h Host) Finding {
	const watches, instances = 8192, 128
	switch {
	case h.InotifyWatches < 0:
		return Finding{"inotify", Warning, "the kernel has no inotify", "files that appear are seen only now and then", "a kernel with CONFIG_INOTIFY_USER"}
	case h.InotifyWatches < watches || h.InotifyUsers < instances:
		return Finding{
			"inotify", Warning, fmt.Sprintf("%d watches, %d instances", h.InotifyWatches, h.InotifyUsers),
			"they are shared by everything that root runs, in pods too", fmt.Sprintf("sysctl fs.inotify.max_user_watches=%d fs.inotify.max_user_instances=%d", 8*watches, 8*instances),
		}
	}
	return ok("inotify", "%d watches, %d instances", h.InotifyWatches, h.InotifyUsers)
}

func pids(h Host) Finding {
	const few = 4096
	switch {
	case h.PIDs < 0:
		return Finding{}
	case h.PIDs < few:
		return Finding{"pids", Warning, fmt.Sprintf("%d at most", h.PIDs), "all pods share them", "sysctl kernel.pid_max=32768"}
	}
	return ok("pids", "%d at most", h.PIDs)
}

func openFileLimit(h Host) Finding {
	const few = 4096
	switch {
	case h.OpenFiles == 0:
		return Finding{}
	case h.OpenFiles < few:
		return Finding{"open-files", Warning, fmt.Sprintf("%d at most", h.OpenFiles), "each pod takes a dozen", "ulimit -n 65536, or LimitNOFILE= in the unit"}
	}
	return ok("open-files", "%d at most", h.OpenFiles)
}
