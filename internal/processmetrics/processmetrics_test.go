package processmetrics_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-dev/holdfast/internal/processmetrics"
	"github.com/holdfast-dev/holdfast/internal/version"
)

func TestRegister(t *testing.T) {
	registry := prometheus.NewRegistry()
	processmetrics.Register(registry)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, family := range families {
		found[family.GetName()] = true
		if family.GetName() != "kubernetes_build_info" {
			continue
		}
		labels := map[string]string{}
		for _, pair := range family.GetMetric()[0].GetLabel() {
			labels[pair.GetName()] = pair.GetValue()
		}
		prefix := "v" + labels["major"] + "." + labels["minor"] + "."
		if _, ok := strings.CutPrefix(version.Kubernetes, prefix); !ok || labels["git_version"] != version.Kubernetes {
			t.Errorf("kubernetes_build_info = %v, want the version %s", labels, version.Kubernetes)
		}
	}
	for _, name := range []string{"kubernetes_build_info", "go_goroutines", "process_resident_memory_bytes"} {
		if !found[name] {
			t.Errorf("%s is not there", name)
		}
	}
}
