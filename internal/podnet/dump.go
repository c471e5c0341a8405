package podnet

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// dumpTries is how often the kernel is asked for a list that changes while it
// is read. Each time takes less than a millisecond.
const dumpTries = 100

// whole returns a list of the kernel that did not change while it was read: on a
// machine where pods come and go, its interfaces, routes and addresses do so all
// the time, and part of a list may be missing or old.
func whole[T any](list func() ([]T, error)) (all []T, err error) {
	for range dumpTries {
		if all, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return all, err
}

func interfaces() ([]netlink.Link, error) { return whole(netlink.LinkList) }

// addresses are those of a link; nil: of all.
func addresses(link netlink.Link) ([]netlink.Addr, error) {
	return whole(func() ([]netlink.Addr, error) { return netlink.AddrList(link, netlink.FAMILY_V4) })
}
