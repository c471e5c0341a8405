package clusternode

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	defaults "github.com/holdfast-dev/holdfast/internal/kubeletconfig"
)

// TestRefuses holds that a node which cannot do what it is told does not start, and
// says why.
func TestRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"no API":                   {func(c *Config) { c.Kubeconfig = "" }, "--kubeconfig is missing"},
		"no file of the API":       {func(*Config) {}, "there is no such kubeconfig"},
		"no file to bootstrap by":  {func(c *Config) { c.Bootstrap = c.Kubeconfig + ".bootstrap" }, "--bootstrap-kubeconfig: kubeconfig"},
		"programs without folder":  {func(c *Config) { c.ProviderConfig = "/etc/providers.yaml" }, "belong together"},
		"no address of a node":     {func(c *Config) { c.NodeIP = "somewhere" }, "--node-ip"},
		"a label that is not ours": {func(c *Config) { c.Labels = map[string]string{"node-role.kubernetes.io/x": ""} }, "unknown 'kubernetes.io' or 'k8s.io' labels"},
		"no images":                {func(c *Config) { c.Kubelet.NodeStatusMaxImages = new(int32(0)) }, "nodeStatusMaxImages: 0 is not possible"},
	} {
		t.Run(name, func(t *testing.T) {
			k := defaults.Default()
			cfg := Config{Kubelet: &k, Kubeconfig: filepath.Join(t.TempDir(), "none"), Root: t.TempDir(), Name: "n", Log: slog.New(slog.DiscardHandler)}
			test.change(&cfg)
			n := &Node{cfg: cfg, log: cfg.Log, metrics: prometheus.NewRegistry()}
			_, errSettings := n.nodeSettings()
			_, errProviders := providers(cfg)
			errIdentity := n.openIdentity()
			for _, err := range []error{errSettings, errProviders, errIdentity} {
				if err != nil && strings.Contains(err.Error(), test.want) {
					return
				}
			}
			t.Errorf("got %v, %v, %v, want %q in one", errSettings, errProviders, errIdentity, test.want)
		})
	}
}

// TestSockets holds which ports are taken, and that all are given up.
func TestSockets(t *testing.T) {
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()            // nothing was sent
	port := int32(taken.Addr().(*net.TCPAddr).Port) //nolint:gosec // a port
	for name, test := range map[string]struct {
		change func(*kubeletconfig.KubeletConfiguration)
		want   string // in the error; empty: there is none
	}{
		"the API alone":        {func(*kubeletconfig.KubeletConfiguration) {}, ""},
		"a port that is taken": {func(k *kubeletconfig.KubeletConfiguration) { k.Port = port }, "port"},
		"health is taken":      {func(k *kubeletconfig.KubeletConfiguration) { k.HealthzPort = &port }, "healthzPort"},
		"read-only is taken":   {func(k *kubeletconfig.KubeletConfiguration) { k.ReadOnlyPort = port }, "readOnlyPort"},
		"no address":           {func(k *kubeletconfig.KubeletConfiguration) { k.Address = "here" }, `address "here" is no address`},
	} {
		t.Run(name, func(t *testing.T) {
			k := defaults.Default()
			k.Address, k.Port, k.HealthzPort = "127.0.0.1", 0, new(int32(0))
			test.change(&k)
			var s sockets
			err := s.listen(context.Background(), &k)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			if err := s.close(); err != nil {
				t.Error(err)
			}
			for _, l := range s.api {
				if _, err := l.Accept(); err == nil {
					t.Error("a socket is still open")
				}
			}
		})
	}
}
