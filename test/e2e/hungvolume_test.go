package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/holdfast-dev/holdfast/internal/testenv"
	"github.com/holdfast-dev/holdfast/test/hangingfs"
)

// TestHungVolume has a volume whose server does not answer: status names it,
// other pods come and go, the node goes down and up, and the pod starts once
// there is an answer.
func TestHungVolume(t *testing.T) {
	t.Parallel()
	testenv.Need(t, "root")
	dir := t.TempDir()
	fs := hangingfs.Mount(t, dir)
	n := startNode(t)
	fs.Hang()
	n.write("hung.yaml", demoPod("hung", "serve", fmt.Sprintf(`    volumeMounts: [{name: data, mountPath: /data}]
  volumes:
  - {name: data, hostPath: {path: %s, type: Directory}}
`, dir)))
	n.eventually("status names it", func() error {
		out, _ := n.try("status")
		return wants(out, "default/hung", `set up volume "data": it takes long`)
	})
	n.write("other.yaml", demoPod("other", "serve", ""))
	n.running("other-edge-1")
	n.holdfast("down")
	n.up()
	n.running("other-edge-1")
	fs.Answer()
	n.running("hung-edge-1")
}

// TestHungFigures has a volume stop answering while its pod runs: its figures are stale
// and then gone, all others, the Summary and the end of the node are as before.
func TestHungFigures(t *testing.T) {
	t.Parallel()
	testenv.Need(t, "root")
	dir := t.TempDir()
	fs := hangingfs.Mount(t, dir)
	n := newNode(t)
	n.configure("  volumeStatsAggPeriod: 2s\n")
	n.up()
	n.write("hung.yaml", demoPod("hung", "serve", fmt.Sprintf(`    volumeMounts: [{name: bad, mountPath: /bad}, {name: good, mountPath: /good}]
  volumes:
  - {name: bad, hostPath: {path: %s}}
  - {name: good, emptyDir: {}}
`, dir)))
	n.running("hung-edge-1")
	const labels = `{method="filesystem",namespace="default",pod="hung-edge-1",source="hostPath",volume="bad"}`
	metrics := func() string { return n.kubectl("get", "--raw", "/api/v1/nodes/edge-1/proxy/metrics") }
	n.eventually("it has figures", func() error {
		return wants(metrics(), fmt.Sprintf("holdfast_volume_capacity_bytes%s %g\n", labels, float64(hangingfs.Size)), "holdfast_volume_stale"+labels+" 0\n")
	})
	fs.Hang()
	n.eventually("its figures are stale", func() error {
		return wants(metrics(), "holdfast_volume_stale"+labels+" 1\n")
	})
	n.eventually("its figures are gone", func() error {
		if out := metrics(); strings.Contains(out, "holdfast_volume_stale"+labels) {
			return fmt.Errorf("they are there:\n%s", out)
		}
		return nil
	})
	var summary statsapi.Summary
	began := time.Now()
	if err := json.Unmarshal([]byte(n.kubectl("get", "--raw", "/api/v1/nodes/edge-1/proxy/stats/summary")), &summary); err != nil {
		t.Fatal(err)
	}
	for _, pod := range summary.Pods {
		if pod.PodRef.Name != "hung-edge-1" {
			continue
		}
		if len(pod.VolumeStats) == 0 {
			t.Error("the other volumes have no figures")
		}
		for _, v := range pod.VolumeStats {
			if age := began.Sub(v.Time.Time); v.Name == "bad" || age > 20*time.Second {
				t.Errorf("volume %s, figures of %v ago", v.Name, age)
			}
		}
		if pod.Memory == nil || pod.EphemeralStorage == nil {
			t.Errorf("memory %v, ephemeral storage %v", pod.Memory, pod.EphemeralStorage)
		}
	}
	began = time.Now()
	n.holdfast("down")
	if took := time.Since(began); took > time.Minute {
		t.Errorf("the node went down in %v", took)
	}
	fs.Answer()
	n.up()
	n.eventually("it has figures again", func() error { return wants(metrics(), "holdfast_volume_stale"+labels+" 0\n") })
}
