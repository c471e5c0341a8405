package resourcemetrics

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

var at = metav1.NewTime(time.UnixMilli(1_700_000_000_123))

func figures(nanos, bytes, swap, swapLeft uint64) (*stats.CPUStats, *stats.MemoryStats, *stats.SwapStats) {
	return &stats.CPUStats{Time: at, UsageCoreNanoSeconds: new(nanos)}, &stats.MemoryStats{Time: at, WorkingSetBytes: new(bytes)},
		&stats.SwapStats{Time: at, SwapUsageBytes: new(swap), SwapAvailableBytes: new(swapLeft)}
}

func summary() *stats.Summary {
	var s stats.Summary
	s.Node.CPU, s.Node.Memory, s.Node.Swap = figures(1_500_000_000, 1<<30, 0, 5)
	pod := stats.PodStats{PodRef: stats.PodReference{Name: "web", Namespace: "shop", UID: "u"}}
	pod.CPU, pod.Memory, pod.Swap = figures(250_000_000, 1<<20, 4096, 0)
	c := stats.ContainerStats{Name: "app", StartTime: metav1.NewTime(time.Unix(1_600_000_000, 500_000_000))}
	c.CPU, c.Memory, c.Swap = figures(1, 12, 3, 4)
	pod.Containers = []stats.ContainerStats{c, {Name: "not-started"}}
	s.Pods = []stats.PodStats{pod, {PodRef: stats.PodReference{Name: "no-figures", Namespace: "shop"}}}
	return &s
}

// TestAppend is a golden list: a name or a label that is changed breaks dashboards.
func TestAppend(t *testing.T) {
	want := []string{
		`container_cpu_usage_seconds_total{container="app",namespace="shop",pod="web"} 1e-09 1700000000123`,
		`container_memory_working_set_bytes{container="app",namespace="shop",pod="web"} 12 1700000000123`,
		`container_start_time_seconds{container="app",namespace="shop",pod="web"} 1.6000000005e+09`,
		`container_swap_limit_bytes{container="app",namespace="shop",pod="web"} 7 1700000000123`,
		`container_swap_usage_bytes{container="app",namespace="shop",pod="web"} 3 1700000000123`,
		`node_cpu_usage_seconds_total 1.5 1700000000123`,
		`node_memory_working_set_bytes 1.073741824e+09 1700000000123`,
		`node_swap_usage_bytes 0 1700000000123`,
		`pod_cpu_usage_seconds_total{namespace="shop",pod="web"} 0.25 1700000000123`,
		`pod_memory_working_set_bytes{namespace="shop",pod="web"} 1.048576e+06 1700000000123`,
		`pod_swap_usage_bytes{namespace="shop",pod="web"} 4096 1700000000123`,
		`resource_scrape_error 0`,
	}
	text := string(Append(nil, summary(), false))
	var got []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") {
			got = append(got, strings.TrimSuffix(line, "\n"))
		}
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("series (-got +want):\n%s", diff)
	}
	// Prometheus' own parser takes it, with help and types.
	parser := expfmt.NewTextParser(model.LegacyValidation)
	parsed, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if len(parsed) != int(seriesCount) {
		t.Errorf("%d metrics, want %d", len(parsed), seriesCount)
	}
	for name, f := range parsed {
		counter := strings.HasSuffix(name, "_total")
		if f.GetHelp() == "" || counter != (f.GetType().String() == "COUNTER") {
			t.Errorf("%s: type %s, help %q", name, f.GetType(), f.GetHelp())
		}
	}
}

func TestAppendNothing(t *testing.T) {
	for name, test := range map[string]struct {
		summary *stats.Summary
		failed  bool
		want    string
	}{
		"no summary":        {nil, true, "resource_scrape_error 1\n"},
		"an empty summary":  {&stats.Summary{}, false, "resource_scrape_error 0\n"},
		"figures not known": {&stats.Summary{Node: stats.NodeStats{CPU: &stats.CPUStats{}, Memory: &stats.MemoryStats{}}}, false, "resource_scrape_error 0\n"},
	} {
		got := string(Append([]byte("before\n"), test.summary, test.failed))
		if !strings.HasPrefix(got, "before\n# HELP resource_scrape_error ") || !strings.HasSuffix(got, test.want) || strings.Count(got, "\n") != 4 {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func decode(t *testing.T, text string) ([]string, error) {
	t.Helper()
	var d Decoder
	d.Reset([]byte(text))
	var got []string
	for s := (Sample{}); d.Next(&s); {
		got = append(got, fmt.Sprintf("%s %s/%s/%s %v %d", s.Series, s.Namespace, s.Pod, s.Container, s.Value, s.TimeMillis))
	}
	return got, d.Err()
}

func TestDecode(t *testing.T) {
	got, err := decode(t, string(Append(nil, summary(), true)))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"container_cpu_usage_seconds_total shop/web/app 1e-09 1700000000123",
		"container_memory_working_set_bytes shop/web/app 12 1700000000123",
		"container_start_time_seconds shop/web/app 1.6000000005e+09 0",
		"container_swap_limit_bytes shop/web/app 7 1700000000123",
		"container_swap_usage_bytes shop/web/app 3 1700000000123",
		"node_cpu_usage_seconds_total // 1.5 1700000000123",
		"node_memory_working_set_bytes // 1.073741824e+09 1700000000123",
		"node_swap_usage_bytes // 0 1700000000123",
		"pod_cpu_usage_seconds_total shop/web/ 0.25 1700000000123",
		"pod_memory_working_set_bytes shop/web/ 1.048576e+06 1700000000123",
		"pod_swap_usage_bytes shop/web/ 4096 1700000000123",
		"resource_scrape_error // 1 0",
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("samples (-got +want):\n%s", diff)
	}
}

// TestDecodeOthers reads what other kubelets write.
func TestDecodeOthers(t *testing.T) {
	for name, test := range map[string]struct {
		text, want, err string
	}{
		"labels in another order, spaces, others": {
			"pod_cpu_usage_seconds_total { pod = \"p\" , x=\"}\", namespace=\"n\", }  3\t 5 \r\n", "pod_cpu_usage_seconds_total n/p/ 3 5", "",
		},
		"other metrics":      {"go_goroutines 7\nother{a=\"b\n\nnode_cpu_usage_seconds_total 1", "node_cpu_usage_seconds_total // 1 0", ""},
		"escapes":            {`pod_swap_usage_bytes{pod="a\\b\"c\nd",namespace="\x"} 1`, "pod_swap_usage_bytes x/a\\b\"c\nd/ 1 0", ""},
		"no number at all":   {"node_cpu_usage_seconds_total{} NaN", "node_cpu_usage_seconds_total // NaN 0", ""},
		"no value":           {"node_cpu_usage_seconds_total", "", "line 1 of the resource metrics: no value"},
		"no number":          {"\nnode_cpu_usage_seconds_total x", "", "line 2 of the resource metrics: its value is no number"},
		"time is no number":  {"node_cpu_usage_seconds_total 1 now", "", "its time is no number"},
		"labels without end": {`pod_swap_usage_bytes{pod="a"`, "", "its labels have no end"},
		"value without end":  {`pod_swap_usage_bytes{pod="a\"`, "", "a label's value has no end"},
		"no quotes":          {`pod_swap_usage_bytes{pod=a} 1`, "", "a label's value has no quotes"},
		"no equals sign":     {`pod_swap_usage_bytes{pod} 1`, "", "a label has no value"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := decode(t, test.text)
			if strings.Join(got, "\n") != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("error %v, want %q", err, test.err)
			}
		})
	}
}

// node is a full one: 110 pods of 3 containers.
func node() *stats.Summary {
	s := summary()
	pod := s.Pods[0]
	c := pod.Containers[0]
	s.Pods = nil
	for i := range 110 {
		p := pod
		p.PodRef.Name = fmt.Sprintf("pod-%d-5d4f8c7b9d-x2x4z", i)
		p.Containers = nil
		for j := range 3 {
			c.Name = fmt.Sprintf("container-%d", j)
			p.Containers = append(p.Containers, c)
		}
		s.Pods = append(s.Pods, p)
	}
	return s
}

func TestAllocatesNothing(t *testing.T) {
	s := node()
	buffer := Append(nil, s, false)
	var d Decoder
	var sample Sample
	if allocs := testing.AllocsPerRun(10, func() { buffer = Append(buffer[:0], s, false) }); allocs > 0 {
		t.Errorf("Append: %v allocations", allocs)
	}
	count := 0
	if allocs := testing.AllocsPerRun(10, func() {
		d.Reset(buffer)
		for count = 0; d.Next(&sample); count++ {
		}
	}); allocs > 0 || d.Err() != nil {
		t.Errorf("Decoder: %v allocations, %v", allocs, d.Err())
	}
	if want := 4 + 110*3 + 110*3*5; count != want {
		t.Errorf("%d samples, want %d", count, want)
	}
}

// FuzzRoundTrip holds that what is written is what is read, whatever the names.
func FuzzRoundTrip(f *testing.F) {
	f.Add("web", "shop", "app", uint64(1), uint64(2), int64(3))
	f.Add("a\\\"\n", "{},=", "\x00 #\r\\n", uint64(math.MaxUint64), uint64(0), int64(-1))
	f.Fuzz(func(t *testing.T, pod, namespace, container string, nanos, bytes uint64, millis int64) {
		when := metav1.NewTime(time.UnixMilli(millis % (1 << 50)))
		s := &stats.Summary{Pods: []stats.PodStats{{
			PodRef: stats.PodReference{Name: pod, Namespace: namespace},
			CPU:    &stats.CPUStats{Time: when, UsageCoreNanoSeconds: &nanos},
			Containers: []stats.ContainerStats{{
				Name: container, Memory: &stats.MemoryStats{Time: when, WorkingSetBytes: &bytes},
			}},
		}}}
		var d Decoder
		d.Reset(Append(nil, s, false))
		want := []Sample{
			{ContainerMemory, []byte(container), []byte(namespace), []byte(pod), float64(bytes), when.UnixMilli()},
			{PodCPU, nil, []byte(namespace), []byte(pod), float64(nanos) / 1e9, when.UnixMilli()},
			{Series: ResourceScrapeError},
		}
		var got Sample
		for _, w := range want {
			if !d.Next(&got) {
				t.Fatalf("no %s: %v", w.Series, d.Err())
			}
			if got.Series != w.Series || string(got.Container) != string(w.Container) || string(got.Namespace) != string(w.Namespace) ||
				string(got.Pod) != string(w.Pod) || got.Value != w.Value || got.TimeMillis != w.TimeMillis {
				t.Errorf("read %+v, written %+v", got, w)
			}
		}
		if d.Next(&got) || d.Err() != nil {
			t.Errorf("more: %+v, %v", got, d.Err())
		}
	})
}

func FuzzDecode(f *testing.F) {
	f.Add(Append(nil, summary(), false))
	f.Add([]byte("pod_swap_usage_bytes{pod=\"a\\"))
	f.Fuzz(func(t *testing.T, data []byte) {
		before := bytes.Clone(data)
		var d Decoder
		d.Reset(data)
		for s := (Sample{}); d.Next(&s); {
			if s.Series >= seriesCount {
				t.Errorf("series %d", s.Series)
			}
		}
		if !bytes.Equal(data, before) {
			t.Error("the data was changed")
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	s := node()
	var buffer []byte
	b.ReportAllocs()
	for b.Loop() {
		buffer = Append(buffer[:0], s, false)
	}
	b.SetBytes(int64(len(buffer)))
}

func BenchmarkDecode(b *testing.B) {
	data := Append(nil, node(), false)
	var d Decoder
	var s Sample
	b.ReportAllocs()
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		d.Reset(data)
		for d.Next(&s) {
		}
		if d.Err() != nil {
			b.Fatal(d.Err())
		}
	}
}
