package eviction

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/kubernetes/pkg/apis/scheduling"
)

// A subject is a pod with what it uses.
type subject struct {
	pod   *v1.Pod
	usage *stats.PodStats // nil: not known
}

// subjectOf makes one with a container called c.
func subjectOf(name string, changes ...func(*subject)) subject {
	s := subject{
		pod: &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name)},
			Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "i"}}},
		},
		usage: &stats.PodStats{Containers: []stats.ContainerStats{{Name: "c"}}},
	}
	for _, change := range changes {
		change(&s)
	}
	return s
}

func asks(name v1.ResourceName, n int64) func(*subject) {
	return func(s *subject) {
		c := &s.pod.Spec.Containers[0]
		if c.Resources.Requests == nil {
			c.Resources.Requests = v1.ResourceList{}
		}
		c.Resources.Requests[name] = *resource.NewQuantity(n, resource.BinarySI)
	}
}

func priority(n int32) func(*subject) {
	return func(s *subject) { s.pod.Spec.Priority = &n }
}

func memory(n uint64) func(*subject) {
	return func(s *subject) {
		s.usage.Memory = &stats.MemoryStats{WorkingSetBytes: &n}
		s.usage.Containers[0].Memory = s.usage.Memory
	}
}

func processes(n uint64) func(*subject) {
	return func(s *subject) { s.usage.ProcessStats = &stats.ProcessStats{ProcessCount: &n} }
}

func filesystem(bytes, files uint64) *stats.FsStats {
	return &stats.FsStats{UsedBytes: &bytes, InodesUsed: &files}
}

func layer(bytes, files uint64) func(*subject) {
	return func(s *subject) { s.usage.Containers[0].Rootfs = filesystem(bytes, files) }
}

func logs(bytes, files uint64) func(*subject) {
	return func(s *subject) { s.usage.Containers[0].Logs = filesystem(bytes, files) }
}

func volume(bytes, files uint64) func(*subject) {
	return func(s *subject) {
		s.usage.VolumeStats = append(s.usage.VolumeStats, stats.VolumeStats{Name: "v", FsStats: *filesystem(bytes, files)})
	}
}

func unknown(s *subject) { s.usage = nil }

func static(s *subject) { s.pod.Annotations = map[string]string{"kubernetes.io/config.source": "file"} }

func podLevel(n int64) func(*subject) {
	return func(s *subject) {
		s.pod.Spec.Resources = &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceMemory: *resource.NewQuantity(n, resource.BinarySI)}}
	}
}

// The layouts that there are.
var (
	oneDisk     = layout{imagesWithVolumes: true, layersWithVolumes: true, layersWithImages: true}
	ownImages   = layout{layersWithImages: true}
	splitImages = layout{layersWithVolumes: true}
)

// TestRank holds who goes first. Each order is given from the one that goes
// first; the pods come in in the opposite one.
func TestRank(t *testing.T) {
	const critical = scheduling.SystemCriticalPriority
	mem, eph := v1.ResourceMemory, v1.ResourceEphemeralStorage
	for name, test := range map[string]struct {
		signal Signal
		layout layout
		pods   []subject
		want   string
	}{
		"memory: over its request, then priority, then most over it": {
			MemoryAvailable, oneDisk,
			[]subject{
				subjectOf("besteffort-low", priority(-1), memory(10)),
				subjectOf("besteffort-high-use", memory(500)),
				subjectOf("burstable-over-by-400", asks(mem, 100), memory(500)),
				subjectOf("burstable-over-by-1", asks(mem, 100), memory(101)),
				subjectOf("over-but-important", priority(10), memory(900)),
				subjectOf("within-low", priority(-1), asks(mem, 100), memory(50)),
				subjectOf("within-by-10", asks(mem, 1000), memory(990)),
				subjectOf("exactly", asks(mem, 2000), memory(1000)),
			},
			"besteffort-low besteffort-high-use burstable-over-by-400 burstable-over-by-1 over-but-important within-low within-by-10 exactly",
		},
		"memory of all pods likewise": {
			AllocatableMemoryAvailable, oneDisk, []subject{subjectOf("much", memory(500)), subjectOf("little", memory(5))}, "much little",
		},
		"what the pod asks for as a whole": {
			MemoryAvailable, oneDisk, []subject{
				subjectOf("over", podLevel(100), memory(200)), subjectOf("within", podLevel(1000), memory(900)),
			}, "over within",
		},
		"nothing known, nothing used, critical: nobody": {
			MemoryAvailable, oneDisk, []subject{
				subjectOf("unknown", unknown), subjectOf("idle", memory(0)), subjectOf("unread"),
				subjectOf("critical", priority(critical), memory(500)), subjectOf("critical-static", static, priority(critical+1000), memory(500)),
			}, "",
		},
		"a static pod as any other": {
			MemoryAvailable, oneDisk, []subject{subjectOf("static", static, memory(500)), subjectOf("other", memory(5))}, "static other",
		},
		"process identifiers: priority, then use": {
			PIDAvailable, oneDisk, []subject{
				subjectOf("low", priority(-1), processes(1)), subjectOf("many", processes(100)), subjectOf("few", processes(2)),
				subjectOf("important", priority(5), processes(1000)),
			}, "low many few important",
		},
		"one disk: layers, logs and volumes": {
			NodeFSAvailable, oneDisk, []subject{
				subjectOf("all", layer(100, 1), logs(100, 1), volume(100, 1)), subjectOf("volumes", volume(100, 1), volume(150, 1)),
				subjectOf("logs", logs(150, 1)), subjectOf("layer", layer(100, 1)),
				subjectOf("within", asks(eph, 1000), layer(900, 1)),
			}, "all volumes logs layer within",
		},
		"one disk, seen as that of images": {
			ImageFSAvailable, oneDisk, []subject{subjectOf("volume", volume(300, 1)), subjectOf("layer", layer(200, 1))}, "volume layer",
		},
		"disk: priority before use": {
			NodeFSAvailable, oneDisk, []subject{subjectOf("low", priority(-1), volume(1, 1)), subjectOf("big", volume(100, 1))}, "low big",
		},
		"inodes: nobody asks for them": {
			NodeFSInodesFree, oneDisk, []subject{
				subjectOf("many", asks(eph, 5000), logs(1, 500), layer(1, 500)), subjectOf("few", volume(900, 3)),
			}, "many few",
		},
		"images apart: volumes and logs are on the node's": {
			NodeFSAvailable, ownImages, []subject{subjectOf("volume", volume(5, 1)), subjectOf("log", logs(4, 1)), subjectOf("layer", layer(100, 1))}, "volume log",
		},
		"images apart: layers are with them": {
			ImageFSAvailable, ownImages, []subject{subjectOf("layer", layer(5, 1)), subjectOf("volume", volume(100, 1))}, "layer",
		},
		"images apart: the layers' own signal": {
			ContainerFSInodesFree, ownImages, []subject{subjectOf("layer", layer(5, 1)), subjectOf("volume", volume(100, 1))}, "layer",
		},
		"only images apart: all of pods is on the node's": {
			NodeFSAvailable, splitImages, []subject{subjectOf("layer", layer(50, 1)), subjectOf("volume", volume(40, 1))}, "layer volume",
		},
		"only images apart: no pod has anything with them": {
			ImageFSAvailable, splitImages, []subject{subjectOf("layer", layer(50, 1)), subjectOf("volume", volume(40, 1))}, "",
		},
		"only images apart: the layers' own signal": {
			ContainerFSAvailable, splitImages, []subject{subjectOf("layer", layer(50, 1)), subjectOf("volume", volume(40, 1))}, "layer volume",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var pods []*v1.Pod
			usages := map[types.UID]*stats.PodStats{}
			for _, s := range slices.Backward(test.pods) {
				pods = append(pods, s.pod)
				usages[s.pod.UID] = s.usage
			}
			var got []string
			for _, c := range rank(test.signal, test.layout, pods, func(p *v1.Pod) (stats.PodStats, bool) {
				u := usages[p.UID]
				if u == nil {
					return stats.PodStats{}, false
				}
				return *u, true
			}) {
				got = append(got, c.pod.Name)
			}
			if strings.Join(got, " ") != test.want {
				t.Errorf("order %v, want %s", got, test.want)
			}
		})
	}
}

func TestMessage(t *testing.T) {
	gib := resource.MustParse("1Gi")
	for name, test := range map[string]struct {
		threshold   threshold
		seen        observation
		subject     subject
		want        string
		annotations map[string]string
	}{
		"memory": {
			threshold{signal: MemoryAvailable, value: amount{quantity: &gib}},
			observation{available: 512 << 20, capacity: 8 << 30},
			subjectOf("p", asks(v1.ResourceMemory, 64<<20), memory(128<<20)),
			"The node was low on resource: memory. Threshold quantity: 1Gi, available: 512Mi. Container c was using 128Mi, request is 64Mi, has larger consumption of memory. ",
			map[string]string{"offending_containers": "c", "offending_containers_usage": "128Mi", "starved_resource": "memory"},
		},
		"within its request": {
			threshold{signal: MemoryAvailable, value: amount{fraction: 0.25}},
			observation{available: 512 << 20, capacity: 8 << 30},
			subjectOf("p", asks(v1.ResourceMemory, 64<<20), memory(64<<20)),
			"The node was low on resource: memory. Threshold quantity: 2Gi, available: 512Mi. ",
			map[string]string{"offending_containers": "", "offending_containers_usage": "", "starved_resource": "memory"},
		},
		"the pod as a whole": {
			threshold{signal: MemoryAvailable, value: amount{quantity: &gib}},
			observation{available: 512 << 20, capacity: 8 << 30},
			subjectOf("p", podLevel(64<<20), memory(128<<20)),
			"The node was low on resource: memory. Threshold quantity: 1Gi, available: 512Mi. Pod p was using 128Mi, request is 64Mi, has larger consumption of memory. " +
				"Container c was using 128Mi, request is 0, has larger consumption of memory. ",
			map[string]string{
				"offending_pod": "p", "offending_pod_usage": "128Mi",
				"offending_containers": "c", "offending_containers_usage": "128Mi", "starved_resource": "memory",
			},
		},
		"disk: layer and logs of a container": {
			threshold{signal: NodeFSAvailable, value: amount{fraction: 0.1}},
			observation{available: 1 << 20, capacity: 100 << 20},
			subjectOf("p", layer(3<<20, 1), logs(1<<20, 1), volume(50<<20, 1)),
			"The node was low on resource: ephemeral-storage. Threshold quantity: 10Mi, available: 1Mi. " +
				"Container c was using 4Mi, request is 0, has larger consumption of ephemeral-storage. ",
			map[string]string{"offending_containers": "c", "offending_containers_usage": "4Mi", "starved_resource": "ephemeral-storage"},
		},
		"nobody is blamed for inodes": {
			threshold{signal: NodeFSInodesFree, value: amount{quantity: resource.NewQuantity(500, resource.DecimalSI)}},
			observation{available: 40, capacity: 1000},
			subjectOf("p", layer(3<<20, 900), logs(1, 1)),
			"The node was low on resource: inodes. Threshold quantity: 500, available: 40. ",
			map[string]string{"offending_containers": "", "offending_containers_usage": "", "starved_resource": "inodes"},
		},
		"nor for process identifiers": {
			threshold{signal: PIDAvailable, value: amount{quantity: resource.NewQuantity(2000, resource.DecimalSI)}},
			observation{available: 1999, capacity: 32768},
			subjectOf("p", processes(1200)),
			"The node was low on resource: pids. Threshold quantity: 2k, available: 1999. ",
			map[string]string{"offending_containers": "", "offending_containers_usage": "", "starved_resource": "pids"},
		},
		"an ephemeral container asks for nothing": {
			threshold{signal: MemoryAvailable, value: amount{quantity: &gib}},
			observation{available: 512 << 20, capacity: 8 << 30},
			subjectOf("p", memory(1<<20), func(s *subject) { s.usage.Containers[0].Name = "debugger" }),
			"The node was low on resource: memory. Threshold quantity: 1Gi, available: 512Mi. ",
			map[string]string{"offending_containers": "", "offending_containers_usage": "", "starved_resource": "memory"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := candidate{pod: test.subject.pod, used: uses(test.threshold.signal, oneDisk, test.subject.usage), usage: *test.subject.usage}
			got, annotations := message(test.threshold, test.seen, c)
			if got != test.want {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
			for key, value := range test.annotations {
				if annotations[key] != value {
					t.Errorf("annotation %s is %q, want %q", key, annotations[key], value)
				}
			}
			if len(annotations) != len(test.annotations) {
				t.Errorf("annotations %v", annotations)
			}
		})
	}
}
