// Package localdisk tells what is on a block device, and who uses it, so that
// nothing is ever written over data that somebody has.
//
// A device is blank only if that is proven: no signature of any filesystem,
// volume manager, RAID, encryption, swap or partition table is on it, and its
// first and last MiB are zero. The upstream kubelet asks for the first half
// (what blkid finds) and not for the second; a database that writes to a raw
// device has no signature. Scan is a pure function of what it reads.
//
// Everything may be called by any goroutine; a Device by one at a time.
package localdisk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Edge is how much at either end of a blank device is zero, in bytes.
const Edge = 1 << 20

// A Content is what a device holds, as far as signatures tell.
type Content struct {
	// Names are what was found, by blkid's names where it has one, the outermost
	// first; empty if nothing is known.
	Names []string
	// Unfinished says that Names[0] is a filesystem that its mkfs did not finish;
	// it cannot be mounted, and never could.
	Unfinished bool
	// Zero says that the first and the last MiB hold nothing but zeros.
	Zero bool
}

// Blank reports whether nothing can be lost by formatting the device.
func (c Content) Blank() bool { return len(c.Names) == 0 && c.Zero }

// Filesystem returns the one filesystem that the device holds and that can be
// mounted, or nothing if it holds none, another thing or several.
func (c Content) Filesystem() string {
	if len(c.Names) != 1 || c.Unfinished || !slices.Contains(mountable, c.Names[0]) {
		return ""
	}
	return c.Names[0]
}

// String describes the content for people.
func (c Content) String() string {
	switch {
	case c.Blank():
		return "nothing"
	case len(c.Names) == 0:
		return "data of an unknown kind"
	case c.Unfinished:
		return "a half-made " + c.Names[0]
	}
	return strings.Join(c.Names, " and ")
}

// mountable are the filesystems that are a volume as they are.
var mountable = []string{"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "vfat", "exfat", "ntfs", "jfs", "nilfs2", "reiserfs", "squashfs", "erofs", "iso9660", "udf", "bcachefs"}

// Scan reads what a device of size bytes holds. An error is that of reading: what
// cannot be read is not known to be blank.
func Scan(r io.ReaderAt, size int64) (Content, error) {
	if size <= 0 {
		return Content{}, errors.New("the device has no size: is a medium in it?")
	}
	s := &scanner{r: r, size: size}
	s.ext()
	s.table()
	s.swap()
	s.raid()
	s.zfs()
	s.bootSector()
	unfinished := s.unfinished()
	zero := s.zero(0) && s.zero(max(0, size-Edge))
	if s.err != nil {
		return Content{}, fmt.Errorf("read it: %w", s.err)
	}
	return Content{Names: s.names, Unfinished: unfinished && len(s.names) == 1, Zero: zero}, nil
}

// scanner gathers what it finds. The first error ends it.
type scanner struct {
	r     io.ReaderAt
	size  int64
	names []string
	err   error
}

// at returns n bytes from an offset; nil if the device does not reach that far.
func (s *scanner) at(offset int64, n int) []byte {
	if s.err != nil || offset < 0 || offset > s.size-int64(n) {
		return nil
	}
	data := make([]byte, n)
	if _, err := s.r.ReadAt(data, offset); err != nil && !errors.Is(err, io.EOF) {
		s.err = err
		return nil
	} else if err != nil {
		s.err = io.ErrUnexpectedEOF // the size is what the device says of itself
		return nil
	}
	return data
}

func (s *scanner) has(offset int64, magic string) bool {
	return string(s.at(offset, len(magic))) == magic
}

func (s *scanner) found(name string) {
	if !slices.Contains(s.names, name) {
		s.names = append(s.names, name)
	}
}

// zero reports whether the MiB from offset is zero, or what there is of it.
func (s *scanner) zero(offset int64) bool {
	data := s.at(offset, int(min(Edge, s.size-offset)))
	return len(bytes.TrimLeft(data, "\x00")) == 0
}

// table looks for what stands at fixed places.
func (s *scanner) table() {
	const superStart, superEnd = 1024, 2048
	ext := len(s.names) > 0
	for _, sig := range signatures {
		for _, offset := range sig.offsets {
			if ext && offset >= superStart && offset < superEnd {
				continue // there its superblock has counters, of any value
			}
			if offset < 0 {
				offset += s.size
			}
			if s.has(offset, sig.magic) {
				s.found(sig.name)
			}
		}
	}
}

// ext tells the three ext filesystems apart by their features, as blkid does.
func (s *scanner) ext() {
	const start = 1024
	if !s.has(start+0x38, "\x53\xef") {
		return
	}
	super := s.at(start, 1024)
	if super == nil {
		s.found("ext2")
		return
	}
	le := binary.LittleEndian
	compat, incompat, readOnly := le.Uint32(super[0x5c:]), le.Uint32(super[0x60:]), le.Uint32(super[0x64:])
	const (
		hasJournal   = 0x4
		journalDev   = 0x8
		ext3Incompat = 0x2 | 0x4 | 0x10 // file types, recovery, meta block groups
		ext3ReadOnly = 0x1 | 0x2 | 0x4  // sparse superblocks, large files, hashed folders
	)
	switch {
	case incompat&journalDev != 0:
		s.found("jbd")
	case incompat&^uint32(ext3Incompat) != 0 || readOnly&^uint32(ext3ReadOnly) != 0:
		s.found("ext4")
	case compat&hasJournal != 0:
		s.found("ext3")
	default:
		s.found("ext2")
	}
}

// swap looks at the end of the first page, of every size that pages have.
func (s *scanner) swap() {
	for page := int64(4096); page <= 65536; page *= 2 {
		tail := string(s.at(page-10, 10))
		switch {
		case tail == "SWAPSPACE2" || tail == "SWAP-SPACE":
			s.found("swap")
		case tail == "LINHIB0001" || strings.HasPrefix(tail, "S1SUSPEND") || strings.HasPrefix(tail, "S2SUSPEND") || strings.HasPrefix(tail, "ULSUSPEND"):
			s.found("swsuspend")
		}
	}
}

// raid looks for members of RAID sets that keep their superblock at the end, at
// a place that the size decides.
func (s *scanner) raid() {
	const (
		sector  = 512
		md      = "\xfc\x4e\x2b\xa9"
		mdOther = "\xa9\x2b\x4e\xfc" // version 0.9 of a machine of the other byte order
	)
	v09 := s.size&^(64<<10-1) - 64<<10
	v10 := ((s.size/sector - 16) &^ 7) * sector
	if s.has(v09, md) || s.has(v09, mdOther) || s.has(v10, md) {
		s.found("linux_raid_member")
	}
	drbd := s.size&^4095 - 4096
	for _, magic := range []string{"\x83\x74\x02\x67", "\x83\x74\x02\x6b", "\x83\x74\x02\x6c", "\x83\x74\x02\x6d"} {
		if s.has(drbd+60, magic) {
			s.found("drbd")
		}
	}
}

// zfs looks for an uberblock in each of the four labels.
func (s *scanner) zfs() {
	const label = 256 << 10
	end := s.size &^ (label - 1)
	for _, start := range []int64{0, label, end - 2*label, end - label} {
		blocks := s.at(start+label/2, label/2)
		for ; len(blocks) >= 1024; blocks = blocks[1024:] {
			if magic := blocks[:8]; string(magic) == "\x0c\xb1\xba\x00\x00\x00\x00\x00" || string(magic) == "\x00\x00\x00\x00\x00\xba\xb1\x0c" {
				s.found("zfs_member")
			}
		}
	}
}

// bootSector looks for what shares the mark at the end of the first sector: a
// table of partitions, FAT, or only a loader.
func (s *scanner) bootSector() {
	first := s.at(0, 512)
	if first == nil || first[510] != 0x55 || first[511] != 0xaa {
		return
	}
	fat := func(offset int, names ...string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return string(first[offset:offset+len(name)]) == name })
	}
	switch {
	case slices.Contains(s.names, "ntfs") || slices.Contains(s.names, "exfat") || slices.Contains(s.names, "BitLocker"):
	case fat(82, "FAT32   ", "MSWIN") || fat(54, "FAT12   ", "FAT16   ", "FAT     ", "MSDOS", "MSWIN"):
		s.found("vfat")
	case partitions(first[446:510]):
		s.found("dos")
	case len(s.names) == 0: // otherwise the loader of what was found
		s.found("boot sector")
	}
}

// partitions reports whether the four entries of a table say so of themselves.
func partitions(table []byte) bool {
	used := false
	for ; len(table) > 0; table = table[16:] {
		if table[0]&0x7f != 0 { // active, or not
			return false
		}
		used = used || table[4] != 0
	}
	return used
}

// unfinished reports whether a filesystem says of itself that it is being made.
func (s *scanner) unfinished() bool {
	const inProgress = 126 // of the superblock of XFS
	if s.has(btrfsOffset, "!BHRfS_M") {
		s.found("btrfs")
		return true
	}
	return s.has(0, "XFSB") && string(s.at(inProgress, 1)) == "\x01"
}
