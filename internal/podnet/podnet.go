// Package podnet sets up and removes the host's part of one instance's pod
// network: a bridge with the gateway's address, three firewall chains with one
// jump each, and IP forwarding.
//
// It talks to the kernel by netlink and to the firewall by the iptables
// program, and keeps two marker files in SharedDir: whether forwarding was off
// and whether the host port chains were absent before the first instance came.
// Those files live as long as the settings themselves, until the next boot, and
// are shared by all instances of the host, because the settings are.
//
// Ensure and Remove may be called again at any time, after a crash in the middle
// of either and after a reboot. Calls for one instance must not overlap; calls
// for different ones may.
package podnet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A Net is the pod network of one instance.
type Net struct {
	// ID is the instance: 1 to 12 letters, digits and dashes. It becomes part
	// of the chains' names.
	ID string
	// Bridge is the interface's name, at most 15 bytes, the kernel's limit.
	Bridge string
	// Subnet holds the pods' addresses (IPv4). Its first address is the
	// gateway's.
	Subnet netip.Prefix
	// NodePorts are the TCP ports of the gateway's address that pods reach even
	// if the host drops what it was not told to let in. Remove does not need them.
	NodePorts []int
	// SharedDir is the folder of the marker files, below /run. Default
	// /run/holdfast.
	SharedDir string
}

// Gateway is the node's own address on the bridge, the first of the subnet: the
// one that host-local IPAM leaves for it.
func (n Net) Gateway() netip.Addr { return n.Subnet.Masked().Addr().Next() }

var validID = regexp.MustCompile(`^[A-Za-z0-9-]{1,12}$`)

func (n Net) validate() error {
	var errs []error
	if !validID.MatchString(n.ID) {
		errs = append(errs, fmt.Errorf("instance ID %q is not 1 to 12 letters, digits and dashes", n.ID))
	}
	if n.Bridge == "" || len(n.Bridge) >= unix.IFNAMSIZ {
		errs = append(errs, fmt.Errorf("bridge name %q is not 1 to %d bytes", n.Bridge, unix.IFNAMSIZ-1))
	}
	if !n.Subnet.Addr().Is4() || n.Subnet.Bits() > 29 {
		errs = append(errs, fmt.Errorf("subnet %s is not an IPv4 subnet of at least 8 addresses", n.Subnet))
	}
	return errors.Join(errs...)
}

// Ensure makes the network as n says, changing only what is not so already, and
// reports whether it changed anything.
func (n Net) Ensure(ctx context.Context) (changed bool, err error) {
	if err := n.validate(); err != nil {
		return false, fmt.Errorf("pod network: %w", err)
	}
	bridge, err := n.ensureBridge()
	if err != nil {
		return false, fmt.Errorf("bridge %s: %w", n.Bridge, err)
	}
	forwarding, err := n.ensureForwarding()
	if err != nil {
		return bridge, fmt.Errorf("enable IP forwarding: %w", err)
	}
	firewall, err := n.ensureFirewall(ctx)
	if err != nil {
		return bridge || forwarding, fmt.Errorf("firewall: %w", err)
	}
	return bridge || forwarding || firewall, nil
}

// Remove takes away what Ensure made and leaves what it found. It goes on after
// an error and returns all of them. notes say what was left on purpose and why.
func (n Net) Remove(ctx context.Context) (notes []string, err error) {
	if err := n.validate(); err != nil {
		return nil, fmt.Errorf("pod network: %w", err)
	}
	var errs []error
	if err := removeBridge(n.Bridge); err != nil {
		errs = append(errs, fmt.Errorf("remove bridge %s: %w", n.Bridge, err))
	}
	others, err := n.removeFirewall(ctx)
	if err != nil {
		return nil, errors.Join(append(errs, fmt.Errorf("remove firewall chains: %w", err))...)
	}
	if others {
		return []string{"IP forwarding stays on: another Holdfast instance uses it"}, errors.Join(errs...)
	}
	note, err := n.restoreForwarding()
	if err != nil {
		errs = append(errs, fmt.Errorf("restore IP forwarding: %w", err))
	}
	if note != "" {
		notes = append(notes, note)
	}
	return notes, errors.Join(errs...)
}

// ensureBridge makes the bridge before the first pod does, because the API
// server listens on its address. It is what the CNI bridge plugin would make, so
// the plugin adopts it.
func (n Net) ensureBridge() (changed bool, err error) {
	link, err := netlink.LinkByName(n.Bridge)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = n.Bridge
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
			return false, err
		}
		changed = true
		link, err = netlink.LinkByName(n.Bridge)
	}
	if err != nil {
		return changed, err
	}
	if link.Type() != "bridge" {
		return false, fmt.Errorf("an interface of this name is there and is a %s", link.Type())
	}
	if changed {
		// A bridge takes the lowest address of its ports unless one was set: the
		// gateway's would change as pods come and go, and pods cache it.
		if err := netlink.LinkSetHardwareAddr(link, link.Attrs().HardwareAddr); err != nil {
			return true, fmt.Errorf("pin its hardware address: %w", err)
		}
	}
	addressed, err := n.ensureAddress(link)
	if err != nil {
		return changed, err
	}
	changed = changed || addressed
	if link.Attrs().Flags&net.FlagUp == 0 {
		changed = true
		err = netlink.LinkSetUp(link)
	}
	return changed, err
}

// ensureAddress gives link the gateway's address and takes away any other, left
// by an earlier subnet: the CNI plugin refuses a bridge that has both.
func (n Net) ensureAddress(link netlink.Link) (changed bool, err error) {
	want := netip.PrefixFrom(n.Gateway(), n.Subnet.Bits())
	have, err := addresses(link)
	if err != nil {
		return false, err
	}
	found := false
	for _, a := range have {
		if a.IPNet.String() == want.String() {
			found = true
			continue
		}
		changed = true
		if err := netlink.AddrDel(link, &a); err != nil {
			return true, fmt.Errorf("remove address %s: %w", a.IPNet, err)
		}
	}
	if found {
		return changed, nil
	}
	addr, err := netlink.ParseAddr(want.String())
	if err != nil {
		return changed, err
	}
	if err := netlink.AddrAdd(link, addr); err != nil {
		return changed, fmt.Errorf("add address %s: %w", want, err)
	}
	return true, nil
}

func removeBridge(name string) error {
	link, err := netlink.LinkByName(name)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil
	}
	if err != nil {
		return err
	}
	if link.Type() != "bridge" {
		return nil // not ours: Ensure refused it
	}
	ports, err := interfaces()
	if err != nil {
		return err
	}
	for _, p := range ports {
		if p.Attrs().MasterIndex != link.Attrs().Index || p.Type() != "veth" {
			continue
		}
		// A pod's end of it: the kernel takes its time after a pod was killed.
		if err := netlink.LinkDel(p); err != nil && !errors.As(err, new(netlink.LinkNotFoundError)) && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("remove %s: %w", p.Attrs().Name, err)
		}
	}
	return netlink.LinkDel(link)
}
