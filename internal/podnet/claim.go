package podnet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// HostPorts says who else has a port of the host that a pod of Net wants. Two
// portmap plugins would both take it without a word, and the first one would
// get all that is sent there.
//
// Methods may be called concurrently.
type HostPorts struct{ Net Net }

// Check returns an error if the pods of another network have one of the ports,
// or the node itself. listeners are the processes that listen on one: they would
// no longer be reached.
func (h HostPorts) Check(ctx context.Context, ports []*runtimeapi.PortMapping) (listeners []string, err error) {
	wanted := hostPorts(ports)
	if len(wanted) == 0 {
		return nil, nil
	}
	for _, p := range wanted {
		if p.protocol == "tcp" && slices.Contains(h.Net.NodePorts, p.port) {
			return nil, fmt.Errorf("host %s is the node's own, where its API or its kubelet listens: choose another hostPort", p)
		}
	}
	listing, err := iptables(ctx, "nat", "-S")
	if err != nil {
		return nil, err
	}
	if err := h.taken(mappings(listing), wanted); err != nil {
		return nil, err
	}
	return listening(wanted)
}

// Confirm is Check once the ports of a sandbox are mapped. Of two networks that
// took a port at the same moment it returns an error to the one that came
// second.
func (h HostPorts) Confirm(ctx context.Context, sandbox string, ports []*runtimeapi.PortMapping) error {
	wanted := hostPorts(ports)
	if len(wanted) == 0 {
		return nil
	}
	listing, err := iptables(ctx, "nat", "-S")
	if err != nil {
		return err
	}
	all := mappings(listing)
	ours := slices.IndexFunc(all, func(m mapping) bool { return m.network == h.Net.network() && m.sandbox == sandbox })
	return h.taken(all[:max(ours, 0)], wanted)
}

// taken says which of the wanted ports another network has.
func (h HostPorts) taken(all []mapping, wanted []hostPort) error {
	var errs []error
	for _, p := range wanted {
		i := slices.IndexFunc(all, func(m mapping) bool { return m.network != h.Net.network() && m.overlaps(p) })
		if i < 0 {
			continue
		}
		who := fmt.Sprintf("the CNI network %q", all[i].network)
		if id, ok := strings.CutPrefix(all[i].network, "holdfast-"); ok {
			who = fmt.Sprintf("a pod of another node on this machine, %s", id)
		}
		errs = append(errs, fmt.Errorf("host %s is taken by %s (sandbox %.12s)", p, who, all[i].sandbox))
	}
	return errors.Join(errs...)
}

// hostPorts returns the ports of the host that CRI's mappings ask for, as far as
// they are the iptables program's: those of IPv4.
func hostPorts(ports []*runtimeapi.PortMapping) []hostPort {
	var all []hostPort
	for _, m := range ports {
		if m.GetHostPort() <= 0 {
			continue
		}
		p := hostPort{protocol: strings.ToLower(m.GetProtocol().String()), port: int(m.GetHostPort())}
		if m.GetHostIp() != "" {
			addr, err := netip.ParseAddr(m.GetHostIp())
			if err != nil || !addr.Is4() {
				continue
			}
			if !addr.IsUnspecified() {
				p.addr = addr
			}
		}
		all = append(all, p)
	}
	return all
}
