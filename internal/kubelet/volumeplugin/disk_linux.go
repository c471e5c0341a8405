package volumeplugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/mount-utils"
	utilexec "k8s.io/utils/exec"

	"github.com/holdfast-dev/holdfast/internal/atomicfile"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
	"github.com/holdfast-dev/holdfast/internal/localdisk"
)

// mountDisk has the filesystem on the device of a local PersistentVolume mounted
// where upstream mounts it, once for all pods, and returns that folder. A blank
// device is formatted first. The caller holds the lock of the PersistentVolume.
func (h *Host) mountDisk(ctx context.Context, v *podvolumes.Volume) (string, error) {
	dev, err := localdisk.Open(v.HostPath)
	if err != nil {
		return "", err
	}
	defer func() { _ = dev.Close() }() // nothing was written through it
	target := h.layout.Disk(v.Dir)
	for _, point := range []string{target, h.layout.Volume(v.PodUID, v.ID)} { // the latter, if somebody unmounted the former
		on, err := deviceOn(point)
		switch {
		case err != nil:
			return "", err
		case on == nil:
		case on.Source == dev.Path || unix.Mkdev(uint32(on.Major), uint32(on.Minor)) == dev.Number:
			return point, h.forgetFormatting(v.Dir)
		default:
			return "", fmt.Errorf("%s is mounted on %s, and not %s: unmount it", on.Source, point, dev.Path)
		}
	}

	defer h.locks.lock(deviceKey(dev.Number))()
	switch users, err := h.rawUsers(dev.Number); {
	case err != nil:
		return "", err
	case len(users) > 0:
		return "", fmt.Errorf("%s is in use as a raw device by the pod with UID %s: no filesystem of it can be mounted meanwhile", dev.Path, users[0].pod)
	}
	if err := dev.Busy(); err != nil {
		return "", err
	}
	content, err := dev.Scan()
	if err != nil {
		return "", err
	}
	ours, err := h.formatting(v.Dir, dev)
	if err != nil {
		return "", err
	}
	plan, err := planDisk(content, disk{fsType: v.FSType, readOnly: v.ReadOnly || dev.ReadOnly || slices.Contains(v.MountOptions, "ro"), ours: ours})
	if err != nil {
		return "", fmt.Errorf("%s %w", dev.Path, err)
	}
	if plan.format {
		if err := canFormat(plan.fsType); err != nil {
			return "", fmt.Errorf("%s is blank: %w", dev.Path, err)
		}
		if err := h.beginFormatting(v.Dir, dev); err != nil {
			return "", err
		}
		if plan.wipe {
			if err := dev.Wipe(); err != nil {
				return "", err
			}
		}
		h.log.Info("formatting a device that is blank", "volume", v.Dir, "path", dev.Path, "bytes", dev.Size)
	}
	if err := makeDir(target); err != nil {
		return "", err
	}
	options := slices.Clone(v.MountOptions)
	if dev.ReadOnly {
		options = append(options, "ro")
	}
	if err := h.formatAndMount(ctx, dev.Path, target, plan, options); err != nil {
		return "", errors.Join(err, os.Remove(target))
	}
	return target, h.forgetFormatting(v.Dir)
}

// A disk is what is wanted of a device, and what is known of it besides its content.
type disk struct {
	fsType   string // that the PersistentVolume names; empty: any
	readOnly bool   // nothing may be written to it
	ours     bool   // it was blank when an earlier try began to format it
}

// A diskPlan is what is done to a device.
type diskPlan struct {
	fsType string // to mount it as
	format bool
	wipe   bool // before, because a format of ours was cut short
}

const defaultFSType = "ext4" // upstream's

// planDisk decides what becomes of a device. Nothing is written over what it
// holds, but for what an earlier try of ours left half-made.
func planDisk(content localdisk.Content, d disk) (diskPlan, error) {
	have := content.Filesystem()
	switch {
	case strings.Trim(d.fsType, "abcdefghijklmnopqrstuvwxyz0123456789_-") != "":
		return diskPlan{}, fmt.Errorf("cannot have the filesystem %q: spec.local.fsType is no name of one", d.fsType)
	case have != "" && (d.fsType == "" || d.fsType == have):
		return diskPlan{fsType: have}, nil
	case have != "" || len(content.Names) > 0 && !content.Unfinished:
		want := "a blank device or a filesystem is wanted"
		if d.fsType != "" {
			want = fmt.Sprintf("spec.local.fsType is %s", d.fsType)
		}
		return diskPlan{}, fmt.Errorf("holds %s, and %s: it is not touched; if its data is not wanted, erase it with blkdiscard --zeroout, or zero its first and last MiB", content, want)
	case !content.Blank() && !d.ours:
		return diskPlan{}, fmt.Errorf("holds %s, and is formatted only if it is blank: it is not touched; if its data is not wanted, erase it with blkdiscard --zeroout, or zero its first and last MiB", content)
	case d.readOnly:
		return diskPlan{}, fmt.Errorf("has no filesystem and is to be read only, so that none can be made")
	}
	plan := diskPlan{fsType: d.fsType, format: true, wipe: !content.Blank()}
	if plan.fsType == "" {
		plan.fsType = defaultFSType
	}
	return plan, nil
}

// canFormat returns an error if the machine has no program that makes such a filesystem.
func canFormat(fsType string) error {
	program := "mkfs." + fsType
	if _, err := exec.LookPath(program); err != nil {
		return fmt.Errorf("%s, which would make the filesystem, cannot be run: install it, or name another one in spec.local.fsType, such as %s: %w", program, defaultFSType, err)
	}
	return nil
}

// formatAndMount checks the filesystem or makes it, and mounts it.
func (h *Host) formatAndMount(ctx context.Context, device, target string, plan diskPlan, options []string) error {
	run := utilexec.New()
	safe := mount.NewSafeFormatAndMount(h.mounter, commands{run, func(name string, args ...string) utilexec.Cmd {
		// It formats where blkid says that there is nothing, and blkid says so also of
		// a superblock that is damaged or cannot be read now.
		if strings.HasPrefix(name, "mkfs.") && !plan.format {
			name, args = "false", nil
		}
		return run.CommandContext(ctx, name, args...)
	}})
	err := safe.FormatAndMount(device, target, plan.fsType, options)
	if err == nil {
		return nil
	}
	var why mount.MountError
	errors.As(err, &why)
	err = errors.New(oneLine(err.Error()))
	switch {
	case why.Type == mount.FormatFailed && !plan.format:
		return fmt.Errorf("the %s on %s is damaged so that blkid does not know it any more: mend it with %s", plan.fsType, device, repair(plan.fsType, device))
	case why.Type == mount.HasFilesystemErrors:
		return fmt.Errorf("the %s on %s is damaged, and its check did not mend it by itself: mend it with %s (%w)", plan.fsType, device, repair(plan.fsType, device), err)
	case plan.format:
		return fmt.Errorf("make a filesystem %s on %s and mount it: %w", plan.fsType, device, err)
	}
	return fmt.Errorf("mount the %s on %s (if it is damaged, mend it with %s): %w", plan.fsType, device, repair(plan.fsType, device), err)
}

// oneLine makes what a program printed fit for an event, and leaves out how it was
// called, where mount-utils says that.
func oneLine(text string) string {
	if _, output, ok := strings.Cut(text, "\nOutput: "); ok {
		text = output
	}
	return strings.Join(strings.Fields(text), " ")
}

func repair(fsType, device string) string {
	switch fsType {
	case "xfs":
		return "xfs_repair " + device
	case "btrfs":
		return "btrfs check " + device
	}
	return "fsck." + fsType + " " + device
}

// commands runs programs for mount-utils.
type commands struct {
	utilexec.Interface
	command func(name string, args ...string) utilexec.Cmd
}

func (c commands) Command(name string, args ...string) utilexec.Cmd { return c.command(name, args...) }

// releaseDisk unmounts the device of a local PersistentVolume when no pod has it
// any more. It is nil if there is none.
func (h *Host) releaseDisk(ctx context.Context, pv string) error {
	defer h.locks.lock(volumeKey(pv))()
	target := h.layout.Disk(pv)
	isMount, err := mounted(target)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && isMount {
		shared, err := h.usedByPods(target)
		if err != nil || shared {
			return err
		}
	}
	// What a pod mounted in its volume is in this mount of the same disk, too.
	if err := h.freeing(ctx, target, func() error { return unmount(target) }); err != nil {
		return err
	}
	return os.Remove(target) // it was a mount point and is empty
}

// deviceOn returns what is mounted on a path; nil if nothing is.
func deviceOn(path string) (*mount.MountInfo, error) {
	isMount, err := mounted(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !isMount {
		return nil, nil //nolint:nilnil // neither a mount nor an error
	}
	if err != nil && !stale(err) {
		return nil, err
	}
	infos, err := mount.ParseMountInfo("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	for _, info := range slices.Backward(infos) { // the last one lies on top
		if info.MountPoint == path {
			return &info, nil
		}
	}
	return nil, fmt.Errorf("%s is mounted and not in the kernel's list", path)
}

// formatMark is the file that says that a device was blank and is being formatted.
type formatMark struct {
	Version int                `json:"version"`
	Device  localdisk.Identity `json:"device"`
}

const formatMarkVersion = 1

// formatting reports whether an earlier try began to format the device.
func (h *Host) formatting(pv string, dev *localdisk.Device) (bool, error) {
	data, err := os.ReadFile(h.layout.Formatting(pv))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var mark formatMark
	if err := json.Unmarshal(data, &mark); err != nil || mark.Version != formatMarkVersion {
		return false, nil // not ours, or not whole: it proves nothing
	}
	return mark.Device.Same(dev.Identity()), nil
}

// beginFormatting notes, so that it survives a power cut, that the device was
// blank, or was so when an earlier try began.
func (h *Host) beginFormatting(pv string, dev *localdisk.Device) error {
	data, err := json.Marshal(formatMark{formatMarkVersion, dev.Identity()})
	if err != nil {
		return err
	}
	path := h.layout.Formatting(pv)
	if err := makeDir(filepath.Dir(path)); err != nil {
		return err
	}
	return atomicfile.Write(path, append(data, '\n'), 0o600)
}

func (h *Host) forgetFormatting(pv string) error {
	err := os.Remove(h.layout.Formatting(pv))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// volumeKey and deviceKey name what is locked: the first before the second.
func volumeKey(pv string) string { return "volume " + pv }

// deviceKey is that of the whole disk, because a partition is a part of it.
func deviceKey(number uint64) string { return fmt.Sprint("device ", localdisk.Whole(number)) }

// A rawUser is a pod that has a device raw.
type rawUser struct {
	pod    types.UID
	number uint64
}

// rawUsers returns the pods that have a device raw, or one that it overlaps.
func (h *Host) rawUsers(number uint64) ([]rawUser, error) {
	pods, err := folders(h.layout.Pods())
	if err != nil {
		return nil, err
	}
	var users []rawUser
	for _, pod := range pods {
		blocks, err := h.foundIn(types.UID(pod), h.layout.VolumeDevices(types.UID(pod)), true)
		if err != nil {
			return nil, fmt.Errorf("find out who has the device raw: %w", err)
		}
		for _, block := range blocks {
			var stat unix.Stat_t
			if err := unix.Stat(block.Path, &stat); errors.Is(err, unix.ENOENT) {
				continue // the device is gone, and the number with it
			} else if err != nil {
				return nil, &fs.PathError{Op: "stat", Path: block.Path, Err: err}
			}
			if stat.Mode&unix.S_IFMT == unix.S_IFBLK && localdisk.Overlap(stat.Rdev, number) {
				users = append(users, rawUser{block.PodUID, stat.Rdev})
			}
		}
	}
	return users, nil
}
