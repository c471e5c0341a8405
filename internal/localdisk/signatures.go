package localdisk

const btrfsOffset = 0x10040

// A signature stands at fixed places: from the start of the device, or where
// negative from its end.
type signature struct {
	name    string
	magic   string
	offsets []int64
}

// signatures are those of what people keep on devices. Some are short, and may
// be found by chance: then a device is refused that could have been formatted.
var signatures = []signature{
	// Whole devices: tables, encryption, volume managers, RAID, caches.
	{"gpt", "EFI PART", []int64{512, 4096, -512, -4096}},
	{"crypto_LUKS", "LUKS\xba\xbe", []int64{0}},
	{"crypto_LUKS", "SKUL\xba\xbe", []int64{0x4000, 0x8000, 0x10000, 0x20000, 0x40000, 0x80000, 0x100000, 0x200000, 0x400000}},
	{"BitLocker", "-FVE-FS-", []int64{3}},
	{"LVM2_member", "LABELONE", []int64{0, 512, 1024, 1536}},
	{"LVM1_member", "HM", []int64{0}},
	{"linux_raid_member", "\xfc\x4e\x2b\xa9", []int64{0, 4096}},
	{"isw_raid_member", "Intel Raid ISM Cfg Sig. ", []int64{-1024}},
	{"ddf_raid_member", "\xde\x11\xde\x11", []int64{-512, -512 - 256<<10}},
	{"bcache", "\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81", []int64{4096 + 24}},
	{"bcachefs", "\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef", []int64{4096 + 24}},
	{"stratis", "!Stra0tis\x86\xff\x02^\x41rh", []int64{512 + 4, 4608 + 4}},
	{"DM_verity_hash", "verity\x00\x00", []int64{0}},
	{"DM_integrity", "integrt\x00", []int64{0}},
	{"DM_snapshot_cow", "SnAp", []int64{0}},
	{"vdo", "dmvdo001", []int64{0}},
	{"ceph_bluestore", "bluestore block device", []int64{0}},
	{"oracleasm", "ORCLDISK", []int64{32}},
	{"VMFS_volume_member", "\x0d\xd0\x01\xc0", []int64{0x100000}},
	{"bsd", "\x57\x45\x56\x82", []int64{0, 64, 512}},
	{"sun", "\xda\xbe", []int64{508}},
	{"sgi", "\x0b\xe5\xa9\x41", []int64{0}},
	{"mac", "PM\x00\x00", []int64{512}},

	// Filesystems. ext, FAT and those that are found elsewhere have functions.
	{"xfs", "XFSB", []int64{0}},
	{"btrfs", "_BHRfS_M", []int64{btrfsOffset}},
	{"f2fs", "\x10\x20\xf5\xf2", []int64{1024}},
	{"ntfs", "NTFS    ", []int64{3}},
	{"exfat", "EXFAT   ", []int64{3}},
	{"iso9660", "CD001", []int64{32769}},
	{"udf", "BEA01", []int64{32769, 36865}},
	{"udf", "NSR0", []int64{32769, 34817, 36865}},
	{"squashfs", "hsqs", []int64{0}},
	{"squashfs", "sqsh", []int64{0}},
	{"erofs", "\xe2\xe1\xf5\xe0", []int64{1024}},
	{"cramfs", "\x45\x3d\xcd\x28", []int64{0}},
	{"romfs", "-rom1fs-", []int64{0}},
	{"zonefs", "SFOZ", []int64{0}},
	{"jfs", "JFS1", []int64{32768}},
	{"nilfs2", "\x34\x34", []int64{1030}},
	{"reiserfs", "ReIsEr", []int64{0x2034, 0x10034}},
	{"reiser4", "ReIsEr4", []int64{0x10000}},
	{"gfs2", "\x01\x16\x19\x70", []int64{0x10000}},
	{"ocfs2", "OCFSV2", []int64{1024, 2048, 4096, 8192}},
	{"hfsplus", "H+", []int64{1024}},
	{"hfsplus", "HX", []int64{1024}},
	{"hfs", "BD", []int64{1024}},
	{"apfs", "NXSB", []int64{32}},
	{"ufs", "\x54\x19\x01\x00", []int64{8192 + 1372, 65536 + 1372}},
	{"minix", "\x7f\x13", []int64{1040}},
	{"minix", "\x8f\x13", []int64{1040}},
	{"minix", "\x68\x24", []int64{1040}},
	{"minix", "\x78\x24", []int64{1040}},
	{"minix", "\x5a\x4d", []int64{1048}},
	{"VMFS", "\x5e\xf1\xab\x2f", []int64{0x200000}},
}
