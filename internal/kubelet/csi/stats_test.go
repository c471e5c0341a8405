package csi_test

import (
	"errors"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/kubelet/csi"
	"github.com/holdfast-dev/holdfast/test/csidriver"
)

func TestStats(t *testing.T) {
	w := start(t, nil)
	v := persistent("a", "pv")
	if _, _, err := w.host.Stats(t.Context(), v.PodUID, v.ID); err == nil {
		t.Error("figures of a volume that is not there")
	}
	w.setUp(v)
	bytes, inodes, err := w.host.Stats(t.Context(), v.PodUID, v.ID)
	if err != nil {
		t.Fatal(err)
	}
	if bytes == nil || bytes.Capacity <= 0 || bytes.Used+bytes.Available > bytes.Capacity {
		t.Errorf("bytes %+v", bytes)
	}
	if diff := cmp.Diff(inodes, &csi.Usage{Capacity: 10, Used: 3, Available: 7}); diff != "" {
		t.Errorf("inodes (-got +want):\n%s", diff)
	}
	w.driver.Fail("NodeGetVolumeStats", 1, errTrouble)
	_, _, err = w.host.Stats(t.Context(), v.PodUID, v.ID)
	wantErr(t, err, "NodeGetVolumeStats: trouble")

	none := start(t, func(c *csidriver.Config) { c.Lacks = rpc(spec.NodeServiceCapability_RPC_GET_VOLUME_STATS) })
	none.setUp(v)
	if _, _, err := none.host.Stats(t.Context(), v.PodUID, v.ID); !errors.Is(err, csi.ErrNoStats) {
		t.Errorf("error %v", err)
	}
}
