package node

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-dev/holdfast/internal/instance"
	"github.com/holdfast-dev/holdfast/internal/kubelet/eviction"
)

// TestInForce checks that what is written wins over the defaults, and that the
// defaults are shown.
func TestInForce(t *testing.T) {
	cfg := Config{ManifestDir: "/etc/pods"}
	cfg.Kubelet.ImageGCHighThresholdPercent = new(int32(70))
	cfg.Kubelet.FileCheckFrequency = metav1.Duration{Duration: 5 * time.Second}
	in := &instance.Instance{Root: "/srv/node", ID: "ab12cd"}
	c, err := inForce(cfg, in, "unix:///run/r.sock", 11250)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	for field, want := range map[string]any{
		"kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1",
		"staticPodPath": "/etc/pods", "port": 11250.0, "containerRuntimeEndpoint": "unix:///run/r.sock",
		"podLogsDir": "/srv/node/logs/pods", "cgroupRoot": "/holdfast-ab12cd", "cgroupDriver": "cgroupfs",
		"fileCheckFrequency": "5s", "imageGCHighThresholdPercent": 70.0, "imageGCLowThresholdPercent": 80.0,
		"containerLogMaxSize": "10Mi", "containerLogMonitorInterval": "10s", "maxPods": 110.0,
		"evictionPressureTransitionPeriod": "5m0s", "volumeStatsAggPeriod": "1m0s", "podPidsLimit": -1.0,
	} {
		if got[field] != want {
			t.Errorf("%s: got %v, want %v", field, got[field], want)
		}
	}
	for name, test := range map[string]struct {
		written map[string]string
		want    map[string]string
	}{
		"defaults": {nil, eviction.DefaultHard()},
		"written":  {map[string]string{"pid.available": "5%"}, map[string]string{"pid.available": "5%"}},
		"none":     {map[string]string{}, map[string]string{}},
	} {
		cfg.Kubelet.EvictionHard = test.written
		c, err := inForce(cfg, in, "unix:///run/r.sock", 11250)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.EvictionHard, test.want); diff != "" {
			t.Errorf("evictionHard, %s:\n%s", name, diff)
		}
	}
}
