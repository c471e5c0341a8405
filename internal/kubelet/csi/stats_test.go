package csi_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-dev/holdfast/internal/kubelet/csi"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
	"github.com/holdfast-dev/holdfast/test/csidriver"
)

// A driver's figures are taken as they are; what it leaves out is not known.
func TestMeasure(t *testing.T) {
	bytes := func(total, used, available int64) *spec.VolumeUsage {
		return &spec.VolumeUsage{Unit: spec.VolumeUsage_BYTES, Total: total, Used: used, Available: available}
	}
	const none = "disks.example.com says nothing of volume handle-of-pv"
	for _, tt := range []struct {
		name    string
		volume  *podvolumes.Volume
		figures []*spec.VolumeUsage
		want    podvolumes.Usage
		wantErr string
	}{
		{
			"bytes and inodes", persistent("a", "pv"),
			[]*spec.VolumeUsage{bytes(100, 30, 60), {Unit: spec.VolumeUsage_INODES, Total: 10, Used: 3, Available: 7}},
			podvolumes.Usage{
				CapacityBytes: new(uint64(100)), UsedBytes: new(uint64(30)), AvailableBytes: new(uint64(60)),
				Inodes: new(uint64(10)), InodesUsed: new(uint64(3)), InodesFree: new(uint64(7)),
			},
			"",
		},
		{"full", persistent("a", "pv"), []*spec.VolumeUsage{bytes(100, 100, 0)}, podvolumes.Usage{CapacityBytes: new(uint64(100)), UsedBytes: new(uint64(100)), AvailableBytes: new(uint64(0))}, ""},
		{"a device: its size", raw("a", "pv"), []*spec.VolumeUsage{bytes(100, 0, 0)}, podvolumes.Usage{CapacityBytes: new(uint64(100))}, ""},
		{"without a size", persistent("a", "pv"), []*spec.VolumeUsage{bytes(0, 30, 0)}, podvolumes.Usage{UsedBytes: new(uint64(30)), AvailableBytes: new(uint64(0))}, ""},
		{"nonsense", persistent("a", "pv"), []*spec.VolumeUsage{bytes(-1, -5, 3), {Unit: 7, Total: 1}}, podvolumes.Usage{}, none},
		{"nothing", persistent("a", "pv"), []*spec.VolumeUsage{}, podvolumes.Usage{}, none},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := start(t, func(c *csidriver.Config) { c.Usage = tt.figures })
			path := w.setUp(tt.volume)
			got, err := w.host.Measure(t.Context(), path)
			if tt.wantErr != "" {
				wantErr(t, err, tt.wantErr)
				if !errors.Is(err, podvolumes.ErrNoUsage) {
					t.Errorf("error %v is not silent", err)
				}
			} else if err != nil {
				t.Fatal(err)
			}
			tt.want.Method, tt.want.Driver = podvolumes.ByDriver, driverName
			if diff := cmp.Diff(got, tt.want); diff != "" {
				t.Errorf("(-got +want):\n%s", diff)
			}
		})
	}
}

func TestMeasureFails(t *testing.T) {
	w := start(t, nil)
	v := persistent("a", "pv")
	if _, err := w.host.Measure(t.Context(), filepath.Join(w.dir, "pods/a/volumes/kubernetes.io~csi/pv/mount")); err == nil {
		t.Error("figures of a volume that is not there")
	}
	path := w.setUp(v)
	if _, err := w.host.Measure(t.Context(), path); err != nil {
		t.Error(err)
	}
	w.driver.Fail("NodeGetVolumeStats", 1, errTrouble)
	_, err := w.host.Measure(t.Context(), path)
	wantErr(t, err, "NodeGetVolumeStats: trouble")
	for _, other := range []string{"/", w.dir, filepath.Dir(path), path + "/x", filepath.Join(w.dir, "pods/a/volumes/kubernetes.io~empty-dir/data")} {
		if _, err := w.host.Measure(t.Context(), other); !errors.Is(err, csi.ErrNoStats) {
			t.Errorf("%s: error %v", other, err)
		}
	}
	w.host.Deregister(driverName, w.driver.Endpoint())
	_, err = w.host.Measure(t.Context(), path)
	wantErr(t, err, "is not registered on this node")

	none := start(t, func(c *csidriver.Config) { c.Lacks = rpc(spec.NodeServiceCapability_RPC_GET_VOLUME_STATS) })
	if _, err := none.host.Measure(t.Context(), none.setUp(v)); !errors.Is(err, csi.ErrNoStats) {
		t.Errorf("error %v", err)
	}
}

// Calls are counted by upstream's labels.
func TestCallMetrics(t *testing.T) {
	w := start(t, nil)
	registry := prometheus.NewPedanticRegistry()
	w.metrics = registry
	w.restart()
	w.driver.Fail("NodeStageVolume", 1, status.Error(codes.NotFound, "gone"))
	if _, err := w.host.SetUp(t.Context(), persistent("a", "pv")); err == nil {
		t.Error("no error")
	}
	w.setUp(persistent("a", "pv"))
	w.setUp(persistent("b", "pv"))
	families, err := registry.Gather()
	if err != nil || len(families) != 1 || families[0].GetName() != "csi_operations_seconds" {
		t.Fatalf("series: %v, %v", families, err)
	}
	got := map[string]uint64{}
	for _, m := range families[0].GetMetric() {
		var labels []string
		for _, l := range m.GetLabel() {
			labels = append(labels, l.GetName()+"="+l.GetValue())
		}
		got[strings.Join(labels, " ")] = m.GetHistogram().GetSampleCount()
	}
	series := func(code, method string) string {
		return "driver_name=disks.example.com grpc_status_code=" + code + " method_name=/csi.v1.Node/" + method + " migrated=false"
	}
	want := map[string]uint64{
		series("OK", "NodeGetInfo"): 1, series("OK", "NodeGetCapabilities"): 1,
		series("NotFound", "NodeStageVolume"): 1, series("OK", "NodeStageVolume"): 1, series("OK", "NodePublishVolume"): 2,
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("(-got +want):\n%s", diff)
	}
}

// What is wrong with a volume, as drivers of any version say it.
func TestHealth(t *testing.T) {
	entry := func(status spec.VolumeHealthErrorType, reason, message string) *spec.VolumeHealth_VolumeHealthEntry {
		return &spec.VolumeHealth_VolumeHealthEntry{Status: status, Reason: reason, Message: message}
	}
	newer := func(c *csidriver.Config) { c.Also = rpc(spec.NodeServiceCapability_RPC_GET_VOLUME_HEALTH) }
	for _, tt := range []struct {
		name   string
		driver func(*csidriver.Config)
		old    *string
		health []*spec.VolumeHealth_VolumeHealthEntry
		want   *string
	}{
		{"it does not say", nil, nil, nil, nil},
		{"well", nil, new(""), nil, new("")},
		{"not well", nil, new("two bad disks"), nil, new("two bad disks")},
		{"well, in the newer way", newer, new("old"), nil, new("")},
		{
			"not well, in the newer way", newer, nil,
			[]*spec.VolumeHealth_VolumeHealthEntry{
				entry(spec.VolumeHealthErrorType_DEGRADED, "Rebuild", "one disk is new"), entry(spec.VolumeHealthErrorType_DATA_LOSS, "", ""),
				entry(99, "Later", "than this version"), entry(spec.VolumeHealthErrorType_INACCESSIBLE, "", "no path"),
			},
			new("Degraded (Rebuild): one disk is new; DataLoss; Inaccessible: no path"),
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := start(t, tt.driver)
			w.driver.Ail(tt.old, tt.health...)
			usage, err := w.host.Measure(t.Context(), w.setUp(persistent("a", "pv")))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(usage.Abnormal, tt.want); diff != "" {
				t.Errorf("(-got +want):\n%s", diff)
			}
		})
	}
	w := start(t, newer)
	w.driver.Fail("NodeGetVolumeHealth", 1, errTrouble)
	if usage, err := w.host.Measure(t.Context(), w.setUp(persistent("a", "pv"))); err != nil || usage.UsedBytes == nil || usage.Abnormal != nil {
		t.Errorf("a driver that cannot tell costs the figures: %+v, %v", usage, err)
	}
}
