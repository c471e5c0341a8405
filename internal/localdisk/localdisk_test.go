package localdisk

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"strings"
	"testing"
)

// device is what a device holds: bytes at offsets, from the end where negative.
func device(size int64, at map[int64]string) *bytes.Reader {
	data := make([]byte, size)
	for offset, text := range at {
		if offset < 0 {
			offset += size
		}
		copy(data[offset:], text)
	}
	return bytes.NewReader(data)
}

func ext(compat, incompat, readOnly byte) map[int64]string {
	return map[int64]string{1024 + 0x38: "\x53\xef", 1024 + 0x5c: string([]byte{compat}), 1024 + 0x60: string([]byte{incompat}), 1024 + 0x64: string([]byte{readOnly})}
}

func with(a, b map[int64]string) map[int64]string {
	maps.Copy(a, b)
	return a
}

func TestScan(t *testing.T) {
	const size = 8 << 20
	tests := []struct {
		name  string
		at    map[int64]string
		want  string
		mount string // the filesystem that can be mounted
	}{
		{"blank", nil, "nothing", ""},
		{"only the middle is written", map[int64]string{2 << 20: "x"}, "nothing", ""},
		{"a byte at the start", map[int64]string{9: "x"}, "data of an unknown kind", ""},
		{"a byte at the end", map[int64]string{-1: "x"}, "data of an unknown kind", ""},
		{"a byte in the first MiB", map[int64]string{Edge - 1: "x"}, "data of an unknown kind", ""},
		{"ext2", ext(0, 2, 1), "ext2", "ext2"},
		{"ext3", ext(4, 2, 1), "ext3", "ext3"},
		{"ext4 by extents", ext(4, 0x42, 1), "ext4", "ext4"},
		{"ext4 by huge files", ext(0, 2, 8), "ext4", "ext4"},
		{"journal of ext on its own", ext(0, 8, 0), "jbd", ""},
		{"ext4 whose counters look like minix", with(ext(4, 0x42, 1), map[int64]string{1040: "\x7f\x13", 1024: "BD"}), "ext4", "ext4"},
		{"ext4 with a boot loader", with(ext(4, 0x42, 1), map[int64]string{0: "\xeb\x58", 510: "\x55\xaa"}), "ext4", "ext4"},
		{"xfs", map[int64]string{0: "XFSB"}, "xfs", "xfs"},
		{"xfs in the making", map[int64]string{0: "XFSB", 126: "\x01"}, "a half-made xfs", ""},
		{"btrfs", map[int64]string{btrfsOffset: "_BHRfS_M"}, "btrfs", "btrfs"},
		{"btrfs in the making", map[int64]string{btrfsOffset: "!BHRfS_M"}, "a half-made btrfs", ""},
		{"two filesystems", map[int64]string{0: "XFSB", btrfsOffset: "_BHRfS_M"}, "xfs and btrfs", ""},
		{"a half-made one over another", map[int64]string{0: "XFSB", btrfsOffset: "!BHRfS_M"}, "xfs and btrfs", ""},
		{"swap", map[int64]string{4086: "SWAPSPACE2"}, "swap", ""},
		{"swap of large pages", map[int64]string{65526: "SWAPSPACE2"}, "swap", ""},
		{"hibernation", map[int64]string{4086: "S1SUSPEND\x00"}, "swsuspend", ""},
		{"LUKS", map[int64]string{0: "LUKS\xba\xbe"}, "crypto_LUKS", ""},
		{"LUKS, only the second header", map[int64]string{0x8000: "SKUL\xba\xbe"}, "crypto_LUKS", ""},
		{"LVM", map[int64]string{512: "LABELONE", 536: "LVM2 001"}, "LVM2_member", ""},
		{"RAID 0.9 at the end", map[int64]string{-64 << 10: "\xfc\x4e\x2b\xa9"}, "linux_raid_member", ""},
		{"RAID 1.0 at the end", map[int64]string{-8 << 10: "\xfc\x4e\x2b\xa9"}, "linux_raid_member", ""},
		{"RAID 1.2", map[int64]string{4096: "\xfc\x4e\x2b\xa9"}, "linux_raid_member", ""},
		{"a mirror's half with ext4", with(ext(4, 0x42, 1), map[int64]string{-8 << 10: "\xfc\x4e\x2b\xa9"}), "ext4 and linux_raid_member", ""},
		{"RAID of a controller", map[int64]string{-1024: "Intel Raid ISM Cfg Sig. "}, "isw_raid_member", ""},
		{"drbd", map[int64]string{-4096 + 60: "\x83\x74\x02\x6d"}, "drbd", ""},
		{"GPT", map[int64]string{510: "\x55\xaa", 450: "\xee", 512: "EFI PART", -512: "EFI PART"}, "gpt and dos", ""},
		{"GPT, only the copy", map[int64]string{-512: "EFI PART"}, "gpt", ""},
		{"MBR", map[int64]string{446: "\x80\x00\x00\x00\x83", 510: "\x55\xaa"}, "dos", ""},
		{"a loader and no partition", map[int64]string{0: "\xeb\x63\x90", 510: "\x55\xaa"}, "boot sector", ""},
		{"vfat", map[int64]string{82: "FAT32   ", 510: "\x55\xaa"}, "vfat", "vfat"},
		{"ntfs", map[int64]string{3: "NTFS    ", 510: "\x55\xaa"}, "ntfs", "ntfs"},
		{"zfs, first label", map[int64]string{128<<10 + 4096: "\x0c\xb1\xba\x00\x00\x00\x00\x00"}, "zfs_member", ""},
		{"zfs, last label", map[int64]string{-128 << 10: "\x00\x00\x00\x00\x00\xba\xb1\x0c"}, "zfs_member", ""},
		{"bcache", map[int64]string{4120: "\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81"}, "bcache", ""},
		{"iso9660", map[int64]string{32769: "CD001"}, "iso9660", "iso9660"},
		{"f2fs", map[int64]string{1024: "\x10\x20\xf5\xf2"}, "f2fs", "f2fs"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Scan(device(size, tt.at), size)
			if err != nil {
				t.Fatal(err)
			}
			if got.String() != tt.want || got.Filesystem() != tt.mount || got.Blank() != (tt.want == "nothing") {
				t.Errorf("got %v, mountable %q, blank %v; want %s, %q", got, got.Filesystem(), got.Blank(), tt.want, tt.mount)
			}
		})
	}
}

// Devices smaller than the places where signatures stand are no trouble.
func TestScanSmall(t *testing.T) {
	for _, size := range []int64{1, 511, 512, 1080, 4096, 4097, 65536, Edge - 1, Edge, Edge + 1} {
		if got, err := Scan(device(size, nil), size); err != nil || !got.Blank() {
			t.Errorf("%d bytes: %v, %v", size, got, err)
		}
		if got, err := Scan(device(size, map[int64]string{-1: "x"}), size); err != nil || got.Blank() {
			t.Errorf("%d bytes, not blank: %v, %v", size, got, err)
		}
	}
	if _, err := Scan(device(1, nil), 0); err == nil || !strings.Contains(err.Error(), "no size") {
		t.Errorf("no size: %v", err)
	}
}

// failing cannot be read from an offset on.
type failing struct {
	io.ReaderAt
	from int64
}

var errMedium = errors.New("medium error")

func (f failing) ReadAt(p []byte, offset int64) (int, error) {
	if offset+int64(len(p)) > f.from {
		return 0, errMedium
	}
	return f.ReaderAt.ReadAt(p, offset)
}

// What cannot be read is never blank.
func TestScanUnreadable(t *testing.T) {
	const size = 4 << 20
	for _, from := range []int64{0, 1024, Edge - 1, size - 1} {
		if got, err := Scan(failing{device(size, nil), from}, size); !errors.Is(err, errMedium) {
			t.Errorf("unreadable from %d: %v, %v", from, got, err)
		}
	}
	if got, err := Scan(device(size, nil), size+1); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("shorter than it says: %v, %v", got, err)
	}
}

func FuzzScan(f *testing.F) {
	for _, at := range []map[int64]string{nil, ext(4, 0x42, 1), {0: "XFSB", 126: "\x01"}, {510: "\x55\xaa", 450: "\xee"}, {4096: "\xfc\x4e\x2b\xa9"}} {
		data, err := io.ReadAll(device(8<<10, at))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, int64(0))
		f.Add(data, int64(3<<20))
	}
	f.Fuzz(func(t *testing.T, data []byte, gap int64) {
		if len(data) == 0 || gap < 0 || gap > 4<<20 {
			return
		}
		// The data stands at both ends, with zeros between.
		whole := append(append(bytes.Clone(data), make([]byte, gap)...), data...)
		got, err := Scan(bytes.NewReader(whole), int64(len(whole)))
		if err != nil {
			t.Fatal(err)
		}
		edges := append(bytes.Clone(whole[:min(Edge, len(whole))]), whole[max(0, len(whole)-Edge):]...)
		zero := len(bytes.Trim(edges, "\x00")) == 0
		if got.Blank() && !zero {
			t.Error("blank, and its edges are not zero")
		}
		if got.Zero != zero {
			t.Errorf("zero = %v, want %v", got.Zero, zero)
		}
		if got.Unfinished && got.Filesystem() != "" {
			t.Error("half made, and can be mounted")
		}
	})
}

func TestOpenRefuses(t *testing.T) {
	file := t.TempDir() + "/file"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, "/dev/null", t.TempDir()} {
		if d, err := Open(path); !errors.Is(err, ErrNoDevice) {
			t.Errorf("%s: %v, %v", path, d, err)
		}
	}
	if _, err := Open(file + "-none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

func TestIdentitySame(t *testing.T) {
	loop := Identity{Size: 1 << 20, Boot: "b1", Number: 0x700, Sequence: "7"}
	disk := Identity{Size: 1 << 30, Boot: "b1", Number: 0x800, Sequence: "3", Serial: "WD-1"}
	change := func(id Identity, f func(*Identity)) Identity { f(&id); return id }
	tests := []struct {
		name string
		a, b Identity
		want bool
	}{
		{"itself", loop, loop, true},
		{"another medium in the same drive", loop, change(loop, func(id *Identity) { id.Sequence = "8" }), false},
		{"after a reboot", loop, change(loop, func(id *Identity) { id.Boot = "b2" }), false},
		{"after a reboot, with a serial number", disk, change(disk, func(id *Identity) { id.Boot, id.Number, id.Sequence = "b2", 0x810, "4" }), true},
		{"another disk", disk, change(disk, func(id *Identity) { id.Serial = "WD-2" }), false},
		{"another partition", disk, change(disk, func(id *Identity) { id.Start = "2048" }), false},
		{"another size", disk, change(disk, func(id *Identity) { id.Size = 1 }), false},
		{"a kernel that counts no media", change(loop, func(id *Identity) { id.Sequence = "" }), change(loop, func(id *Identity) { id.Sequence = "" }), false},
	}
	for _, tt := range tests {
		if got := tt.a.Same(tt.b); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}
