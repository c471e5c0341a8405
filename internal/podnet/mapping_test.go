package podnet

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// natTable is what iptables-restore reads to make the mappings of two nodes and
// of somebody else's network, as the portmap plugin does.
const natTable = `*nat
:CNI-HOSTPORT-DNAT - [0:0]
:CNI-DN-aaa - [0:0]
:CNI-DN-bbb - [0:0]
:CNI-DN-ccc - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \"holdfast-one\" id: \"sandbox-a\"" -m multiport --dports 8080,9090 -j CNI-DN-aaa
-A CNI-HOSTPORT-DNAT -p udp -m comment --comment "dnat name: \"holdfast-one\" id: \"sandbox-a\"" -m multiport --dports 53 -j CNI-DN-aaa
-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \"holdfast-two\" id: \"sandbox-b\"" -m multiport --dports 8080 -j CNI-DN-bbb
-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \"podman\" id: \"sandbox-c\"" -m multiport --dports 8443 -j CNI-DN-ccc
-A CNI-DN-aaa -p tcp -m tcp --dport 8080 -j DNAT --to-destination 10.77.0.2:80
-A CNI-DN-aaa -d 192.0.2.7/32 -p tcp -m tcp --dport 9090 -j DNAT --to-destination 10.77.0.2:90
-A CNI-DN-aaa -p udp -m udp --dport 53 -j DNAT --to-destination 10.77.0.2:53
-A CNI-DN-bbb -p tcp -m tcp --dport 8080 -j DNAT --to-destination 10.77.1.2:80
-A CNI-DN-ccc -p tcp -m tcp --dport 8443 -j DNAT --to-destination 10.88.0.2:443
COMMIT
`

func TestMappings(t *testing.T) {
	ownNamespace(t)
	if _, err := run(t.Context(), "iptables-restore", natTable, "-w", "--noflush"); err != nil {
		t.Fatal(err)
	}
	listing, err := iptables(t.Context(), "nat", "-S")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range mappings(listing) {
		got = append(got, strings.Join([]string{m.network, m.sandbox, m.String()}, " "))
	}
	want := []string{
		"holdfast-one sandbox-a TCP port 8080", "holdfast-one sandbox-a TCP port 9090 of 192.0.2.7", "holdfast-one sandbox-a UDP port 53",
		"holdfast-two sandbox-b TCP port 8080", "podman sandbox-c TCP port 8443",
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("mappings (-got +want):\n%s", diff)
	}

	// What one node leaves behind goes with it, and nothing else.
	one := Net{ID: "one", Bridge: "hf-one", Subnet: netip.MustParsePrefix("10.77.0.0/24"), SharedDir: t.TempDir()}
	if _, err := one.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	listing, err = iptables(t.Context(), "nat", "-S")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(listing, "CNI-DN-aaa") || !strings.Contains(listing, "CNI-DN-bbb") || !strings.Contains(listing, "CNI-DN-ccc") {
		t.Errorf("after the removal of node one:\n%s", listing)
	}
}

func TestHostPorts(t *testing.T) {
	ownNamespace(t)
	if _, err := run(t.Context(), "iptables-restore", natTable, "-w", "--noflush"); err != nil {
		t.Fatal(err)
	}
	tcp := func(port int32, ip string) []*runtimeapi.PortMapping {
		return []*runtimeapi.PortMapping{{HostPort: port, HostIp: ip}}
	}
	for _, tc := range []struct {
		name, id, want string
		ports          []*runtimeapi.PortMapping
	}{
		{"none", "two", "", []*runtimeapi.PortMapping{{ContainerPort: 8080}}},
		{"free", "two", "", tcp(8081, "")},
		{"its own", "two", "", tcp(8443+1, "")},
		{"another node's", "three", "host TCP port 8080 is taken by a pod of another node on this machine, one (sandbox sandbox-a)", tcp(8080, "")},
		{"another network's", "two", `host TCP port 8443 is taken by the CNI network "podman"`, tcp(8443, "0.0.0.0")},
		{"of another protocol", "two", "", []*runtimeapi.PortMapping{{HostPort: 8443, Protocol: runtimeapi.Protocol_UDP}}},
		{"UDP", "two", "host UDP port 53 is taken", []*runtimeapi.PortMapping{{HostPort: 53, Protocol: runtimeapi.Protocol_UDP}}},
		{"of another address", "two", "", tcp(9090, "192.0.2.8")},
		{"of the same address", "two", "host TCP port 9090 of 192.0.2.7 is taken", tcp(9090, "192.0.2.7")},
		{"of every address", "two", "host TCP port 9090 is taken", tcp(9090, "")},
		{"the node's own", "two", "is the node's own", tcp(6443, "")},
	} {
		// No subtest: it would run in another thread, in the host's namespace.
		_, err := HostPorts{Net{ID: tc.id, NodePorts: []int{6443}}}.Check(t.Context(), tc.ports)
		if got := errorText(err); (err == nil) != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: got %v, want %q", tc.name, err, tc.want)
		}
	}
	// Both took 8080: the first one stays.
	if err := (HostPorts{Net{ID: "one"}}).Confirm(t.Context(), "sandbox-a", tcp(8080, "")); err != nil {
		t.Errorf("the first: %v", err)
	}
	if err := (HostPorts{Net{ID: "two"}}).Confirm(t.Context(), "sandbox-b", tcp(8080, "")); err == nil {
		t.Error("the second keeps a port that nobody reaches it by")
	}
}

func TestListening(t *testing.T) {
	ownNamespace(t)
	if out, err := run(t.Context(), "ip", "", "link", "set", "lo", "up"); err != nil {
		t.Fatal(err, out)
	}
	var lc net.ListenConfig
	everywhere, err := lc.Listen(t.Context(), "tcp", ":0") // IPv6's, which takes IPv4 too
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = everywhere.Close() }()
	udp, err := lc.ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = udp.Close() }()
	tcpPort, udpPort := everywhere.Addr().(*net.TCPAddr).Port, udp.LocalAddr().(*net.UDPAddr).Port
	for _, tc := range []struct {
		name string
		port hostPort
		want bool
	}{
		{"TCP", hostPort{protocol: "tcp", port: tcpPort}, true},
		{"TCP of one address", hostPort{"tcp", netip.MustParseAddr("192.0.2.1"), tcpPort}, true},
		{"UDP", hostPort{protocol: "udp", port: udpPort}, true},
		{"UDP of another address", hostPort{"udp", netip.MustParseAddr("192.0.2.1"), udpPort}, false},
		{"another protocol", hostPort{protocol: "sctp", port: tcpPort}, false},
	} {
		got, err := listening([]hostPort{tc.port})
		if err != nil || (len(got) == 1) != tc.want {
			t.Errorf("%s: got %v, %v; want %v", tc.name, got, err, tc.want)
			continue
		}
		if self := fmt.Sprintf("(process %d)", os.Getpid()); tc.want && !strings.Contains(got[0], self) {
			t.Errorf("%s: got %q, want %s", tc.name, got, self)
		}
	}
}

func TestUplinkMTU(t *testing.T) {
	ownNamespace(t)
	want := func(when string, want int) {
		t.Helper()
		if got, err := UplinkMTU(); err != nil || got != want {
			t.Errorf("%s: got %d, %v; want %d", when, got, err, want)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	want("no uplink", 0)
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = "up0", 1400
	uplink := &netlink.Veth{LinkAttrs: attrs, PeerName: "peer0"}
	must(netlink.LinkAdd(uplink))
	must(netlink.AddrAdd(uplink, &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(192, 0, 2, 2), Mask: net.CIDRMask(24, 32)}}))
	must(netlink.LinkSetUp(uplink))
	want("no default route", 0)
	must(netlink.RouteAdd(&netlink.Route{LinkIndex: uplink.Index, Gw: net.IPv4(192, 0, 2, 1)}))
	want("a narrow uplink", 1400)
	must(netlink.LinkSetMTU(uplink, 1500))
	want("a usual uplink", 0)
}

func FuzzMappings(f *testing.F) {
	f.Add(natTable)
	f.Fuzz(func(t *testing.T, listing string) {
		for _, m := range mappings(listing) {
			if m.chain == "" {
				t.Errorf("a mapping without a chain in %q", listing)
			}
		}
	})
}

func FuzzListeners(f *testing.F) {
	f.Add("tcp", "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 12345 1\n")
	f.Add("udp", "   0: 00000000000000000000000000000000:0035 00:0 07 0 0 0 0 0 7 1\n")
	f.Fuzz(func(t *testing.T, protocol, table string) {
		for _, l := range listeners(protocol, table) {
			if l.port < 0 || l.port > 65535 {
				t.Errorf("port %d", l.port)
			}
		}
	})
}
