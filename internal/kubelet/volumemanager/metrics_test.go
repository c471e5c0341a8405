package volumemanager

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestMetrics(t *testing.T) {
	run(t, newDisk(), func(t *testing.T, w *world) {
		registry := prometheus.NewRegistry()
		registry.MustRegister(w.operations, collector{w.Manager})
		w.api.set("cm", "1")
		w.mount(podOf("a", emptyDir("data"), configMap("cm")))
		w.mount(podOf("b", emptyDir("data")))
		if err := w.unmountWithin("b", time.Minute); err != nil {
			t.Fatal(err)
		}
		want := `
# HELP volume_manager_total_volumes Volumes that pods want (desired_state_of_world) and that are mounted (actual_state_of_world), by plugin.
# TYPE volume_manager_total_volumes gauge
volume_manager_total_volumes{plugin_name="kubernetes.io/configmap",state="actual_state_of_world"} 1
volume_manager_total_volumes{plugin_name="kubernetes.io/configmap",state="desired_state_of_world"} 1
volume_manager_total_volumes{plugin_name="kubernetes.io/empty-dir",state="actual_state_of_world"} 1
volume_manager_total_volumes{plugin_name="kubernetes.io/empty-dir",state="desired_state_of_world"} 1
`
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "volume_manager_total_volumes"); err != nil {
			t.Error(err)
		}
		if n := testutil.CollectAndCount(w.operations); n != 3 {
			t.Errorf("%d series of operations, want mounts of two plugins and unmounts of one", n)
		}
	})
}
