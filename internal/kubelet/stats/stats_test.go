package stats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

func TestSummary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		c, stop := run(t, w.config())
		defer stop()
		first := last(t, c)
		if first.Failed || len(first.Summary.Pods) != 1 {
			t.Fatalf("failed %v, %s", first.Failed, &w.log)
		}
		if cpu := first.Summary.Pods[0].CPU; cpu.UsageNanoCores != nil || *cpu.UsageCoreNanoSeconds != 5e9 {
			t.Errorf("the first collection: %+v, want no rate", cpu)
		}
		w.set(func() { w.nanos = 7e9 })
		time.Sleep(10 * time.Second)
		synctest.Wait()
		s := last(t, c).Summary
		p := s.Pods[0]
		if got := *p.CPU.UsageNanoCores; got != 2e8 {
			t.Errorf("two seconds in ten: %d nanocores", got)
		}
		if len(p.Containers) != 1 || p.Containers[0].Name != "app" || p.Containers[0].StartTime.Unix() != 1_600_000_000 {
			t.Fatalf("containers %+v, want the newest that runs", p.Containers)
		}
		app := p.Containers[0]
		if *app.Memory.AvailableBytes != 1100 || *app.Rootfs.UsedBytes != 10 || *app.Rootfs.CapacityBytes != 100 || *app.Logs.UsedBytes != 20 {
			t.Errorf("container: %+v", app)
		}
		if e := p.EphemeralStorage; *e.UsedBytes != 10+20+1+100 || *e.InodesUsed != 1+2+1+4 || e.Time.Year() != 2000 { // the bubble's clock: the oldest of them
			t.Errorf("ephemeral storage %d bytes, %d inodes at %v", *e.UsedBytes, *e.InodesUsed, e.Time)
		}
		if *p.Network.RxBytes != 77 || p.Network.Name != "eth0" || *p.ProcessStats.ProcessCount != 3 {
			t.Errorf("network %+v, processes %d", p.Network, *p.ProcessStats.ProcessCount)
		}
		if len(p.VolumeStats) != 4 || p.VolumeStats[0].PVCRef != nil || *p.VolumeStats[1].PVCRef != (statsapi.PVCReference{Namespace: "ns", Name: "claim"}) {
			t.Errorf("volumes %+v", p.VolumeStats)
		}
		if d := p.VolumeStats[3]; *d.CapacityBytes != 7 || d.UsedBytes != nil || d.Inodes != nil {
			t.Errorf("a device: %+v, want its size alone", d)
		}
		node := s.Node
		if node.NodeName != "node" || node.StartTime.Unix() != 1_500_000_000 || *node.Memory.AvailableBytes != 4000 || *node.Memory.WorkingSetBytes != 6000 || *node.Memory.RSSBytes != 500 {
			t.Errorf("node %+v", node)
		}
		if *node.Fs.UsedBytes != 40 || *node.Fs.InodesUsed != 3 || *node.Runtime.ImageFs.UsedBytes != 33 || node.Runtime.ContainerFs == nil || *node.CPU.UsageNanoCores != 2e8 {
			t.Errorf("disks %+v, %+v", node.Fs, node.Runtime)
		}
		if got, want := systemNames(s), []string{"kubelet", "runtime", "pods"}; !slices.Equal(got, want) {
			t.Fatalf("system containers %v, want %v", got, want)
		}
		if runtime := node.SystemContainers[1]; *runtime.CPU.UsageNanoCores != 4e8 || *runtime.Memory.WorkingSetBytes != 55 || runtime.StartTime.Unix() != 1_550_000_000 {
			t.Errorf("the runtime: %+v", runtime)
		}
	})
}

// TestBrokenParts holds that what cannot be read costs its own entry alone.
func TestBrokenParts(t *testing.T) {
	for part, missing := range map[string]func(*statsapi.Summary) bool{
		"machine":        func(s *statsapi.Summary) bool { return s.Node.Rlimit == nil },
		"/":              func(s *statsapi.Summary) bool { return s.Node.CPU == nil },
		"/pods":          func(s *statsapi.Summary) bool { return slices.Equal(systemNames(s), []string{"kubelet", "runtime"}) },
		"process 0":      func(s *statsapi.Summary) bool { return slices.Equal(systemNames(s), []string{"runtime", "pods"}) },
		"process 55":     func(s *statsapi.Summary) bool { return slices.Equal(systemNames(s), []string{"kubelet", "pods"}) },
		"listener":       func(s *statsapi.Summary) bool { return slices.Equal(systemNames(s), []string{"kubelet", "pods"}) },
		"/pods/podu":     func(s *statsapi.Summary) bool { return s.Pods[0].CPU == nil },
		"/pods/podu/new": func(s *statsapi.Summary) bool { return s.Pods[0].Containers[0].CPU == nil },
		"/kubelet":       func(s *statsapi.Summary) bool { return s.Node.Fs == nil },
		"/images":        func(s *statsapi.Summary) bool { return s.Node.Runtime == nil },
		"images":         func(s *statsapi.Summary) bool { return s.Node.Runtime == nil },
		"layers":         func(s *statsapi.Summary) bool { return s.Pods[0].Containers[0].Rootfs == nil },
		"logs":           func(s *statsapi.Summary) bool { return s.Pods[0].Containers[0].Logs == nil },
		"network":        func(s *statsapi.Summary) bool { return s.Node.Network == nil && s.Pods[0].Network == nil },
	} {
		t.Run(strings.ReplaceAll(part, "/", "_"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.broken[part] = errors.New("broken")
				cfg := w.config()
				registry := prometheus.NewPedanticRegistry()
				cfg.Metrics = registry
				c, stop := run(t, cfg)
				defer stop()
				got := last(t, c)
				if !got.Failed || !missing(got.Summary) {
					t.Errorf("failed %v, summary %+v", got.Failed, got.Summary)
				}
				if text, err := c.ResourceMetrics(t.Context()); err != nil || !strings.Contains(string(text), "resource_scrape_error 1") {
					t.Errorf("resource metrics: %v\n%s", err, text)
				}
				time.Sleep(25 * time.Second)
				synctest.Wait()
				if n := strings.Count(w.log.String(), "cannot be read"); n != 1 {
					t.Errorf("told %d times:\n%s", n, &w.log)
				}
				if !slices.Contains(names(t, registry), "holdfast_stats_errors_total") {
					t.Error("it is not counted")
				}
				w.set(func() { clear(w.broken) })
				time.Sleep(10 * time.Second)
				synctest.Wait()
				if last(t, c).Failed || !strings.Contains(w.log.String(), "there again") {
					t.Errorf("mended: %s", &w.log)
				}
			})
		})
	}
}

func systemNames(s *statsapi.Summary) []string {
	var all []string
	for i := range s.Node.SystemContainers {
		all = append(all, s.Node.SystemContainers[i].Name)
	}
	return all
}

// TestRuntimeProcess holds that the runtime's process is looked for once, and again when
// another one has its number, and that one that cannot be seen is no fault.
func TestRuntimeProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		c, stop := run(t, w.config())
		defer stop()
		runtime := func() *statsapi.ContainerStats {
			time.Sleep(10 * time.Second)
			synctest.Wait()
			s := last(t, c).Summary
			for i := range s.Node.SystemContainers {
				if s.Node.SystemContainers[i].Name == "runtime" {
					return &s.Node.SystemContainers[i]
				}
			}
			return nil
		}
		looked := func() (n int) {
			w.set(func() { n = w.looked })
			return n
		}
		if got := runtime(); got == nil || *got.Memory.WorkingSetBytes != 55 || looked() != 1 {
			t.Errorf("%+v, looked for %d times", got, looked())
		}
		w.set(func() { w.starts, w.listen = 1_560_000_000, 66 })
		if got := runtime(); got == nil || *got.Memory.WorkingSetBytes != 66 || looked() != 2 {
			t.Errorf("after a restart: %+v, looked for %d times", got, looked())
		}
		w.set(func() { w.starts, w.listen = 1_570_000_000, 0 })
		if got := runtime(); got != nil || last(t, c).Failed {
			t.Errorf("a process that cannot be seen: %+v", got)
		}
	})
}

// TestCadvisor holds which groups have series, that they are read once a collection, and
// that what is gone or broken costs its own.
func TestCadvisor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.broken["files of 2"] = errors.New("it has just ended")
		c, stop := run(t, w.config())
		defer stop()
		get := func() string {
			t.Helper()
			data, err := c.CadvisorMetrics(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return string(data)
		}
		got := get()
		for _, want := range []string{
			`machine_cpu_cores{boot_id="b",machine_id="",system_uuid=""} 2`,
			`container_cpu_usage_seconds_total{container="",id="/",image="",name="",namespace="",pod="",cpu="total"} 5 946684800000`,
			`container_memory_cache{container="",id="/pods",image="",name="",namespace="",pod=""} 77`,
			`container_memory_rss{container="",id="/pods/podu",image="",name="",namespace="ns",pod="web"} 500`,
			`container_network_receive_bytes_total{container="",id="/pods/podu/sandbox",image="",name="sandbox",namespace="ns",pod="web",interface="eth0"} 77`,
			`container_network_receive_bytes_total{container="",id="/",image="",name="",namespace="",pod="",interface="eth0"} 0`,
			`container_processes{container="app",id="/pods/podu/new",image="app:1",name="new",namespace="ns",pod="web"} 3`,
			`container_file_descriptors{container="app",id="/pods/podu/new",image="app:1",name="new",namespace="ns",pod="web"} 20`,
			`container_sockets{container="app",id="/pods/podu/new",image="app:1",name="new",namespace="ns",pod="web"} 4`,
			`container_start_time_seconds{container="app",id="/pods/podu/new",image="app:1",name="new",namespace="ns",pod="web"} 1.6e+09`,
			`container_fs_usage_bytes{container="app",id="/pods/podu/new",image="app:1",name="new",namespace="ns",pod="web",device="/dev/0-1"} 10`,
			`container_fs_limit_bytes{container="",id="/",image="",name="",namespace="",pod="",device="/dev/0-1"} 100`,
			`container_fs_reads_bytes_total{container="",id="/",image="",name="",namespace="",pod="",device="/dev/0-1"} 6`,
			`container_fs_reads_bytes_total{container="app",id="/pods/podu/new",image="app:1",name="new",namespace="ns",pod="web",device="/dev/8-0"} 5`,
		} {
			if !strings.Contains(got, want) {
				t.Errorf("no %s", want)
			}
		}
		for _, not := range []string{`container_fs_reads_bytes_total{container="",id="/",image="",name="",namespace="",pod="",device="/dev/8-0"}`, `id="/pods/podu/old"`, `id="/pods/podu/ended"`} {
			if strings.Contains(got, not) {
				t.Errorf("there is %s", not)
			}
		}
		w.set(func() { w.nanos = 7e9 })
		if get() != got {
			t.Error("one collection has two answers")
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		w.set(func() { w.broken["/pods/podu"], w.broken["network"] = errors.New("broken"), errors.New("broken") })
		got = get()
		if strings.Contains(got, `id="/pods/podu"`) || strings.Contains(got, "network") || !strings.Contains(got, `id="/pods/podu/new"`) || !strings.Contains(got, `cpu="total"} 7 `) {
			t.Errorf("a broken group and network:\n%s", got)
		}
	})
}

func names(t *testing.T, registry *prometheus.Registry) []string {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, f := range families {
		all = append(all, f.GetName())
	}
	return all
}

// TestContainersDown holds that a pod whose containers are down keeps its volumes.
func TestContainersDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.down = true
		c, stop := run(t, w.config())
		defer stop()
		got := last(t, c)
		p := got.Summary.Pods[0]
		if got.Failed || len(p.VolumeStats) != 4 || p.CPU != nil || p.Containers == nil || len(p.Containers) != 0 || *p.EphemeralStorage.UsedBytes != 121 {
			t.Errorf("failed %v, pod %+v", got.Failed, p)
		}
	})
}

// TestRuntimeHangs holds that requests are answered from the last collection, however
// many there are, and that one question at a time waits.
func TestRuntimeHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		c, stop := run(t, w.config())
		defer stop()
		last(t, c)
		hang := make(chan struct{})
		w.set(func() { w.hang = hang })
		time.Sleep(12 * time.Second)
		synctest.Wait()
		began := time.Now()
		for range 50 {
			last(t, c)
		}
		var asked int
		w.set(func() { asked = w.asked })
		if since := time.Since(began); since != 0 || asked != 2 {
			t.Errorf("50 requests took %v and asked the runtime %d times", since, asked-1)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		got := last(t, c)
		if r := got.Summary.Pods[0].Containers[0].Rootfs; r == nil || r.Time.Unix() != 1_700_000_000 || !got.Failed {
			t.Errorf("the layer as last known: %+v", r)
		}
	})
}

func TestFirstIsWaitedFor(t *testing.T) {
	c := New(newWorld().config())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Last(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
}

func TestRate(t *testing.T) {
	at := time.Unix(100, 0)
	for name, test := range map[string]struct {
		last, now cpuReading
		want      *uint64
	}{
		"half a core":     {cpuReading{at, 1e9}, cpuReading{at.Add(2 * time.Second), 2e9}, new(uint64(5e8))},
		"idle":            {cpuReading{at, 1e9}, cpuReading{at.Add(time.Second), 1e9}, new(uint64(0))},
		"first":           {cpuReading{}, cpuReading{at, 1e9}, nil},
		"counter reset":   {cpuReading{at, 5e9}, cpuReading{at.Add(time.Second), 1e9}, nil},
		"no time between": {cpuReading{at, 1e9}, cpuReading{at, 2e9}, nil},
		"clock set back":  {cpuReading{at, 1e9}, cpuReading{at.Add(-time.Second), 2e9}, nil},
	} {
		if diff := cmp.Diff(rate(test.last, test.now), test.want); diff != "" {
			t.Errorf("%s (-got +want):\n%s", name, diff)
		}
	}
}

func TestAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		c, stop := run(t, w.config())
		defer stop()
		full, err := c.SummaryJSON(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		small, err := c.SummaryJSON(t.Context(), true)
		if err != nil {
			t.Fatal(err)
		}
		for name, test := range map[string]struct {
			data []byte
			want bool
		}{"full": {full, true}, "only_cpu_and_memory": {small, false}} {
			var s statsapi.Summary
			if err := json.Unmarshal(test.data, &s); err != nil {
				t.Fatal(err)
			}
			p := s.Pods[0]
			if p.CPU == nil || p.Memory == nil || s.Node.CPU == nil || p.Containers[0].Memory == nil || len(s.Node.SystemContainers) != 3 {
				t.Errorf("%s has no processor and memory", name)
			}
			others := p.VolumeStats != nil && p.Network != nil && s.Node.Fs != nil && s.Node.Rlimit != nil && p.Containers[0].Logs != nil && p.ProcessStats != nil
			if none := p.VolumeStats == nil && p.Network == nil && s.Node.Fs == nil && s.Node.Rlimit == nil && p.Containers[0].Logs == nil && p.ProcessStats == nil; others != test.want || none == test.want {
				t.Errorf("%s: others there %v, none there %v", name, others, none)
			}
		}
		if again, _ := c.SummaryJSON(t.Context(), false); &again[0] != &full[0] {
			t.Error("one collection was encoded twice")
		}
	})
}

// TestVolumeHealth holds that the Summary has what drivers say of volumes, and else
// nothing that upstream's has not.
func TestVolumeHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		c, stop := run(t, w.config())
		defer stop()
		data, err := c.SummaryJSON(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		var health struct {
			Pods []struct {
				Volume []struct {
					Name              string
					VolumeHealthStats *struct{ Abnormal *bool }
				}
			}
		}
		if err := json.Unmarshal(data, &health); err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, v := range health.Pods[0].Volume {
			got[v.Name] = "nobody says"
			if h := v.VolumeHealthStats; h != nil {
				got[v.Name] = fmt.Sprint(*h.Abnormal)
			}
		}
		want := map[string]string{"scratch": "nobody says", "data": "nobody says", "again": "false", "disk": "true"}
		if diff := cmp.Diff(got, want); diff != "" {
			t.Errorf("health (-got +want):\n%s", diff)
		}
		var s statsapi.Summary
		if err := json.Unmarshal(data, &s); err != nil {
			t.Fatal(err)
		}
		plain, err := json.Marshal(last(t, c).Summary)
		if err != nil {
			t.Fatal(err)
		}
		again, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if string(again) != string(plain) {
			t.Errorf("a reader with upstream's type has %s, want %s", again, plain)
		}
	})
}

// TestSeries is a golden list: a name or a label that is changed breaks dashboards.
func TestSeries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		cfg := w.config()
		registry := prometheus.NewPedanticRegistry()
		cfg.Metrics = registry
		c := New(cfg)
		if got := names(t, registry); len(got) != 0 {
			t.Errorf("before the first collection: %v", got)
		}
		defer begin(t, c)()
		last(t, c)
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]int{}
		for _, f := range families {
			var labels []string
			for _, l := range f.GetMetric()[0].GetLabel() {
				labels = append(labels, l.GetName())
			}
			if wrong := f.GetMetric()[0].GetGauge().GetValue(); f.GetName() == "kubelet_volume_stats_health_status_abnormal" && wrong != 1 {
				t.Errorf("a volume that is not well has %v", wrong)
			}
			got[f.GetName()+"{"+strings.Join(labels, ",")+"}"] = len(f.GetMetric())
		}
		const volume = "{method,namespace,pod,source,volume}"
		const claim = "{namespace,persistentvolumeclaim}"
		want := map[string]int{
			"kubelet_volume_stats_used_bytes" + claim: 1, "kubelet_volume_stats_inodes_used" + claim: 1, "kubelet_volume_stats_capacity_bytes" + claim: 1,
			"kubelet_volume_stats_health_status_abnormal" + claim: 1,
			"holdfast_volume_used_bytes" + volume:                 3, "holdfast_volume_inodes_used" + volume: 3, "holdfast_volume_capacity_bytes" + volume: 1,
			"holdfast_volume_age_seconds" + volume: 4, "holdfast_volume_stale" + volume: 4,
			"holdfast_pod_ephemeral_storage_used_bytes{namespace,pod}":                 1,
			"kubelet_container_log_filesystem_used_bytes{container,namespace,pod,uid}": 1,
		}
		if diff := cmp.Diff(got, want); diff != "" {
			t.Errorf("series (-got +want):\n%s", diff)
		}
	})
}
