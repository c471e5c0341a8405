package figures

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/holdfast-dev/holdfast/internal/cli"
)

var now = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

// summaries are those of two nodes; a third does not answer.
func summaries() map[string]*statsapi.Summary {
	pod := func(name string, nanoCores, memory, storage uint64, volumes ...statsapi.VolumeStats) statsapi.PodStats {
		return statsapi.PodStats{
			PodRef: statsapi.PodReference{Namespace: "default", Name: name},
			Containers: []statsapi.ContainerStats{
				{Name: "side", Logs: &statsapi.FsStats{UsedBytes: new(uint64(8192))}},
				{Name: "app", CPU: &statsapi.CPUStats{UsageNanoCores: &nanoCores}, Memory: &statsapi.MemoryStats{WorkingSetBytes: &memory}, Rootfs: &statsapi.FsStats{UsedBytes: &storage}, Logs: &statsapi.FsStats{UsedBytes: new(uint64(4096))}},
			},
			CPU: &statsapi.CPUStats{UsageNanoCores: &nanoCores}, Memory: &statsapi.MemoryStats{WorkingSetBytes: &memory},
			EphemeralStorage: &statsapi.FsStats{UsedBytes: &storage, InodesUsed: new(uint64(12))}, VolumeStats: volumes,
		}
	}
	volume := func(name string, used, left uint64, age time.Duration) statsapi.VolumeStats {
		return statsapi.VolumeStats{Name: name, FsStats: statsapi.FsStats{
			Time: ago(age), UsedBytes: &used, AvailableBytes: &left, CapacityBytes: new(uint64(100 << 30)), InodesUsed: new(used >> 20), InodesFree: new(uint64(1000)),
		}}
	}
	claim := volume("data", 30<<30, 10<<30, time.Minute)
	claim.PVCRef = &statsapi.PVCReference{Namespace: "default", Name: "data-db"}
	other := pod("agent", 1e6, 5<<20, 0)
	other.PodRef.Namespace, other.CPU, other.EphemeralStorage = "system", nil, nil
	return map[string]*statsapi.Summary{
		"a": {
			Node: statsapi.NodeStats{
				NodeName: "a", CPU: &statsapi.CPUStats{UsageNanoCores: new(uint64(1_500_400_000))}, Memory: &statsapi.MemoryStats{WorkingSetBytes: new(uint64(3 << 30))},
				Fs:     &statsapi.FsStats{UsedBytes: new(uint64(60 << 30)), AvailableBytes: new(uint64(40 << 30)), CapacityBytes: new(uint64(100 << 30)), InodesUsed: new(uint64(7))},
				Rlimit: &statsapi.RlimitStats{NumOfRunningProcesses: new(int64(321))}, Runtime: &statsapi.RuntimeStats{ImageFs: &statsapi.FsStats{UsedBytes: new(uint64(5 << 30))}},
			},
			Pods: []statsapi.PodStats{
				pod("web", 250e6, 40<<20, 4096, volume("scratch", 3<<20, 5<<20, 12*time.Second), volume("config", 4096, 40<<30, 50*time.Second)),
				pod("db", 20e6, 900<<20, 100<<20, claim), other,
			},
		},
		"b": {Node: statsapi.NodeStats{NodeName: "b"}, Pods: []statsapi.PodStats{}},
	}
}

const metricsOfA = `# HELP other not ours
other{namespace="default"} 1
# TYPE holdfast_volume_stale gauge
holdfast_volume_stale{method="quota",namespace="default",pod="web",source="emptyDir",volume="scratch"} 0
holdfast_volume_stale{method="walk",namespace="default",pod="web",source="configMap",volume="config"} 1
holdfast_volume_stale_or_so 1
`

// cluster serves the API of nodes a, b and c.
func cluster(t *testing.T) *Source {
	t.Helper()
	mux := http.NewServeMux()
	answer := func(path string, v any) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if err := json.NewEncoder(w).Encode(v); err != nil {
				t.Error(err)
			}
		})
	}
	node := func(name string) v1.Node {
		return v1.Node{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: name},
			Status: v1.NodeStatus{Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("4Gi")}},
		}
	}
	list := v1.NodeList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}}
	for _, name := range []string{"a", "b", "c"} {
		list.Items = append(list.Items, node(name))
		answer("/api/v1/nodes/"+name, node(name))
	}
	answer("/api/v1/nodes", list)
	answer("/api/v1/namespaces/default/pods/new", v1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "new"}})
	for name, s := range summaries() {
		answer("/api/v1/nodes/"+name+"/proxy/stats/summary", s)
	}
	mux.HandleFunc("GET /api/v1/nodes/a/proxy/metrics", func(w http.ResponseWriter, _ *http.Request) {
		if _, err := w.Write([]byte(metricsOfA)); err != nil {
			t.Error(err)
		}
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	api, err := corev1.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return New(api)
}

// TestReport holds what is asked for, and that a node that does not answer costs its
// own rows.
func TestReport(t *testing.T) {
	source := cluster(t)
	for name, test := range map[string]struct {
		scope                Scope
		nodes, pods, volumes string
		failed               int
	}{
		"all":             {Scope{Volumes: true}, "a b", "web db agent", "scratch:emptyDir/quota config:configMap/walk/stale data:persistentVolumeClaim/", 1},
		"without methods": {Scope{}, "a b", "web db agent", "scratch:/ config:/ data:persistentVolumeClaim/", 1},
		"one namespace":   {Scope{Namespace: "system"}, "a b", "agent", "", 1},
		"one pod":         {Scope{Namespace: "default", Pod: "db"}, "a b", "db", "data:persistentVolumeClaim/", 1},
		"one node":        {Scope{Node: "b"}, "b", "", "", 0},
		"one that is not": {Scope{Node: "c"}, "", "", "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := source.Report(t.Context(), test.scope)
			if err != nil {
				t.Fatal(err)
			}
			var nodes, pods, volumes []string
			for _, n := range r.Nodes {
				nodes = append(nodes, n.NodeName)
			}
			for _, p := range r.Pods {
				pods = append(pods, p.PodRef.Name)
			}
			for _, v := range r.Volumes {
				text := fmt.Sprintf("%s:%s/%s", v.Name, v.Kind, v.Method)
				if v.Stale {
					text += "/stale"
				}
				volumes = append(volumes, text)
			}
			got := []string{strings.Join(nodes, " "), strings.Join(pods, " "), strings.Join(volumes, " ")}
			if diff := cmp.Diff(got, []string{test.nodes, test.pods, test.volumes}); diff != "" {
				t.Errorf("nodes, pods and volumes (-got +want):\n%s", diff)
			}
			if len(r.Failed) != test.failed || test.failed > 0 && !strings.Contains(r.Failed[0].Error(), "node c: ") {
				t.Errorf("failed: %v, want %d", r.Failed, test.failed)
			}
		})
	}
	if _, err := source.Report(t.Context(), Scope{Node: "none"}); err == nil || !strings.Contains(err.Error(), "get node none") {
		t.Errorf("a node that is not there: %v", err)
	}
	if _, err := source.Report(t.Context(), Scope{Namespace: "default", Pod: "none"}); err == nil || !strings.Contains(err.Error(), "get pod default/none: ") {
		t.Errorf("a pod that is not there: %v", err)
	}
	if r, err := source.Report(t.Context(), Scope{Namespace: "default", Pod: "new"}); err != nil || len(r.Pods) != 0 {
		t.Errorf("a pod that has no figures yet: %v, %v; want none, and no error", r, err)
	}
}

// TestPrint holds the tables, each in an order of its own.
func TestPrint(t *testing.T) {
	var r *Report // of each case its own: they sort it
	source := cluster(t)
	for name, test := range map[string]struct {
		print func(*bytes.Buffer) error
		want  string
	}{
		"nodes": {func(b *bytes.Buffer) error {
			SortNodes(r.Nodes, "cpu")
			return PrintNodes(b, r.Nodes, cli.Wide)
		}, `
NODE   CPU     CPU%   MEMORY   MEMORY%   DISK   SIZE    FULL               INODES   IMAGES   PROCESSES   SWAP
a      1500m   37%    3.0Gi    75%       60Gi   100Gi   [######----] 60%   7        5.0Gi    321         -
b      -       -      -        -         -      -       -                  -        -        -           -
`},
		"pods": {func(b *bytes.Buffer) error {
			SortPods(r.Pods, "memory")
			return PrintPods(b, r.Pods, cli.Table)
		}, `
NAMESPACE   POD     CPU    MEMORY   STORAGE
default     db      20m    900Mi    100Mi
default     web     250m   40Mi     4.0Ki
system      agent   -      5.0Mi    -
`},
		"pods, wide": {func(b *bytes.Buffer) error {
			SortPods(r.Pods, "cpu")
			return PrintPods(b, r.Pods[:1], cli.Wide)
		}, `
NAMESPACE   POD   CPU    MEMORY   STORAGE   INODES   SWAP   PROCESSES   RECEIVED   SENT   NODE
default     web   250m   40Mi     4.0Ki     12       -      -           -          -      a
`},
		"containers": {func(b *bytes.Buffer) error {
			all := Containers(r.Pods[:2])
			SortContainers(all, "name")
			return PrintContainers(b, all, cli.Table)
		}, `
NAMESPACE   POD   CONTAINER   CPU    MEMORY   STORAGE
default     db    app         20m    900Mi    100Mi
default     db    side        -      -        8.0Ki
default     web   app         250m   40Mi     8.0Ki
default     web   side        -      -        8.0Ki
`},
		"containers, wide": {func(b *bytes.Buffer) error {
			all := Containers(r.Pods)
			SortContainers(all, "storage")
			return PrintContainers(b, all[:1], cli.Wide)
		}, `
NAMESPACE   POD   CONTAINER   CPU   MEMORY   STORAGE   SWAP   NODE
default     db    app         20m   900Mi    100Mi     -      a
`},
		"volumes": {func(b *bytes.Buffer) error {
			SortVolumes(r.Volumes, "full")
			return PrintVolumes(b, r.Volumes, cli.Table, now)
		}, `
NAMESPACE   POD   VOLUME    KIND                    USED    SIZE    FULL               INODES   METHOD   AGE
default     db    data      persistentVolumeClaim   30Gi    100Gi   [########--] 75%   30720    -        60s
default     web   scratch   emptyDir                3.0Mi   100Gi   [####------] 37%   3        quota    12s
default     web   config    configMap               4.0Ki   100Gi   [#---------] 0%    0        walk     50s stale
`},
		"volumes, wide": {func(b *bytes.Buffer) error {
			SortVolumes(r.Volumes, "used")
			return PrintVolumes(b, r.Volumes[:1], cli.Wide, now)
		}, `
NAMESPACE   POD   VOLUME   KIND                    USED   SIZE    FULL               INODES   METHOD   AGE   AVAILABLE   INODES FREE   CLAIM     NODE
default     db    data     persistentVolumeClaim   30Gi   100Gi   [########--] 75%   30720    -        60s   10Gi        1000          data-db   a
`},
		"none": {func(b *bytes.Buffer) error { return PrintVolumes(b, nil, cli.Table, now) }, "\nNo figures of volumes.\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var err error
			if r, err = source.Report(t.Context(), Scope{Volumes: true}); err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			if err := test.print(&b); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(b.String(), test.want[1:]); diff != "" {
				t.Errorf("(-got +want):\n%s", diff)
			}
		})
	}
}

// TestJSON holds that the fields are the Summary's own.
func TestJSON(t *testing.T) {
	r, err := cluster(t).Report(t.Context(), Scope{Volumes: true})
	if err != nil {
		t.Fatal(err)
	}
	SortVolumes(r.Volumes, "used")
	var b bytes.Buffer
	if err := PrintVolumes(&b, r.Volumes[1:2], cli.JSON, now); err != nil {
		t.Fatal(err)
	}
	want := `[
  {
    "nodeName": "a",
    "podRef": {
      "name": "web",
      "namespace": "default",
      "uid": ""
    },
    "kind": "emptyDir",
    "method": "quota",
    "time": "2026-05-01T11:59:48Z",
    "availableBytes": 5242880,
    "capacityBytes": 107374182400,
    "usedBytes": 3145728,
    "inodesFree": 1000,
    "inodesUsed": 3,
    "name": "scratch"
  }
]
`
	if diff := cmp.Diff(b.String(), want); diff != "" {
		t.Errorf("(-got +want):\n%s", diff)
	}
	b.Reset()
	if err := PrintNodes(&b, r.Nodes[1:], cli.YAML); err != nil || !strings.HasPrefix(b.String(), "- allocatable:\n    cpu: \"4\"\n    memory: 4Gi\n  nodeName: b\n") {
		t.Errorf("%v: %s", err, &b)
	}
}

func TestOrders(t *testing.T) {
	volumes := func() []Volume {
		known := func(name string, n uint64, age time.Duration) Volume {
			return Volume{VolumeStats: statsapi.VolumeStats{Name: name, FsStats: statsapi.FsStats{
				Time: ago(age), UsedBytes: &n, CapacityBytes: &n, InodesUsed: &n, AvailableBytes: new(uint64(10)),
			}}}
		}
		return []Volume{{VolumeStats: statsapi.VolumeStats{Name: "unknown"}}, known("small", 1, time.Hour), known("large", 5, time.Second)}
	}
	for by, want := range map[string]string{
		"name": "large small unknown", "used": "large small unknown", "size": "large small unknown", "full": "large small unknown",
		"inodes": "large small unknown", "age": "small large unknown",
	} {
		all := volumes()
		SortVolumes(all, by)
		if got := all[0].Name + " " + all[1].Name + " " + all[2].Name; got != want {
			t.Errorf("by %s: %s, want %s", by, got, want)
		}
		if err := CheckOrder(by, VolumeOrders); err != nil {
			t.Error(err)
		}
	}
	if err := CheckOrder("disk", VolumeOrders); err == nil || !strings.Contains(err.Error(), `"disk": want one of name, used`) {
		t.Errorf("an order that is none: %v", err)
	}
}

func TestSize(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0", 1023: "1023", 1024: "1.0Ki", 10239: "9.9Ki", 10240: "10Ki", 1<<20 - 1: "1023Ki", 1 << 20: "1.0Mi", 1<<64 - 1: "16Ei",
	} {
		if got := size(&n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

func TestBar(t *testing.T) {
	for part, want := range map[float64]string{0: "[----------] 0%", 0.001: "[#---------] 0%", 0.5: "[#####-----] 50%", 0.999: "[##########] 99%", 1: "[##########] 100%"} {
		if got := bar(figure{part, true}); got != want {
			t.Errorf("%v: %s, want %s", part, got, want)
		}
	}
	if got := bar(figure{}); got != "" {
		t.Errorf("what is not known is %q", got)
	}
}

// FuzzParseMeasured holds that nothing that a kubelet says ends the program.
func FuzzParseMeasured(f *testing.F) {
	f.Add([]byte(metricsOfA))
	f.Add([]byte("holdfast_volume_stale{} 1\nholdfast_volume_stale{volume=\"a\"} NaN\n"))
	f.Add([]byte(`holdfast_volume_stale{volume="` + "\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if got := parseMeasured(data); len(got) > bytes.Count(data, []byte(measuredSeries)) {
			t.Errorf("%d volumes of %q", len(got), data)
		}
	})
}
