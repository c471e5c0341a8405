package cluster

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// A network is a switch to which the machines are plugged, and this host with the
// control plane.
type network struct {
	bridge string
	prefix netip.Prefix // of the machines' addresses
	plugs  []plug
}

// A plug is one machine's.
type plug struct {
	netns, link string
	address     netip.Addr
	pods        netip.Prefix
}

// newNetwork makes a network that is removed when t ends.
func newNetwork(t testing.TB) *network {
	t.Helper()
	pid := os.Getpid()
	n := &network{
		bridge: fmt.Sprintf("hfc%d", pid),
		// 198.18.0.0/15 is set aside for tests; the process id keeps runs apart.
		prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{198, byte(18 + pid>>8&1), byte(pid), 0}), 24),
	}
	ip(t, "link", "add", n.bridge, "type", "bridge")
	t.Cleanup(func() { remove(t, "link", "delete", n.bridge) })
	ip(t, "address", "add", netip.PrefixFrom(n.host(), 24).String(), "dev", n.bridge)
	ip(t, "link", "set", n.bridge, "up")
	return n
}

// host is this host's address.
func (n *network) host() netip.Addr { return n.prefix.Addr().Next() }

// join makes one more machine's namespace. The machines know where each other's
// pods are.
func (n *network) join(t testing.TB) (netns string, address netip.Addr, pods netip.Prefix) {
	t.Helper()
	index := len(n.plugs) + 1
	p := plug{netns: fmt.Sprintf("%sn%d", n.bridge, index), link: fmt.Sprintf("%s-%d", n.bridge, index), address: n.prefix.Addr().Next()}
	for range index {
		p.address = p.address.Next()
	}
	p.pods = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 201, byte(index), 0}), 24)
	ip(t, "netns", "add", p.netns)
	t.Cleanup(func() { remove(t, "netns", "delete", p.netns) }) // and the cable with it
	ip(t, "link", "add", p.link, "type", "veth", "peer", "name", "eth0", "netns", p.netns)
	ip(t, "link", "set", p.link, "master", n.bridge, "up")
	ip(t, "-n", p.netns, "address", "add", netip.PrefixFrom(p.address, 24).String(), "dev", "eth0")
	for _, link := range []string{"lo", "eth0"} {
		ip(t, "-n", p.netns, "link", "set", link, "up")
	}
	ip(t, "-n", p.netns, "route", "add", "default", "via", n.host().String())
	for _, other := range n.plugs {
		ip(t, "-n", p.netns, "route", "add", other.pods.String(), "via", other.address.String())
		ip(t, "-n", other.netns, "route", "add", p.pods.String(), "via", p.address.String())
	}
	n.plugs = append(n.plugs, p)
	return p.netns, p.address, p.pods
}

// set pulls the plug of a machine ("down") or puts it back ("up").
func (n *network) set(t testing.TB, m *machine, state string) {
	t.Helper()
	for _, p := range n.plugs {
		if p.netns == m.netns {
			ip(t, "link", "set", p.link, state)
		}
	}
}

func ip(t testing.TB, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// remove is ip for a clean-up.
func remove(t testing.TB, args ...string) {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Errorf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}
