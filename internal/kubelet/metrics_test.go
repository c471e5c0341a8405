package kubelet_test

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-dev/holdfast/internal/kubelet"
)

var update = flag.Bool("update", false, "rewrite testdata/metrics.txt")

// TestMetricNames compares what /metrics may show, with labels and help, with a
// list: alerts and dashboards go by these names.
func TestMetricNames(t *testing.T) {
	got := metricNames(t)
	const file = "testdata/metrics.txt"
	if *update {
		if err := os.WriteFile(file, []byte(strings.Join(got, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(strings.TrimSpace(string(want)), "\n"), got); diff != "" {
		t.Errorf("metrics (-listed +there); go test -update rewrites the list:\n%s", diff)
	}
}

var description = regexp.MustCompile(`^Desc\{fqName: "(.*)", help: "(.*?)"(?:, unit: ".*")?, constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)

// metricNames describes the metrics of a kubelet that hardly ran, sorted.
func metricNames(t *testing.T) []string {
	t.Helper()
	dir := t.TempDir()
	var lc net.ListenConfig
	listener, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	k, err := kubelet.New(kubelet.Config{
		NodeName: "n1", Addresses: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, Dir: dir, LogDir: filepath.Join(dir, "logs"),
		RuntimeEndpoint: "unix://" + filepath.Join(dir, "none.sock"), CgroupParent: cgroupParent,
		Client: newAPI(), Listeners: []net.Listener{listener}, Metrics: registry, Log: slog.New(slog.DiscardHandler),
		Certificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, errors.New("nobody is to come") },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := errors.Join(k.Run(ctx), k.Close()); err != nil { // ends what New began
		t.Error(err)
	}
	descriptions := make(chan *prometheus.Desc)
	go func() {
		defer close(descriptions)
		registry.Describe(descriptions)
	}()
	var lines []string
	for d := range descriptions {
		parts := description.FindStringSubmatch(d.String())
		if parts == nil {
			t.Fatalf("not understood: %s", d)
		}
		lines = append(lines, parts[1]+"{"+parts[4]+"} "+parts[2])
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}
