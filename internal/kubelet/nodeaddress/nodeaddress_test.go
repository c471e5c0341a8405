package nodeaddress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
)

// machine is one whose name, interfaces and routes a test chooses.
type machine struct {
	local, named []string
	v4, v6       string // by the default route
	asked        int    // lookups of the name
}

func (m *machine) finder(cfg Config) *Finder {
	f := New(cfg)
	f.host = host{
		local: func() ([]netip.Addr, error) { return addrs(m.local), nil },
		lookup: func(context.Context, string) ([]netip.Addr, error) {
			m.asked++
			if m.named == nil {
				return nil, errors.New("no such host")
			}
			return addrs(m.named), nil
		},
		route: func(preferred net.IP) (net.IP, error) {
			text := m.v4
			if preferred != nil {
				text = m.v6
			}
			if text == "" {
				return nil, errors.New("no default routes")
			}
			return net.ParseIP(text), nil
		},
	}
	return f
}

func addrs(texts []string) []netip.Addr {
	var all []netip.Addr
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

// flat writes addresses as type=address.
func flat(addresses []v1.NodeAddress) string {
	var all []string
	for _, a := range addresses {
		all = append(all, string(a.Type)+"="+a.Address)
	}
	return strings.Join(all, " ")
}

func TestFind(t *testing.T) {
	local := []string{"127.0.0.1", "10.0.0.1", "10.0.0.2", "fd00::1", "fe80::1"}
	cloud := []v1.NodeAddress{{Type: v1.NodeExternalIP, Address: "192.0.2.1"}}
	tests := []struct {
		name     string
		nodeIP   string
		hostname string // default: n1
		external bool
		have     []v1.NodeAddress
		named    []string
		v4, v6   string
		want     string
		wantErr  string
	}{
		{name: "by the route", v4: "10.0.0.1", v6: "fd00::1", want: "InternalIP=10.0.0.1 Hostname=n1"},
		{name: "by the name", named: []string{"10.0.0.2"}, v4: "10.0.0.1", want: "InternalIP=10.0.0.2 Hostname=n1"},
		{name: "a name of loopback", named: []string{"127.0.0.1"}, v4: "10.0.0.1", want: "InternalIP=10.0.0.1 Hostname=n1"},
		{name: "a name of another machine", named: []string{"10.9.9.9"}, v4: "10.0.0.1", want: "InternalIP=10.0.0.1 Hostname=n1"},
		{name: "IPv4 of a name before IPv6", named: []string{"fd00::1", "10.0.0.2"}, want: "InternalIP=10.0.0.2 Hostname=n1"},
		{name: "IPv6 of a name if there is no other", named: []string{"fd00::1"}, v4: "10.0.0.1", want: "InternalIP=fd00::1 Hostname=n1"},
		{name: "IPv6 preferred", nodeIP: "::", v4: "10.0.0.1", v6: "fd00::1", want: "InternalIP=fd00::1 Hostname=n1"},
		{name: "IPv4 preferred", nodeIP: "0.0.0.0", v4: "10.0.0.1", v6: "fd00::1", want: "InternalIP=10.0.0.1 Hostname=n1"},
		{name: "one that is said", nodeIP: "10.0.0.2", v4: "10.0.0.1", want: "InternalIP=10.0.0.2 Hostname=n1"},
		{name: "a pair", nodeIP: "10.0.0.2,fd00::1", want: "InternalIP=10.0.0.2 InternalIP=fd00::1 Hostname=n1"},
		{name: "a pair, IPv6 first", nodeIP: "fd00::1, 10.0.0.2", want: "InternalIP=fd00::1 InternalIP=10.0.0.2 Hostname=n1"},
		{name: "a hostname that is an address", hostname: "10.0.0.9", v4: "10.0.0.1", want: "InternalIP=10.0.0.9 Hostname=10.0.0.9"},
		{name: "changed", v4: "10.0.0.1", have: []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.0.0.7"}}, want: "InternalIP=10.0.0.1 Hostname=n1"},
		{name: "nothing", wantErr: "can't get ip address of node n1: no default routes"},
		{name: "another machine's", nodeIP: "10.9.9.9", wantErr: `node IP: "10.9.9.9" not found in the host's network interfaces`},
		{name: "loopback", nodeIP: "127.0.0.1", wantErr: "nodeIP can't be loopback address"},
		{name: "link-local", nodeIP: "fe80::1", wantErr: "nodeIP can't be a link-local unicast address"},
		{name: "multicast", nodeIP: "224.0.0.1", wantErr: "nodeIP can't be a multicast address"},
		{name: "the second is not ours", nodeIP: "10.0.0.1,fd00::9", wantErr: `"fd00::9" not found`},
		{name: "a cloud's stay", external: true, have: cloud, v4: "10.0.0.1", want: "ExternalIP=192.0.2.1"},
		{name: "a cloud's stay though one is said", external: true, nodeIP: "10.0.0.2", have: cloud, want: "ExternalIP=192.0.2.1"},
		{name: "none until the cloud says", external: true, v4: "10.0.0.1", want: "Hostname=n1"},
		{name: "said until the cloud says", external: true, nodeIP: "10.0.0.2", want: "InternalIP=10.0.0.2 Hostname=n1"},
		{name: "a family until the cloud says", external: true, nodeIP: "::", v6: "fd00::1", want: "InternalIP=fd00::1 Hostname=n1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ips, ignored, err := ParseIPs(tt.nodeIP)
			if err != nil || ignored != nil {
				t.Fatal(ignored, err)
			}
			m := &machine{local: local, named: tt.named, v4: tt.v4, v6: tt.v6}
			hostname := "n1"
			if tt.hostname != "" {
				hostname = tt.hostname
			}
			f := m.finder(Config{Node: "n1", Hostname: hostname, IPs: ips, ExternalCloud: tt.external})
			got, err := f.Find(t.Context(), tt.have)
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Errorf("got %v, %v, want %q in the error", got, err, tt.wantErr)
				}
				return
			}
			if err != nil || flat(got) != tt.want {
				t.Errorf("got %s, %v, want %s", flat(got), err, tt.want)
			}
		})
	}
}

func TestParseIPs(t *testing.T) {
	for _, text := range []string{"10.0.0.1,10.0.0.2", "10.0.0.1,fd00::1,fd00::2", "0.0.0.0,::"} {
		if ips, _, err := ParseIPs(text); err == nil {
			t.Errorf("%s: %v and no error", text, ips)
		}
	}
	ips, ignored, err := ParseIPs("10.0.0.1,nonsense")
	if err != nil || !slices.Equal(ips, addrs([]string{"10.0.0.1"})) || !slices.Equal(ignored, []string{"nonsense"}) {
		t.Errorf("got %v, %v, %v", ips, ignored, err)
	}
}

func TestProvided(t *testing.T) {
	both := addrs([]string{"10.0.0.1", "fd00::1"})
	for want, cfg := range map[string]Config{
		"10.0.0.1,fd00::1": {IPs: both, ExternalCloud: true},
		"fd00::1":          {IPs: both[1:], ExternalCloud: true},
	} {
		if got := New(cfg).Provided(); got != want {
			t.Errorf("%+v: %q, want %q", cfg, got, want)
		}
	}
	for _, cfg := range []Config{{IPs: both}, {ExternalCloud: true}, {IPs: addrs([]string{"::"}), ExternalCloud: true}} {
		if got := New(cfg).Provided(); got != "" {
			t.Errorf("%+v: %q", cfg, got)
		}
	}
}

// TestKept holds that the resolver is not asked all the time, that a change is seen,
// and that what was found stays while nothing is.
func TestKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &machine{local: []string{"10.0.0.1", "10.0.0.2"}, named: []string{"10.0.0.1"}}
		f := m.finder(Config{Node: "n1", Hostname: "n1"})
		want := func(when, address string) {
			t.Helper()
			if got, err := f.Find(t.Context(), nil); err != nil || flat(got) != "InternalIP="+address+" Hostname=n1" {
				t.Errorf("%s: %s, %v, want %s", when, flat(got), err, address)
			}
		}
		want("first", "10.0.0.1")
		m.named = []string{"10.0.0.2"}
		want("at once", "10.0.0.1")
		if m.asked != 1 {
			t.Errorf("asked %d times", m.asked)
		}
		time.Sleep(keepFor)
		want("a minute later", "10.0.0.2")
		m.named = nil
		time.Sleep(keepFor)
		want("nothing answers", "10.0.0.2")
	})
}

func TestHostIPs(t *testing.T) {
	for text, want := range map[string][]string{
		"":                                  nil,
		"Hostname=n1":                       nil,
		"InternalIP=10.0.0.1 Hostname=n1":   {"10.0.0.1"},
		"ExternalIP=192.0.2.1":              {"192.0.2.1"},
		"ExternalIP=192.0.2.1 InternalIP=a": {"192.0.2.1"},
		"InternalIP=10.0.0.1 InternalIP=10.0.0.2 InternalIP=fd00::1 InternalIP=fd00::2": {"10.0.0.1", "fd00::1"},
		"ExternalIP=192.0.2.1 ExternalIP=2001:db8::1 InternalIP=fd00::1":                {"fd00::1", "192.0.2.1"},
	} {
		var reported []v1.NodeAddress
		for pair := range strings.FieldsSeq(text) {
			kind, address, _ := strings.Cut(pair, "=")
			reported = append(reported, v1.NodeAddress{Type: v1.NodeAddressType(kind), Address: address})
		}
		if got := HostIPs(reported); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}

func TestFixed(t *testing.T) {
	got, err := Fixed("n1", netip.MustParseAddr("127.0.0.1")).Find(t.Context(), []v1.NodeAddress{{Type: v1.NodeHostName, Address: "old"}})
	if err != nil || flat(got) != "InternalIP=127.0.0.1 Hostname=n1" {
		t.Errorf("got %s, %v", flat(got), err)
	}
}
