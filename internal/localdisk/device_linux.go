package localdisk

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/mount-utils"
)

// ErrNoDevice is matched by Open's error for a path that is no block device.
var ErrNoDevice = errors.New("not a block device")

// A Device is a block device that is open for reading. As long as it is open,
// the kernel gives its number to no other.
type Device struct {
	Path     string // without links; it may lead to another device when this one is gone
	Number   uint64 // as stat(2) has it
	Size     int64  // bytes
	ReadOnly bool   // the kernel refuses to write to it

	file *os.File
}

// Open opens the device that path leads to, over links.
func Open(path string) (*Device, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(real)
	if err != nil {
		return nil, err
	}
	if info.Mode().Type() != os.ModeDevice { // to open anything else could wait for ever
		return nil, fmt.Errorf("%s is %w", path, ErrNoDevice)
	}
	file, err := os.OpenFile(real, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	d := &Device{Path: real, file: file}
	if err := d.look(); err != nil {
		return nil, errors.Join(fmt.Errorf("look at %s: %w", path, err), file.Close())
	}
	return d, nil
}

func (d *Device) look() error {
	var stat unix.Stat_t
	if err := unix.Fstat(int(d.file.Fd()), &stat); err != nil {
		return err
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFBLK {
		return ErrNoDevice
	}
	d.Number = stat.Rdev
	size, err := d.file.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	d.Size = size
	readOnly, err := unix.IoctlGetInt(int(d.file.Fd()), unix.BLKROGET)
	d.ReadOnly = readOnly != 0
	return err
}

// Close closes the device.
func (d *Device) Close() error { return d.file.Close() }

// Scan tells what is on the device.
func (d *Device) Scan() (Content, error) {
	content, err := Scan(d.file, d.Size)
	if err != nil {
		return Content{}, fmt.Errorf("find out what is on %s: %w", d.Path, err)
	}
	return content, nil
}

// Busy returns an error that says who uses the device, whole or in part, if the
// kernel would let nobody have it alone: it is mounted somewhere, also where this
// process cannot see it, or part of something else, or a program formats it.
func (d *Device) Busy() error {
	file, err := d.alone(os.O_RDONLY)
	if err == nil {
		return file.Close()
	}
	if errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("%s is in use%s", d.Path, d.users())
	}
	return err
}

// alone opens the device once more, so that nobody else has it meanwhile.
func (d *Device) alone(flags int) (*os.File, error) {
	file, err := os.OpenFile(d.Path, flags|unix.O_EXCL, 0)
	if err != nil {
		return nil, err
	}
	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if stat.Rdev != d.Number {
		return nil, errors.Join(fmt.Errorf("%s has become another device", d.Path), file.Close())
	}
	return file, nil
}

// users names what can be seen of who uses the device.
func (d *Device) users() string {
	var users []string
	infos, _ := mount.ParseMountInfo("/proc/self/mountinfo") // what is in use is so whoever can be named
	for _, info := range infos {
		if info.Source == d.Path || unix.Mkdev(uint32(info.Major), uint32(info.Minor)) == d.Number {
			users = append(users, "mounted on "+info.MountPoint)
		}
	}
	for _, folder := range []string{"holders", "*/holders"} { // those of its partitions too
		holders, _ := filepath.Glob(filepath.Join(d.sysfs(), folder, "*"))
		for _, holder := range holders {
			users = append(users, "part of "+filepath.Base(holder))
		}
	}
	if swaps, _ := os.ReadFile("/proc/swaps"); slices.ContainsFunc(strings.Split(string(swaps), "\n"), func(line string) bool {
		return strings.HasPrefix(line, d.Path+" ") || strings.HasPrefix(line, d.Path+"\t")
	}) {
		users = append(users, "swapped to")
	}
	if len(users) == 0 {
		return " by another program"
	}
	return ": " + strings.Join(users, ", ")
}

// sysfs returns the kernel's folder about the device.
func (d *Device) sysfs() string { return sysfs(d.Number) }

func sysfs(number uint64) string {
	return fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(number), unix.Minor(number))
}

// Whole returns the number of the disk that a device is a partition of; of any
// other device its own. Two devices share bytes only if they share this number
// and one of them is the whole.
func Whole(number uint64) uint64 {
	folder, err := filepath.EvalSymlinks(sysfs(number))
	if err != nil {
		return number
	}
	if _, err := os.Stat(filepath.Join(folder, "partition")); err != nil {
		return number
	}
	text, err := os.ReadFile(filepath.Join(filepath.Dir(folder), "dev"))
	if err != nil {
		return number
	}
	var major, minor uint32
	if _, err := fmt.Sscanf(string(text), "%d:%d", &major, &minor); err != nil {
		return number
	}
	return unix.Mkdev(major, minor)
}

// Overlap reports whether two devices have bytes in common.
func Overlap(a, b uint64) bool {
	return a == b || Whole(a) == b || a == Whole(b)
}

// Wipe zeroes the first and the last MiB, so that no signature is left. The
// caller knows that nothing on the device is worth keeping. It is an error if
// anybody uses it.
func (d *Device) Wipe() (err error) {
	file, err := d.alone(os.O_WRONLY)
	if err != nil {
		return fmt.Errorf("wipe %s: %w", d.Path, err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	zeros := make([]byte, min(Edge, d.Size))
	for _, offset := range []int64{0, d.Size - int64(len(zeros))} {
		if _, err := file.WriteAt(zeros, offset); err != nil {
			return fmt.Errorf("wipe %s: %w", d.Path, err)
		}
	}
	return file.Sync()
}

// An Identity tells whether a device is the one that it was, over a restart of
// the agent, and over one of the machine if the device has a serial number.
type Identity struct {
	Size     int64  `json:"size"`               // bytes
	Boot     string `json:"boot"`               // of the kernel
	Number   uint64 `json:"number"`             // as stat(2) has it; good while Boot is
	Sequence string `json:"sequence,omitempty"` // no two attachments of a medium in one boot share it
	Serial   string `json:"serial,omitempty"`   // the disk's own
	Start    string `json:"start,omitempty"`    // of a partition, in sectors
}

// Identity returns the device's.
func (d *Device) Identity() Identity {
	folder, err := filepath.EvalSymlinks(d.sysfs())
	if err != nil {
		folder = d.sysfs()
	}
	id := Identity{Size: d.Size, Boot: line("/proc/sys/kernel/random/boot_id"), Number: d.Number}
	disk := folder
	if _, err := os.Stat(filepath.Join(folder, "partition")); err == nil {
		id.Start = line(filepath.Join(folder, "start"))
		disk = filepath.Dir(folder)
	}
	id.Sequence = line(filepath.Join(disk, "diskseq"))
	for _, name := range []string{"wwid", "device/wwid", "serial", "device/serial"} {
		if id.Serial == "" {
			id.Serial = line(filepath.Join(disk, name))
		}
	}
	return id
}

// Same reports whether two identities are surely one device's.
func (a Identity) Same(b Identity) bool {
	if a.Size != b.Size || a.Start != b.Start || a.Serial != b.Serial {
		return false
	}
	thisBoot := a.Boot != "" && a.Boot == b.Boot && a.Number == b.Number && a.Sequence != "" && a.Sequence == b.Sequence
	return thisBoot || a.Serial != ""
}

// line returns what is in a file of one line; nothing if it cannot be read.
func line(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
