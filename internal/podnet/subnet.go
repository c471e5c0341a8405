package podnet

import (
	"errors"
	"fmt"
	"iter"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ErrNoSubnet is returned by FreeSubnet when every candidate is in use.
var ErrNoSubnet = errors.New("every candidate for the pods' subnet overlaps a route or an address of this machine: name a free one")

// FreeSubnet returns the first /24 that overlaps none of used. The candidates
// keep clear of what other software takes by default: 10.42, 10.88 and 10.244
// belong to k3s, Podman and flannel, 172.17 and up to Docker.
func FreeSubnet(used []netip.Prefix) (netip.Prefix, error) {
	for candidate := range candidates() {
		if !slices.ContainsFunc(used, candidate.Overlaps) {
			return candidate, nil
		}
	}
	return netip.Prefix{}, ErrNoSubnet
}

// candidates yields the subnets to choose from, best first. The private ranges
// other than 10.0.0.0/8 are there for hosts whose site network is all of it.
func candidates() iter.Seq[netip.Prefix] {
	return func(yield func(netip.Prefix) bool) {
		for _, high := range [][2]byte{{10, 77}, {10, 177}, {172, 30}, {192, 168}} {
			for third := range 256 {
				addr := netip.AddrFrom4([4]byte{high[0], high[1], byte(third), 0})
				if !yield(netip.PrefixFrom(addr, 24)) {
					return
				}
			}
		}
	}
}

// UsedSubnets returns the IPv4 networks that this host routes to or has an
// address in, in every routing table; the default route is not one.
func UsedSubnets() ([]netip.Prefix, error) {
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	addrs, err := netlink.AddrList(nil, netlink.FAMILY_V4)
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	var used []netip.Prefix
	add := func(n *net.IPNet) {
		if p, ok := prefix(n); ok && p.Bits() > 0 {
			used = append(used, p)
		}
	}
	for _, r := range routes {
		add(r.Dst)
	}
	for _, a := range addrs {
		add(a.IPNet)
	}
	return used, nil
}

func prefix(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	addr, ok := netip.AddrFromSlice(n.IP)
	if !ok {
		return netip.Prefix{}, false
	}
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(addr.Unmap(), bits).Masked(), true
}
