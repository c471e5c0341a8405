// Package nodeaddress finds the addresses that a node is reported with.
//
// It asks the machine's interfaces, its resolver and its routes, and keeps what it
// found for a minute. The rules are the upstream kubelet's (its --node-ip,
// --hostname-override and --cloud-provider).
package nodeaddress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	nodeutil "k8s.io/component-helpers/node/util"
)

// ProvidedAnnotation is where a cloud's controller reads which addresses the node
// was told to have.
const ProvidedAnnotation = "alpha.kubernetes.io/provided-node-ip"

const (
	keepFor     = time.Minute     // an answer of the resolver or the routes
	lookupLimit = 2 * time.Second // of one question to the resolver
)

// Config says what the node was told of its addresses.
type Config struct {
	Node     string // its name, which the resolver is asked for
	Hostname string // reported as Hostname; an address in its form is used like IPs
	// IPs are none, one, or one of each family, the primary first. An unspecified one
	// (0.0.0.0 or ::) says which family is preferred.
	IPs []netip.Addr
	// ExternalCloud leaves the addresses to a cloud's controller: those that are
	// there stay.
	ExternalCloud bool
}

// ParseIPs reads the addresses of --node-ip: one, or a pair "a,b" of both families.
// What is no address is left out, as by upstream's kubelet, and returned as ignored.
func ParseIPs(text string) (ips []netip.Addr, ignored []string, err error) {
	parsed, ignored, err := nodeutil.ParseNodeIPArgument(text, "")
	if err != nil {
		return nil, ignored, fmt.Errorf("--node-ip %q: %w", text, err)
	}
	for _, ip := range parsed {
		if addr, ok := netip.AddrFromSlice(ip); ok {
			ips = append(ips, addr.Unmap())
		}
	}
	return ips, ignored, nil
}

// A Finder finds one node's addresses. It may be used by several goroutines.
type Finder struct {
	cfg   Config
	host  host
	fixed bool // the addresses are not looked at

	mu    sync.Mutex // guards the fields below
	found netip.Addr // last looked for
	at    time.Time
}

// host is what the machine is asked. Its calls may be slow, but end with ctx.
type host struct {
	local  func() ([]netip.Addr, error) // addresses of interfaces
	lookup func(ctx context.Context, name string) ([]netip.Addr, error)
	route  func(preferred net.IP) (net.IP, error) // of the interface with the default route
}

// New returns a Finder. It asks nothing.
func New(cfg Config) *Finder {
	return &Finder{cfg: cfg, host: host{local: interfaces, lookup: func(ctx context.Context, name string) ([]netip.Addr, error) {
		return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
	}, route: utilnet.ResolveBindAddress}}
}

// Fixed returns a Finder for a node whose addresses are known, the primary first,
// whatever the machine has.
func Fixed(hostname string, ips ...netip.Addr) *Finder {
	return &Finder{cfg: Config{Hostname: hostname, IPs: ips}, fixed: true}
}

// Provided is the value of ProvidedAnnotation; empty: the node does not have it.
func (f *Finder) Provided() string {
	if !f.cfg.ExternalCloud || !f.specified() {
		return ""
	}
	texts := make([]string, len(f.cfg.IPs))
	for i, ip := range f.cfg.IPs {
		texts[i] = ip.String()
	}
	return strings.Join(texts, ",")
}

func (f *Finder) specified() bool {
	return len(f.cfg.IPs) > 0 && !f.cfg.IPs[0].IsUnspecified()
}

// Find returns the addresses to report of a node that is reported with have now. The
// order is InternalIP, primary first, then Hostname.
func (f *Finder) Find(ctx context.Context, have []v1.NodeAddress) ([]v1.NodeAddress, error) {
	if f.fixed {
		return f.report(f.cfg.IPs...), nil
	}
	if f.specified() {
		if err := f.check(f.cfg.IPs); err != nil {
			return nil, err
		}
	}
	if f.cfg.ExternalCloud {
		if len(have) > 0 {
			return have, nil
		}
		if len(f.cfg.IPs) == 0 {
			return f.report(), nil
		}
	}
	if f.specified() {
		return f.report(f.cfg.IPs...), nil
	}
	if ip, err := netip.ParseAddr(f.cfg.Hostname); err == nil {
		return f.report(ip), nil
	}
	ip, err := f.look(ctx)
	if err != nil {
		return nil, err
	}
	return f.report(ip), nil
}

func (f *Finder) report(ips ...netip.Addr) []v1.NodeAddress {
	var all []v1.NodeAddress
	for _, ip := range ips {
		all = append(all, v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip.String()})
	}
	return append(all, v1.NodeAddress{Type: v1.NodeHostName, Address: f.cfg.Hostname})
}

// check refuses addresses that nobody reaches this machine by.
func (f *Finder) check(ips []netip.Addr) error {
	local, err := f.host.local()
	if err != nil {
		return fmt.Errorf("read the machine's addresses: %w", err)
	}
	for _, ip := range ips {
		if err := usable(ip, local); err != nil {
			return fmt.Errorf("failed to validate nodeIP: %w: give --node-ip an address that one of the machine's interfaces has", err)
		}
	}
	return nil
}

func usable(ip netip.Addr, local []netip.Addr) error {
	switch {
	case ip.IsLoopback():
		return errors.New("nodeIP can't be loopback address")
	case ip.IsMulticast():
		return errors.New("nodeIP can't be a multicast address")
	case ip.IsLinkLocalUnicast():
		return errors.New("nodeIP can't be a link-local unicast address")
	case ip.IsUnspecified():
		return errors.New("nodeIP can't be an all zeros address")
	case !slices.Contains(local, ip):
		return fmt.Errorf("node IP: %q not found in the host's network interfaces", ip)
	}
	return nil
}

// look finds an address by the node's name, or else by the default route. What was
// found is good for a minute, and as long as nothing else is found.
func (f *Finder) look(ctx context.Context) (netip.Addr, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.found.IsValid() && time.Since(f.at) < keepFor {
		return f.found, nil
	}
	ip, err := f.lookAnew(ctx)
	if err != nil {
		if f.found.IsValid() {
			return f.found, nil
		}
		return netip.Addr{}, fmt.Errorf("can't get ip address of node %s: %w: write --node-ip", f.cfg.Node, err)
	}
	f.found, f.at = ip, time.Now()
	return ip, nil
}

func (f *Finder) lookAnew(ctx context.Context) (netip.Addr, error) {
	preferV6 := len(f.cfg.IPs) > 0 && f.cfg.IPs[0].Is6()
	local, err := f.host.local()
	if err != nil {
		return netip.Addr{}, fmt.Errorf("read the machine's addresses: %w", err)
	}
	lookupCtx, cancel := context.WithTimeout(ctx, lookupLimit)
	defer cancel()
	named, _ := f.host.lookup(lookupCtx, f.cfg.Node) // a name that nobody knows is common
	var second netip.Addr
	for _, ip := range named {
		ip = ip.Unmap()
		if usable(ip, local) != nil {
			continue
		}
		if ip.Is6() == preferV6 {
			return ip, nil
		}
		if !second.IsValid() {
			second = ip
		}
	}
	if second.IsValid() {
		return second, nil
	}
	var preferred net.IP
	if preferV6 {
		preferred = net.IPv6zero
	}
	routed, err := f.host.route(preferred)
	if err != nil {
		return netip.Addr{}, err
	}
	ip, ok := netip.AddrFromSlice(routed)
	if !ok {
		return netip.Addr{}, fmt.Errorf("the default route gives %v, which is no address", routed)
	}
	return ip.Unmap(), nil
}

// interfaces returns the addresses of the machine's interfaces.
func interfaces() ([]netip.Addr, error) {
	networks, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var all []netip.Addr
	for _, network := range networks {
		if prefix, err := netip.ParsePrefix(network.String()); err == nil {
			all = append(all, prefix.Addr().Unmap())
		}
	}
	return all, nil
}

// HostIPs returns the addresses that pods see as their node's: the first that is
// reported, and the first of the other family if there is one. Internal ones go
// before external ones.
func HostIPs(reported []v1.NodeAddress) []string {
	var all []netip.Addr
	for _, kind := range []v1.NodeAddressType{v1.NodeInternalIP, v1.NodeExternalIP} {
		for _, address := range reported {
			if ip, err := netip.ParseAddr(address.Address); err == nil && address.Type == kind {
				all = append(all, ip)
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	ips := []string{all[0].String()}
	if i := slices.IndexFunc(all, func(ip netip.Addr) bool { return ip.Is4() != all[0].Is4() }); i >= 0 {
		ips = append(ips, all[i].String())
	}
	return ips
}
