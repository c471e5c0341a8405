package server

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
)

func uid2(uid string) types.UID { return types.UID(uid) }

func TestPods(t *testing.T) {
	r := newRig(t, nil)
	r.node.listed = []observed.Pod{
		{UID: "u1", Name: "web", Namespace: "default", Containers: []observed.Container{
			{ID: "c2", Name: "app", State: observed.Running}, {ID: "c1", Name: "app", State: observed.Exited},
		}},
		{UID: "u8", Name: "starting", Namespace: "default", Sandboxes: []observed.Sandbox{{ID: "s", State: observed.Running}}},
		{UID: "u9", Name: "ended", Namespace: "default", Containers: []observed.Container{{ID: "c3", Name: "app", State: observed.Exited}}},
	}
	for path, want := range map[string]string{"/pods": "web:app,side", "/pods/": "web:app,side", "/runningpods/": "web:app starting:"} {
		code, body := r.get(path)
		var list v1.PodList
		if err := json.Unmarshal([]byte(body), &list); code != 200 || err != nil || list.Kind != "PodList" || list.APIVersion != "v1" {
			t.Fatalf("GET %s = %d %q, %v", path, code, body, err)
		}
		var got []string
		for _, pod := range list.Items {
			var names []string
			for _, container := range pod.Spec.Containers {
				names = append(names, container.Name)
			}
			got = append(got, pod.Name+":"+strings.Join(names, ","))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("GET %s = %q, want %q", path, got, want)
		}
	}
}

func TestHealth(t *testing.T) {
	var broken error
	r := newRig(t, func(cfg *Config) {
		cfg.Checks = []Check{{"syncloop", func() error { return broken }}}
	})
	check := func(base, path, token string, wantCode int, want string) {
		t.Helper()
		code, _, body := r.do(r.client(), http.MethodGet, base+path, token)
		if code != wantCode || body != want {
			t.Errorf("GET %s = %d %q, want %d %q", path, code, body, wantCode, want)
		}
	}
	check(r.url, "/healthz", "admin-token", 200, "ok")
	check(r.health, "/healthz", "", 200, "ok")
	check(r.health, "/healthz?verbose", "", 200, "[+]ping ok\n[+]log ok\n[+]syncloop ok\nhealthz check passed\n")
	check(r.health, "/pods", "", 404, "404 page not found\n")
	check(r.health, "/healthz/other", "", 404, "404 page not found\n")
	if code, _, _ := r.do(r.client(), http.MethodHead, r.health+"/healthz", ""); code != 200 {
		t.Errorf("HEAD /healthz = %d", code)
	}
	broken = errors.New("secret detail")
	check(r.health, "/healthz", "", 500, "[+]ping ok\n[+]log ok\n[-]syncloop failed: reason withheld\nhealthz check failed\n")
	check(r.health, "/healthz/syncloop", "", 500, "[-]syncloop failed: reason withheld\nhealthz check failed\n")
	check(r.health, "/healthz/ping", "", 200, "ok")
}

func TestMetrics(t *testing.T) {
	gauge := func(name string) *prometheus.Registry {
		registry := prometheus.NewRegistry()
		registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: "h"}, func() float64 { return 3 }))
		return registry
	}
	r := newRig(t, func(cfg *Config) {
		cfg.Metrics, cfg.Probes = gauge("kubelet_running_pods"), gauge("prober_probe_total")
	})
	for path, want := range map[string]string{"/metrics": "kubelet_running_pods 3", "/metrics/probes": "prober_probe_total 3"} {
		if code, body := r.get(path); code != 200 || !strings.HasSuffix(body, want) {
			t.Errorf("GET %s = %d %q, want %q", path, code, body, want)
		}
	}
}

func TestConfigz(t *testing.T) {
	r := newRig(t, func(cfg *Config) {
		cfg.Configuration = &kubeletconfig.KubeletConfiguration{StaticPodPath: "/etc/pods", MaxPods: 7}
	})
	code, body := r.get("/configz")
	var got struct {
		KubeletConfig kubeletconfig.KubeletConfiguration
	}
	if err := json.Unmarshal([]byte(body), &got); code != 200 || err != nil {
		t.Fatalf("GET /configz = %d %q, %v", code, body, err)
	}
	if diff := cmp.Diff(&got.KubeletConfig, r.cfg.Configuration); diff != "" {
		t.Error(diff)
	}
}

// TestEveryListener checks that all addresses are served alike.
func TestEveryListener(t *testing.T) {
	r := newRig(t, nil)
	for _, l := range r.cfg.Listeners {
		code, _, body := r.do(r.client(), http.MethodGet, "https://"+l.Addr().String()+"/healthz", "admin-token")
		if code != 200 || body != "ok" {
			t.Errorf("GET %s/healthz = %d %q", l.Addr(), code, body)
		}
	}
}

// TestTLS checks that nobody is served in the clear or by old TLS.
func TestTLS(t *testing.T) {
	r := newRig(t, nil)
	code, _, _ := r.do(r.client(), http.MethodGet, strings.Replace(r.url, "https", "http", 1)+"/healthz", "admin-token")
	if code != 400 {
		t.Errorf("in the clear: %d, want 400", code)
	}
	client := r.client()
	client.Transport.(*http.Transport).TLSClientConfig.MaxVersion = 0x0302 // TLS 1.1
	client.Transport.(*http.Transport).TLSClientConfig.MinVersion = 0x0301
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+"/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := client.Do(req); err == nil {
		_ = resp.Body.Close()
		t.Error("TLS 1.1 was accepted")
	}
}
