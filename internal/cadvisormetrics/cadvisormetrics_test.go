package cadvisormetrics

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/holdfast-dev/holdfast/internal/cgroupfs"
)

var update = flag.Bool("update", false, "write the golden file anew")

func known(n uint64) cgroupfs.Value { return cgroupfs.Value{N: n, Known: true} }

// groups are the machine, a pod, its sandbox and its container.
func groups() []Group {
	at := time.UnixMilli(1_700_000_000_123)
	reading := cgroupfs.Reading{
		Time: at, CPU: known(1_500_000_000), Memory: known(1000), WorkingSet: known(900), RSS: known(500), MemoryLimit: known(2000),
		PageFaults: known(8), MajorPageFaults: known(1), Swap: known(0), Tasks: known(12),
		CPUPressure: cgroupfs.Pressure{Known: true, Some: cgroupfs.Waits{Total: 2_000_000}, Full: cgroupfs.Waits{Total: 500_000}},
	}
	details := cgroupfs.Details{
		UserCPU: known(1e9), SystemCPU: known(5e8), Periods: known(10), ThrottledPeriods: known(4), ThrottledTime: known(25e7),
		Cache: known(300), Mapped: known(20), Kernel: known(7), MaxMemory: known(1100), LimitHits: known(0), HighHits: known(6), MemoryKept: known(64), OOMKills: known(2),
		Shares: known(512), Quota: known(30_000), Period: known(100_000), TaskLimit: known(64),
	}
	return []Group{
		{
			ID: "/", Start: time.Unix(1_600_000_000, 0), Reading: cgroupfs.Reading{Time: at, CPU: known(9e9)},
			Disks:   []Disk{{"/dev/sda1", new(uint64(40)), new(uint64(100)), new(uint64(10)), new(uint64(7))}},
			Devices: []Device{{"/dev/sda1", cgroupfs.DeviceIO{ReadBytes: 1 << 20, WriteBytes: 2 << 20, Reads: 10, Writes: 20}, &Queue{1, 2, 3 * time.Second, 4 * time.Second, 5, 6 * time.Second, 7 * time.Second}}},
			Network: []Interface{{"eth0", Traffic{1, 2, 3, 4}, Traffic{5, 6, 7, 8}}},
		},
		{ID: "/kubepods/podu", Namespace: "ns", Pod: "web", Reading: reading},
		{
			ID: "/kubepods/podu/s", Name: "s", Namespace: "ns", Pod: "web", Reading: cgroupfs.Reading{Time: at, Tasks: known(1)},
			Devices: []Device{{"/dev/sda1", cgroupfs.DeviceIO{ReadBytes: 1 << 20, WriteBytes: 2 << 20, Reads: 10, Writes: 20}, &Queue{1, 2, 3 * time.Second, 4 * time.Second, 5, 6 * time.Second, 7 * time.Second}}},
			Network: []Interface{{"eth0", Traffic{10, 20, 30, 40}, Traffic{50, 60, 70, 80}}},
		},
		{
			ID: "/kubepods/podu/c", Name: "c", Namespace: "ns", Pod: "web", Container: "app", Image: `reg.example/"app"`, Start: time.UnixMilli(1_650_000_000_500),
			Reading: reading, Details: details, Processes: known(3), Files: &Files{Open: 5, Sockets: 2, Limit: new(uint64(1024))},
			Devices: []Device{{"/dev/sda", cgroupfs.DeviceIO{ReadBytes: 4096, WriteBytes: 8192, Reads: 1, Writes: 2}, nil}},
			Disks:   []Disk{{Device: "/dev/sda1", Used: new(uint64(10))}},
		},
	}
}

var machine = &Machine{Cores: 2, MemoryBytes: 8 << 30, MachineID: "m", SystemUUID: "u", BootID: "b"}

// TestAppend is golden: a name or a label that is changed breaks dashboards.
func TestAppend(t *testing.T) {
	const file = "testdata/metrics.txt"
	got := Append([]byte("before\n"), machine, groups())
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(got), string(want)); diff != "" {
		t.Errorf("(-got +want), go test -update writes it anew:\n%s", diff)
	}
}

// TestPrometheusReadsIt holds that what is written is what was meant, by the reader that
// everybody has.
func TestPrometheusReadsIt(t *testing.T) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	got, err := parser.TextToMetricFamilies(bytes.NewReader(Append(nil, machine, groups())))
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range got {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName())
			}
			if strings.HasPrefix(name, "container_") && !slices.Equal(labels[:6], []string{"container", "id", "image", "name", "namespace", "pod"}) {
				t.Errorf("%s has labels %v", name, labels)
			}
		}
		if strings.HasSuffix(name, "_total") && name != "container_fs_inodes_total" && f.GetType().String() != "COUNTER" {
			t.Errorf("%s is a %v", name, f.GetType())
		}
	}
	app := got["container_cpu_usage_seconds_total"].GetMetric()[2]
	if image := app.GetLabel()[2].GetValue(); image != `reg.example/"app"` || app.GetCounter().GetValue() != 1.5 || app.GetTimestampMs() != 1_700_000_000_123 {
		t.Errorf("processor time: %v", app)
	}
}

func TestFamiliesAreSorted(t *testing.T) {
	for i := range families {
		if i > 0 && families[i-1].name >= families[i].name {
			t.Errorf("%s stands behind %s", families[i].name, families[i-1].name)
		}
	}
}

func TestNothingKnown(t *testing.T) {
	got := string(Append(nil, nil, []Group{{ID: "/g", Reading: cgroupfs.Reading{Time: time.Unix(1, 0)}}}))
	want := "# HELP container_last_seen When the figures were read, in seconds since 1970\n# TYPE container_last_seen gauge\n" +
		`container_last_seen{container="",id="/g",image="",name="",namespace="",pod=""} 1 1000` + "\n"
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("(-got +want):\n%s", diff)
	}
}

func BenchmarkAppend(b *testing.B) {
	one := groups()
	var all []Group
	for i := range 110 {
		for _, g := range one[1:] {
			g.ID += fmt.Sprint(i)
			all = append(all, g)
		}
	}
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		dst = Append(dst[:0], machine, all)
	}
	b.SetBytes(int64(len(dst)))
}
