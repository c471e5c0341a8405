package hoststats

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/holdfast-dev/holdfast/internal/cadvisormetrics"
	"github.com/holdfast-dev/holdfast/internal/cgroupfs"
)

// Device returns the name of a block device, such as /dev/sda1, by its numbers. Empty: there
// is none with them, as of filesystems that are on no device.
func (h *Host) Device(major, minor uint32) string {
	link, err := os.Readlink(filepath.Join("/", h.root, "sys/dev/block", fmt.Sprintf("%d:%d", major, minor)))
	if err != nil {
		return ""
	}
	return "/dev/" + filepath.Base(link)
}

// DeviceWork returns what a block device, such as /dev/sda1, has done since the machine's
// start. ok is false for one that there is not.
func (h *Host) DeviceWork(name string) (work cadvisormetrics.Device, ok bool, err error) {
	content, err := os.ReadFile(filepath.Join("/", h.root, "proc/diskstats"))
	if err != nil {
		return cadvisormetrics.Device{}, false, err
	}
	work, ok = parseDiskstats(content, filepath.Base(name))
	work.Name = name
	return work, ok, nil
}

// parseDiskstats finds a device in /proc/diskstats (the kernel's admin-guide/iostats): its
// numbers and name, then reads, reads merged, sectors read and milliseconds of it, the same
// of writes, requests under way, milliseconds with any, and milliseconds times requests.
func parseDiskstats(content []byte, device string) (cadvisormetrics.Device, bool) {
	for line := range bytes.Lines(content) {
		fields := bytes.Fields(line)
		if len(fields) < 14 || string(fields[2]) != device {
			continue
		}
		var n [14]uint64
		for i := range n {
			var err error
			if n[i], err = strconv.ParseUint(string(fields[i]), 10, 64); err != nil && i != 2 {
				return cadvisormetrics.Device{}, false
			}
		}
		const sector = 512
		milliseconds := func(n uint64) time.Duration { return time.Duration(n) * time.Millisecond } //nolint:gosec // not 200 million years
		return cadvisormetrics.Device{
			IO: cgroupfs.DeviceIO{
				Major: uint32(n[0]), Minor: uint32(n[1]), //nolint:gosec // the kernel's are smaller
				Reads: n[3], ReadBytes: n[5] * sector, Writes: n[7], WriteBytes: n[9] * sector,
			},
			Queue: &cadvisormetrics.Queue{
				ReadsMerged: n[4], ReadTime: milliseconds(n[6]), WritesMerged: n[8], WriteTime: milliseconds(n[10]),
				Current: n[11], Busy: milliseconds(n[12]), Weighted: milliseconds(n[13]),
			},
		}, true
	}
	return cadvisormetrics.Device{}, false
}
