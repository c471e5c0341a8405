package podnet

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/holdfast-dev/holdfast/internal/testenv"
)

func prefixes(list ...string) []Used {
	var all []Used
	for _, p := range list {
		all = append(all, Used{netip.MustParsePrefix(p), "interface eth0"})
	}
	return all
}

func TestFreeSubnet(t *testing.T) {
	for _, tc := range []struct {
		name, want string
		used       []Used
	}{
		{"empty host", "10.77.0.0/24", nil},
		{"unrelated", "10.77.0.0/24", prefixes("192.0.2.0/24", "10.88.0.0/16")},
		{"first taken", "10.77.1.0/24", prefixes("10.77.0.0/24")},
		{"inside the first", "10.77.1.0/24", prefixes("10.77.0.9/32")},
		{"whole block", "10.177.0.0/24", prefixes("10.77.0.0/16")},
		{"site network is 10/8", "172.30.0.0/24", prefixes("10.0.0.0/8")},
		{"IPv6 does not matter", "10.77.0.0/24", prefixes("fd00::/8")},
		{"all private", "", prefixes("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := FreeSubnet(tc.used)
			if tc.want == "" {
				if !errors.Is(err, ErrNoSubnet) {
					t.Errorf("got %v, %v; want ErrNoSubnet", got, err)
				}
				return
			}
			if err != nil || got.String() != tc.want {
				t.Errorf("got %v, %v; want %s", got, err, tc.want)
			}
		})
	}
}

func TestUsedSubnetsHasLoopback(t *testing.T) {
	used, err := UsedSubnets("")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range used {
		if p.Prefix.Contains(netip.MustParseAddr("127.0.0.1")) {
			return
		}
	}
	t.Errorf("127.0.0.1 is in none of %v", used)
}

func TestChoose(t *testing.T) {
	net := netip.MustParsePrefix
	for _, tc := range []struct {
		name, want string // an error's text, or the subnet
		choice     Choice
	}{
		{"the first", "10.77.0.0/24", Choice{}},
		{"another instance has it, and is down", "10.77.1.0/24", Choice{Claims: prefixes("10.77.0.0/24")}},
		{"the user's", "10.99.0.0/22", Choice{Wanted: net("10.99.0.0/22")}},
		{"the user's overlaps a route", "10.99.0.0/22 overlaps 10.0.0.0/8 of interface eth0: name another", Choice{Wanted: net("10.99.0.0/22"), Routes: prefixes("10.0.0.0/8")}},
		{"the user's is another instance's", "overlaps 10.99.1.0/24", Choice{Wanted: net("10.99.0.0/22"), Claims: prefixes("10.99.1.0/24")}},
		{"changed while pods run", "stop them first", Choice{Wanted: net("10.99.0.0/22"), Current: net("10.77.0.0/24"), Running: true}},
		{"changed", "10.99.0.0/22", Choice{Wanted: net("10.99.0.0/22"), Current: net("10.77.0.0/24")}},
		{"kept", "10.77.5.0/24", Choice{Current: net("10.77.5.0/24")}},
		{"kept beside a wider route", "10.77.5.0/24", Choice{Current: net("10.77.5.0/24"), Routes: prefixes("10.0.0.0/8")}},
		{"kept beside the claim of one that is down", "10.77.5.0/24", Choice{Current: net("10.77.5.0/24"), Claims: prefixes("10.77.5.0/24")}},
		{"gives way to an equal route", "10.77.0.0/24", Choice{Current: net("10.77.5.0/24"), Routes: prefixes("10.77.5.0/24")}},
		{"gives way to a narrower route", "10.77.0.0/24", Choice{Current: net("10.77.5.0/24"), Routes: prefixes("10.77.5.7/32")}},
		{"pods run: stays", "10.77.5.0/24", Choice{Current: net("10.77.5.0/24"), Routes: prefixes("10.77.5.0/24"), Running: true}},
		{"the user's does not give way", "name another", Choice{Wanted: net("10.77.5.0/24"), Current: net("10.77.5.0/24"), Routes: prefixes("10.77.5.0/24")}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, err := tc.choice.Choose()
			got := p.String()
			if err != nil {
				got = err.Error()
			}
			if got != tc.want && (err == nil || !strings.Contains(got, tc.want)) {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestCheckSubnet(t *testing.T) {
	for subnet, want := range map[string]string{
		"10.99.0.0/16": "", "192.168.7.0/29": "", "100.64.0.0/10": "",
		"10.99.0.1/16": "write 10.99.0.0/16", "10.0.0.0/30": "too small", "fd00::/64": "not an IPv4 subnet",
		"0.0.0.0/0": "pods cannot have", "127.0.0.0/8": "pods cannot have", "169.254.0.0/24": "pods cannot have", "224.0.0.0/8": "pods cannot have",
	} {
		err := CheckSubnet(netip.MustParsePrefix(subnet))
		if got := errorText(err); want == "" && err != nil || !strings.Contains(got, want) {
			t.Errorf("%s: got %v, want %q", subnet, err, want)
		}
	}
}

func TestChains(t *testing.T) {
	n := Net{ID: "abcdef012345", Bridge: "hf-abcdef012345", Subnet: netip.MustParsePrefix("10.77.3.0/24"), NodePorts: []int{6443, 10250}}
	var got strings.Builder
	for _, c := range n.chains() {
		if len(c.name) > 28 {
			t.Errorf("chain %s has %d bytes, more than iptables takes", c.name, len(c.name))
		}
		got.WriteString(c.parent + " -j " + c.name + "\n" + c.restoreInput())
	}
	want := `INPUT -j HOLDFAST-abcdef012345-IN
*filter
:HOLDFAST-abcdef012345-IN - [0:0]
-A HOLDFAST-abcdef012345-IN -i hf-abcdef012345 -d 10.77.3.1/32 -p tcp -m tcp --dport 6443 -j ACCEPT
-A HOLDFAST-abcdef012345-IN -i hf-abcdef012345 -d 10.77.3.1/32 -p tcp -m tcp --dport 10250 -j ACCEPT
COMMIT
FORWARD -j HOLDFAST-abcdef012345-FWD
*filter
:HOLDFAST-abcdef012345-FWD - [0:0]
-A HOLDFAST-abcdef012345-FWD -i hf-abcdef012345 -j ACCEPT
-A HOLDFAST-abcdef012345-FWD -o hf-abcdef012345 -j ACCEPT
COMMIT
POSTROUTING -j HOLDFAST-abcdef012345-NAT
*nat
:HOLDFAST-abcdef012345-NAT - [0:0]
-A HOLDFAST-abcdef012345-NAT -s 10.77.3.0/24 -d 224.0.0.0/4 -j RETURN
-A HOLDFAST-abcdef012345-NAT -s 10.77.3.0/24 ! -d 10.77.3.0/24 -j MASQUERADE
COMMIT
`
	if diff := cmp.Diff(got.String(), want); diff != "" {
		t.Errorf("chains (-got +want):\n%s", diff)
	}
}

func TestValidate(t *testing.T) {
	good := Net{ID: "a1", Bridge: "hf-a1", Subnet: netip.MustParsePrefix("10.77.0.0/24")}
	for name, change := range map[string]func(*Net){
		"no ID":           func(n *Net) { n.ID = "" },
		"ID with a space": func(n *Net) { n.ID = "a b" },
		"long ID":         func(n *Net) { n.ID = "abcdefghijklm" },
		"long bridge":     func(n *Net) { n.Bridge = "hf-abcdefghijklm" },
		"IPv6":            func(n *Net) { n.Subnet = netip.MustParsePrefix("fd00::/64") },
		"no subnet":       func(n *Net) { n.Subnet = netip.Prefix{} },
	} {
		t.Run(name, func(t *testing.T) {
			n := good
			change(&n)
			if n.validate() == nil {
				t.Errorf("%+v was accepted", n)
			}
		})
	}
	if err := good.validate(); err != nil {
		t.Error(err)
	}
}

func TestRemovals(t *testing.T) {
	const listing = `-P PREROUTING ACCEPT
-N CNI-HOSTPORT-DNAT
-N CNI-HOSTPORT-MASQ
-N CNI-HOSTPORT-SETMARK
-N DOCKER
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A POSTROUTING -m comment --comment "CNI portfwd requiring masquerade" -j CNI-HOSTPORT-MASQ
-A CNI-HOSTPORT-MASQ -m mark --mark 0x2000/0x2000 -j MASQUERADE
`
	want := [][]string{
		{"-D", "PREROUTING", "-m", "addrtype", "--dst-type", "LOCAL", "-j", "CNI-HOSTPORT-DNAT"},
		{"-D", "POSTROUTING", "-m", "comment", "--comment", "CNI portfwd requiring masquerade", "-j", "CNI-HOSTPORT-MASQ"},
		{"-F", "CNI-HOSTPORT-DNAT"},
		{"-F", "CNI-HOSTPORT-MASQ"},
		{"-F", "CNI-HOSTPORT-SETMARK"},
		{"-X", "CNI-HOSTPORT-DNAT"},
		{"-X", "CNI-HOSTPORT-MASQ"},
		{"-X", "CNI-HOSTPORT-SETMARK"},
	}
	if diff := cmp.Diff(removals(listing), want); diff != "" {
		t.Errorf("removals (-got +want):\n%s", diff)
	}
	inUse := listing + "-A CNI-HOSTPORT-DNAT -p tcp -m multiport --dports 80 -j CNI-DN-1\n"
	if got := removals(inUse); got != nil {
		t.Errorf("with a host port in use: got %v", got)
	}
}

func FuzzSplitWords(f *testing.F) {
	f.Add(`-A X -m comment --comment "a \"b\" c" -j Y`)
	f.Fuzz(func(t *testing.T, line string) {
		words := splitWords(line)
		if strings.ContainsAny(line, "\"\\\n") || !utf8.ValidString(line) {
			return
		}
		if got, want := strings.Join(words, " "), strings.Join(strings.FieldsFunc(line, func(r rune) bool { return r == ' ' }), " "); got != want {
			t.Errorf("%q: got %q, want %q", line, got, want)
		}
	})
}

// ownNamespace moves the test into a network namespace of its own. The thread is
// never given back, so that no other test runs in it.
func ownNamespace(t *testing.T) {
	t.Helper()
	testenv.Need(t, "root", "iptables")
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	// A new namespace begins with what the host has.
	if err := os.WriteFile(forwardingFile, []byte("0"), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestEnsureAndRemove(t *testing.T) {
	ownNamespace(t)
	used, err := UsedSubnets("")
	if err != nil {
		t.Fatal(err)
	}
	subnet, err := FreeSubnet(used)
	if err != nil {
		t.Fatal(err)
	}
	n := Net{ID: "podnettest", Bridge: "hf-podnettest", Subnet: subnet, NodePorts: []int{16443, 20250}, SharedDir: filepath.Join(t.TempDir(), "shared")}
	state := func() string {
		t.Helper()
		filter, err1 := iptables(t.Context(), "filter", "-S")
		nat, err2 := iptables(t.Context(), "nat", "-S")
		_, linkErr := netlink.LinkByName(n.Bridge)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		forward, err := os.ReadFile(forwardingFile)
		if err != nil {
			t.Fatal(err)
		}
		return "forward " + string(forward) + filter + nat + strings.ReplaceAll(errorText(linkErr), n.Bridge, "bridge")
	}
	before := state()
	ensure := func(wantChange bool) {
		t.Helper()
		changed, err := n.Ensure(t.Context())
		if err != nil || changed != wantChange {
			t.Fatalf("Ensure: got changed %v, %v; want %v", changed, err, wantChange)
		}
	}
	ensure(true)
	ensure(false)
	made := state()

	// Whatever somebody else takes away comes back, once.
	for _, c := range n.chains() {
		if _, err := iptables(t.Context(), c.table, "-D "+c.parent+" -j "+c.name); err != nil {
			t.Fatal(err)
		}
	}
	ensure(true)
	if _, err := iptables(t.Context(), "nat", "-F "+n.chains()[2].name); err != nil {
		t.Fatal(err)
	}
	ensure(true)
	if diff := cmp.Diff(state(), made); diff != "" {
		t.Errorf("after a repair (-got +want):\n%s", diff)
	}

	// Another port closes the old one.
	n.NodePorts = []int{16444, 20250}
	ensure(true)
	ensure(false)
	if strings.Contains(state(), "16443") {
		t.Errorf("the firewall still opens the old port:\n%s", state())
	}

	// Another subnet replaces the old one everywhere.
	moved := n
	moved.Subnet, err = FreeSubnet(append(used, Used{n.Subnet, "this test"}))
	if err != nil {
		t.Fatal(err)
	}
	n = moved
	ensure(true)
	link, err := netlink.LinkByName(n.Bridge)
	if err != nil {
		t.Fatal(err)
	}
	addrs, err := netlink.AddrList(link, netlink.FAMILY_V4)
	if err != nil || len(addrs) != 1 || addrs[0].IP.String() != n.Gateway().String() {
		t.Errorf("addresses of the bridge: got %v, %v; want %s alone", addrs, err, n.Gateway())
	}
	if strings.Contains(state(), subnet.String()) {
		t.Errorf("the firewall still names %s", subnet)
	}

	// A pod's cable, whose other end nobody takes away.
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MasterIndex = "vethpodnet", link.Attrs().Index
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "podend"}); err != nil {
		t.Fatal(err)
	}

	for range 2 { // the second finds nothing
		if _, err := n.Remove(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(state(), before); diff != "" {
		t.Errorf("after Remove (-got +want):\n%s", diff)
	}
	if _, err := netlink.LinkByName("podend"); !errors.As(err, new(netlink.LinkNotFoundError)) {
		t.Errorf("a pod's end of its cable after Remove: %v, want that it is gone", err)
	}
	if _, err := os.Stat(n.SharedDir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("shared folder: %v", err)
	}
}

func TestForwardingStaysOn(t *testing.T) {
	for _, tc := range []struct {
		name, note string
		arrange    func(t *testing.T, shared string)
	}{
		{"it was on", "", func(t *testing.T, _ string) {
			if err := os.WriteFile(forwardingFile, []byte("1"), 0o644); err != nil {
				t.Fatal(err)
			}
		}},
		{"another instance", "another Holdfast instance", func(t *testing.T, shared string) {
			other := Net{ID: "other", Bridge: "hf-other", Subnet: netip.MustParsePrefix("10.77.9.0/24"), SharedDir: shared}
			if _, err := other.Ensure(t.Context()); err != nil {
				t.Fatal(err)
			}
		}},
		{"another bridge", "docker0", func(t *testing.T, _ string) {
			attrs := netlink.NewLinkAttrs()
			attrs.Name = "docker0"
			if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ownNamespace(t)
			n := Net{ID: "test", Bridge: "hf-test", Subnet: netip.MustParsePrefix("10.77.0.0/24"), SharedDir: t.TempDir()}
			tc.arrange(t, n.SharedDir)
			if _, err := n.Ensure(t.Context()); err != nil {
				t.Fatal(err)
			}
			notes, err := n.Remove(t.Context())
			if err != nil || !strings.Contains(strings.Join(notes, "\n"), tc.note) {
				t.Errorf("got %q, %v; want %q", notes, err, tc.note)
			}
			if data, err := os.ReadFile(forwardingFile); err != nil || string(data) != "1\n" {
				t.Errorf("forwarding: got %q, %v", data, err)
			}
		})
	}
}

func TestHostPortChainsOfOthersStay(t *testing.T) {
	const makeChain = "*nat\n:CNI-HOSTPORT-DNAT - [0:0]\nCOMMIT\n"
	for _, tc := range []struct {
		name   string
		before bool
		want   bool
	}{
		{"there before us", true, true},
		{"made for our pods", false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ownNamespace(t)
			n := Net{ID: "test", Bridge: "hf-test", Subnet: netip.MustParsePrefix("10.77.0.0/24"), SharedDir: t.TempDir()}
			add := func() {
				if _, err := run(t.Context(), "iptables-restore", makeChain, "-w", "--noflush"); err != nil {
					t.Fatal(err)
				}
			}
			if tc.before {
				add()
			}
			if _, err := n.Ensure(t.Context()); err != nil {
				t.Fatal(err)
			}
			add()
			if _, err := n.Remove(t.Context()); err != nil {
				t.Fatal(err)
			}
			listing, err := iptables(t.Context(), "nat", "-S")
			if got := strings.Contains(listing, "-N CNI-HOSTPORT-DNAT"); got != tc.want || err != nil {
				t.Errorf("host port chain there: got %v, %v; want %v", got, err, tc.want)
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return "there"
	}
	return err.Error()
}
