package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/holdfast-dev/holdfast/internal/control"
)

// validateReach returns what is wrong with where and under which names the API
// is to be reached.
func (c Config) validateReach() []error {
	var errs []error
	for _, text := range c.BindAddress {
		ip, err := netip.ParseAddr(text)
		if err != nil || ip.Zone() != "" || ip.IsMulticast() {
			errs = append(errs, fmt.Errorf("bindAddress %q: want an IP address of this machine, 0.0.0.0 for all of IPv4, or :: for all", text))
		}
	}
	for _, name := range c.APINames {
		_, err := netip.ParseAddr(name)
		if err != nil && len(validation.IsDNS1123Subdomain(name)) > 0 && len(validation.IsWildcardDNS1123Subdomain(name)) > 0 {
			errs = append(errs, fmt.Errorf("apiNames %q: want a host name in lower case, such as edge.example.com or *.example.com, or an IP address", name))
		}
	}
	return errs
}

// bound returns the addresses outside loopback on which the API is to listen;
// every is the one that stands for all of them, if there is one.
func (c Config) bound() (each []netip.Addr, every netip.Addr) {
	for _, text := range c.BindAddress {
		ip, err := netip.ParseAddr(text)
		switch {
		case err != nil: // validated before
		case ip.IsUnspecified():
			if !every.IsValid() || ip.Is6() {
				every = ip // :: takes IPv4 too
			}
		case ip.Unmap() != netip.AddrFrom4([4]byte{127, 0, 0, 1}) && !slices.Contains(each, ip.Unmap()):
			each = append(each, ip.Unmap())
		}
	}
	if every.IsValid() {
		each = nil
	}
	return each, every
}

// listenForPods listens on the node's own address, and where the user wants the
// API to be reached from other machines.
func (n *node) listenForPods(ctx context.Context) error {
	each, every := n.cfg.bound()
	if !every.IsValid() && !slices.Contains(each, n.address) {
		each = append(each, n.address)
	}
	for _, address := range each {
		if address == netip.AddrFrom4([4]byte{127, 0, 0, 1}) {
			continue // no network: the first listener is there
		}
		l, err := listen(ctx, address, n.api.Port())
		if err != nil {
			err = fmt.Errorf("serve the API on %s: %w (choose another port with --api-port, or another --bind-address)", address, err)
			return errors.Join(err, closeAll(n.apiListeners))
		}
		n.apiListeners = append(n.apiListeners, l)
	}
	return nil
}

func closeAll(listeners []net.Listener) error {
	var errs []error
	for _, l := range listeners {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// tellReach says that the API is reachable from outside, and where it is not yet.
func (n *node) tellReach() {
	each, every := n.cfg.bound()
	have := n.machineAddresses()
	if every.IsValid() {
		each, have = append(each, every), append(have, every.String())
	}
	for _, address := range each {
		if address.IsLoopback() || !slices.Contains(have, address.String()) {
			continue
		}
		at := netip.AddrPortFrom(address, uint16(n.api.Port())).String()
		n.cfg.Progress("the Kubernetes API can now be reached from other machines, at " + at + "; it answers to who has credentials")
		n.log.Warn("the API can be reached from other machines", "address", at)
	}
	for _, f := range n.reachFaults() {
		n.cfg.Progress(f.Field + ": " + f.Message + " (" + f.Hint + ")")
		n.log.Warn("the API cannot be reached at an address", "address", f.Field, "why", f.Message)
	}
}

// reachFaults names the addresses that the machine has not. They may come yet,
// with a network that is slow: then the API answers there at once.
func (n *node) reachFaults() []control.Fault {
	each, _ := n.cfg.bound()
	if len(each) == 0 {
		return nil
	}
	have := n.machineAddresses()
	var faults []control.Fault
	for _, address := range each {
		if !slices.Contains(have, address.String()) && !address.IsLoopback() {
			faults = append(faults, control.Fault{
				Field:   "bindAddress " + address.String(),
				Message: "no interface of this machine has this address: the API answers there once one has",
				Hint:    "the machine has " + strings.Join(have, ", "),
			})
		}
	}
	return faults
}

// outside returns where other machines may reach the API, the best first.
func (n *node) outside() []string {
	each, every := n.cfg.bound()
	hosts := make([]string, 0, len(each))
	for _, address := range each {
		if !address.IsLoopback() {
			hosts = append(hosts, address.String())
		}
	}
	if every.IsValid() {
		if up, err := uplink(); err == nil && !up.IsLoopback() {
			hosts = append(hosts, up.String())
		}
		for _, host := range n.machineAddresses() {
			if ip := netip.MustParseAddr(host); (every.Is6() || ip.Is4()) && ip != n.address && !slices.Contains(hosts, host) {
				hosts = append(hosts, host)
			}
		}
	}
	for i, host := range hosts {
		hosts[i] = net.JoinHostPort(host, strconv.Itoa(n.api.Port()))
	}
	return hosts
}

// apiNames are the names of the API's certificate that do not change.
func (n *node) apiNames() []string {
	names := append([]string{n.address.String()}, n.cfg.APINames...)
	each, every := n.cfg.bound()
	for _, address := range each {
		names = append(names, address.String())
	}
	if len(each) > 0 || every.IsValid() {
		if host, err := os.Hostname(); err == nil {
			names = append(names, strings.ToLower(host))
		}
	}
	return names
}

// changingNames are those that come and go: the machine's addresses, if the API
// listens on all of them.
func (n *node) changingNames() []string {
	if _, every := n.cfg.bound(); every.IsValid() {
		return n.machineAddresses()
	}
	return nil
}

// machineAddresses returns this machine's addresses but loopback and link-local
// ones. Where they cannot be read there are none.
func (n *node) machineAddresses() []string {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		n.log.Warn("this machine's addresses cannot be read", "err", err)
	}
	var found []string
	for _, a := range addresses {
		prefix, err := netip.ParsePrefix(a.String())
		if err != nil || !prefix.Addr().IsGlobalUnicast() {
			continue
		}
		if text := prefix.Addr().Unmap().String(); !slices.Contains(found, text) {
			found = append(found, text)
		}
	}
	return found
}
