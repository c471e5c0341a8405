package clusternode

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// addresses are the Node's: those of --node-ip, or the one by which this machine
// reaches others.
func addresses(nodeIP string) ([]netip.Addr, error) {
	if nodeIP == "" {
		// No packet is sent: the kernel only looks up the route.
		conn, err := net.Dial("udp4", "192.0.2.1:9") //nolint:noctx // does not wait
		if err != nil {
			return nil, fmt.Errorf("address of the node: %w (name one with --node-ip)", err)
		}
		addr := conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
		return []netip.Addr{addr}, conn.Close()
	}
	var all []netip.Addr
	for text := range strings.SplitSeq(nodeIP, ",") {
		addr, err := netip.ParseAddr(strings.TrimSpace(text))
		if err != nil {
			return nil, fmt.Errorf("--node-ip %q: %w", nodeIP, err)
		}
		all = append(all, addr)
	}
	return all, nil
}
