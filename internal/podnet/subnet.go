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

// A Used is a network that is taken, and by whom, in words: "interface eth0".
type Used struct {
	Prefix netip.Prefix
	By     string
}

// FreeSubnet returns the first /24 that overlaps none of used. The candidates
// keep clear of what other software takes by default: 10.42, 10.88 and 10.244
// belong to k3s, Podman and flannel, 172.17 and up to Docker.
func FreeSubnet(used []Used) (netip.Prefix, error) {
	for candidate := range candidates() {
		if _, taken := overlapping(candidate, used); !taken {
			return candidate, nil
		}
	}
	return netip.Prefix{}, ErrNoSubnet
}

func overlapping(p netip.Prefix, used []Used) (Used, bool) {
	i := slices.IndexFunc(used, func(u Used) bool { return u.Prefix.Overlaps(p) })
	if i < 0 {
		return Used{}, false
	}
	return used[i], true
}

// CheckSubnet says why p cannot be the pods' subnet of any node.
func CheckSubnet(p netip.Prefix) error {
	addr := p.Addr()
	switch {
	case !p.IsValid() || !addr.Is4():
		return errors.New("it is not an IPv4 subnet, such as 10.77.0.0/24")
	case p.Masked() != p:
		return fmt.Errorf("it is an address within a subnet: write %s", p.Masked())
	case p.Bits() > 29:
		return errors.New("it is too small: the longest prefix is /29, for five pods")
	case p.Bits() < 8 || addr.IsLoopback() || addr.IsMulticast() || addr.IsLinkLocalUnicast() || addr.IsUnspecified():
		return errors.New("pods cannot have these addresses: choose from 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16 or 100.64.0.0/10")
	}
	return nil
}

// A Choice is what is known when an instance starts and must have a subnet.
type Choice struct {
	Wanted  netip.Prefix // by the user; the zero value: any
	Current netip.Prefix // that it had before; the zero value: none
	Running bool         // pods may still have addresses of Current
	Routes  []Used       // of the host, without the instance's own
	Claims  []Used       // of other instances, which may be down
}

// Choose returns the subnet to use. One that was chosen for the user gives way
// to a route that appeared since, as long as nothing runs; one that the user
// named is refused then, by the error. A wider route, of a VPN perhaps, takes
// nothing away from a subnet that is in use.
func (c Choice) Choose() (netip.Prefix, error) {
	taken := slices.Concat(c.Routes, c.Claims)
	if c.Wanted.IsValid() && c.Wanted != c.Current {
		if c.Running {
			return netip.Prefix{}, fmt.Errorf("pods of this node run with addresses of %s, not %s: stop them first (holdfast down)", c.Current, c.Wanted)
		}
		if u, is := overlapping(c.Wanted, taken); is {
			return netip.Prefix{}, fmt.Errorf("%s overlaps %s of %s: name another", c.Wanted, u.Prefix, u.By)
		}
		return c.Wanted, nil
	}
	if !c.Current.IsValid() {
		return FreeSubnet(taken)
	}
	narrow := slices.DeleteFunc(slices.Clone(c.Routes), func(u Used) bool { return u.Prefix.Bits() < c.Current.Bits() })
	u, is := overlapping(c.Current, narrow)
	switch {
	case !is || c.Running:
		return c.Current, nil
	case c.Wanted.IsValid():
		return netip.Prefix{}, fmt.Errorf("%s overlaps %s of %s: name another", c.Wanted, u.Prefix, u.By)
	}
	return FreeSubnet(taken)
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
// address in, in every routing table; the default route is not one. What belongs
// to the interface except, which may be empty, is left out.
func UsedSubnets(except string) ([]Used, error) {
	links, err := interfaces()
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	names := map[int]string{}
	for _, l := range links {
		names[l.Attrs().Index] = l.Attrs().Name
	}
	routes, err := whole(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	addrs, err := addresses(nil)
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	var used []Used
	add := func(n *net.IPNet, link int) {
		p, ok := prefix(n)
		if !ok || p.Bits() == 0 || except != "" && names[link] == except {
			return
		}
		by := "a route"
		if name := names[link]; name != "" {
			by = "interface " + name
		}
		used = append(used, Used{p, by})
	}
	for _, r := range routes {
		add(r.Dst, r.LinkIndex)
	}
	for _, a := range addrs {
		add(a.IPNet, a.LinkIndex)
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
