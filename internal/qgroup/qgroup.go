// Package qgroup reads what btrfs counts for a subvolume, where quotas are enabled on
// its filesystem (btrfs quota enable): every subvolume has a group of its own then. It
// makes no subvolumes and sets no limits; those are the administrator's.
//
// A question takes some tens of microseconds, whatever is in the subvolume. Functions
// may be called by any goroutine.
package qgroup

import (
	"errors"
	"fmt"
)

// ErrNone is returned for a folder that is no subvolume, and where quotas are not
// enabled or the filesystem says that what it has counted is not right.
var ErrNone = errors.New("no quota group")

// A Usage is what the filesystem says of a subvolume.
type Usage struct {
	// Bytes is what can be reached from the subvolume, its own metadata and what it
	// shares with snapshots among them, and what is written and not on the disk yet.
	Bytes uint64
	Limit uint64 // of Bytes; 0: none
}

// Read returns what the subvolume at dir takes. The error is ErrNone if the filesystem
// cannot tell, and fs.ErrNotExist if there is no folder.
func Read(dir string) (Usage, error) {
	used, err := read(dir)
	if err != nil {
		return Usage{}, fmt.Errorf("read the quota group of %s: %w", dir, err)
	}
	return used, nil
}
