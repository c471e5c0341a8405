package podnet

import (
	"fmt"

	"github.com/vishvananda/netlink"
)

// usualMTU is that of Ethernet, which pods have unless told otherwise; leastMTU
// is what IPv6 asks of every link.
const (
	usualMTU = 1500
	leastMTU = 1280
)

// UplinkMTU returns the MTU, in bytes, that pods must have because the interface
// of the default route has a smaller one than usual, as a tunnel or a cloud's
// network does. It is 0 where they may have the usual one, or where there is no
// uplink.
func UplinkMTU() (int, error) {
	routes, err := whole(func() ([]netlink.Route, error) { return netlink.RouteList(nil, netlink.FAMILY_V4) })
	if err != nil {
		return 0, fmt.Errorf("list routes: %w", err)
	}
	least := 0
	for _, r := range routes {
		if p, ok := prefix(r.Dst); ok && p.Bits() > 0 || r.LinkIndex == 0 {
			continue
		}
		link, err := netlink.LinkByIndex(r.LinkIndex)
		if err != nil {
			continue // it went meanwhile
		}
		mtu := link.Attrs().MTU
		if mtu >= leastMTU && mtu < usualMTU && (least == 0 || mtu < least) {
			least = mtu
		}
	}
	return least, nil
}
