package node

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/localapi"
)

func TestBound(t *testing.T) {
	for name, test := range map[string]struct {
		given []string
		each  string
		every string
	}{
		"none":                 {nil, "", "invalid IP"},
		"two":                  {[]string{"192.0.2.1", "2001:db8::1"}, "192.0.2.1 2001:db8::1", "invalid IP"},
		"one twice":            {[]string{"192.0.2.1", "::ffff:192.0.2.1"}, "192.0.2.1", "invalid IP"},
		"loopback is there":    {[]string{"127.0.0.1", "::1"}, "::1", "invalid IP"},
		"all of IPv4":          {[]string{"0.0.0.0"}, "", "0.0.0.0"},
		"all":                  {[]string{"::", "0.0.0.0"}, "", "::"},
		"all, and one of them": {[]string{"192.0.2.1", "0.0.0.0"}, "", "0.0.0.0"},
	} {
		t.Run(name, func(t *testing.T) {
			each, every := Config{BindAddress: test.given}.bound()
			var texts []string
			for _, a := range each {
				texts = append(texts, a.String())
			}
			if got := strings.Join(texts, " "); got != test.each || every.String() != test.every {
				t.Errorf("got %q and %v, want %q and %s", got, every, test.each, test.every)
			}
		})
	}
}

func TestValidateReach(t *testing.T) {
	good := Config{BindAddress: []string{"0.0.0.0", "::", "192.0.2.1"}, APINames: []string{"edge.example.com", "*.example.com", "192.0.2.9", "edge"}}
	if errs := good.validateReach(); len(errs) > 0 {
		t.Error(errs)
	}
	bad := Config{BindAddress: []string{"eth0", "192.0.2.1:6443", "fe80::1%eth0", "224.0.0.1"}, APINames: []string{"Edge", "https://edge", ""}}
	errs := bad.validateReach()
	if got, want := len(errs), len(bad.BindAddress)+len(bad.APINames); got != want {
		t.Errorf("%d problems, want %d: %v", got, want, errs)
	}
	for i, value := range append(bad.BindAddress, bad.APINames...) {
		if i < len(errs) && !strings.Contains(errs[i].Error(), strconv.Quote(value)) {
			t.Errorf("no %q in %v", value, errs[i])
		}
	}
}

// reachNode is a node with an API that does not run.
func reachNode(t *testing.T, cfg Config) *node {
	t.Helper()
	cfg.Progress = func(string) {}
	n := &node{cfg: cfg, log: slog.New(slog.DiscardHandler), address: netip.MustParseAddr("127.0.0.1")}
	dir := t.TempDir()
	host := "127.0.0.1"
	if _, every := cfg.bound(); every.IsValid() {
		host = every.String()
	}
	var err error
	n.api, err = localapi.New(localapi.Config{
		DataDir: dir, PKIDir: dir, RunDir: dir, NodeName: "n", Log: n.log,
		Listen: []string{net.JoinHostPort(host, "0")}, Names: n.apiNames(), MoreNames: n.changingNames,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(n.api.Close(), closeAll(n.apiListeners)); err != nil {
			t.Error(err)
		}
	})
	return n
}

// The certificate names what the API is bound to, and every address of the
// machine if it is bound to all.
func TestNamesInCertificate(t *testing.T) {
	addresses := (&node{log: slog.New(slog.DiscardHandler)}).machineAddresses
	machine := addresses()
	for name, test := range map[string]struct {
		cfg  Config
		want []string
	}{
		"one":        {Config{BindAddress: []string{"127.0.0.7"}}, []string{"127.0.0.7"}},
		"more names": {Config{APINames: []string{"edge.example.com", "192.0.2.9"}}, []string{"edge.example.com", "192.0.2.9"}},
		"all":        {Config{BindAddress: []string{"0.0.0.0"}}, machine},
	} {
		t.Run(name, func(t *testing.T) {
			n := reachNode(t, test.cfg)
			names := map[string]bool{}
			for _, c := range n.api.Certificates() {
				if c.Name == "apiserver" {
					for _, name := range c.Names {
						names[name] = true
					}
				}
			}
			still := addresses() // interfaces of others come and go
			for _, want := range append(test.want, "127.0.0.1", "localhost") {
				went := slices.Contains(machine, want) && !slices.Contains(still, want)
				if !names[want] && !went {
					t.Errorf("no %q in %v", want, names)
				}
			}
			if host, _, _ := net.SplitHostPort(n.api.Address()); host != "127.0.0.1" {
				t.Errorf("the node's own clients are sent to %s", n.api.Address())
			}
		})
	}
}

// A port that is taken on one of the addresses is named; an address that no
// interface has is a fault and keeps nothing from starting.
func TestListenForPods(t *testing.T) {
	n := reachNode(t, Config{BindAddress: []string{"127.0.0.7", "192.0.2.77"}})
	taken, err := net.Listen("tcp", net.JoinHostPort("127.0.0.7", strconv.Itoa(n.api.Port())))
	if err != nil {
		t.Fatal(err)
	}
	if err := n.listenForPods(t.Context()); !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "127.0.0.7") {
		t.Errorf("got %v, want an error that names the address", err)
	}
	n.apiListeners = nil
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	if err := n.listenForPods(t.Context()); err != nil {
		t.Fatal(err)
	}
	var at []string
	for _, l := range n.apiListeners {
		at = append(at, l.Addr().(*net.TCPAddr).IP.String())
	}
	if diff := cmp.Diff(at, []string{"127.0.0.7", "192.0.2.77"}); diff != "" {
		t.Error(diff)
	}
	faults := n.reachFaults()
	if len(faults) != 1 || faults[0].Field != "bindAddress 192.0.2.77" {
		t.Errorf("got %+v, want 192.0.2.77 alone", faults)
	}
	if diff := cmp.Diff(n.outside(), []string{"192.0.2.77:" + strconv.Itoa(n.api.Port())}); diff != "" {
		t.Error(diff)
	}
}
