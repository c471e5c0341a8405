package nodestatus

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestLargest(t *testing.T) {
	image := func(id string, size uint64, names ...string) *runtimeapi.Image {
		return &runtimeapi.Image{Id: id, Size: size, RepoTags: names, RepoDigests: []string{"d@" + id}}
	}
	list := []*runtimeapi.Image{image("a", 1, "a:1"), image("b", 3, "b:1", "b:2", "b:3", "b:4", "b:5"), image("c", 1, "c:1"), image("d", 2)}
	for most, want := range map[int]string{
		-1: "[d@b b:1 b:2 b:3 b:4]=3 [d@d]=2 [d@c c:1]=1 [d@a a:1]=1",
		0:  "",
		1:  "[d@b b:1 b:2 b:3 b:4]=3",
		3:  "[d@b b:1 b:2 b:3 b:4]=3 [d@d]=2 [d@c c:1]=1",
		9:  "[d@b b:1 b:2 b:3 b:4]=3 [d@d]=2 [d@c c:1]=1 [d@a a:1]=1",
	} {
		var got []string
		for _, image := range largest(list, most) {
			got = append(got, fmt.Sprintf("%v=%d", image.Names, image.SizeBytes))
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("%d: %s, want %s", most, text, want)
		}
	}
	if list[0].GetId() != "a" {
		t.Error("the runtime's list was sorted")
	}
}

// TestImagesFollow holds that new images are reported within a minute, and that those
// known stay while the runtime does not answer.
func TestImagesFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := newRig()
		reporter := rig.start(t)
		<-reporter.Ready()
		rig.runtime.mu.Lock()
		rig.runtime.images = []*runtimeapi.Image{{Id: "a", Size: 7, RepoTags: []string{"a:1"}}}
		rig.runtime.mu.Unlock()
		after(45 * time.Second)
		rig.runtime.set(errDown, false, true)
		after(5 * time.Minute)
		if got := rig.api.current().Status.Images; len(got) != 1 || got[0].SizeBytes != 7 {
			t.Errorf("images %+v", got)
		}
	})
}

func TestMaxPods(t *testing.T) {
	has := v1.ResourceList{v1.ResourceCPU: resource.MustParse("4")}
	for _, tt := range []struct{ most, perCore, want int64 }{{110, 0, 110}, {110, 10, 40}, {110, 100, 110}, {5, 10, 5}} {
		if got := maxPods(Config{MaxPods: tt.most, PodsPerCore: tt.perCore}, has); got != tt.want {
			t.Errorf("%+v: %d", tt, got)
		}
	}
}

func TestDevices(t *testing.T) {
	q := resource.MustParse
	status := &v1.NodeStatus{Allocatable: v1.ResourceList{"example.org/b": q("3")}, Capacity: v1.ResourceList{"example.org/b": q("3")}}
	apply(status, Config{}.withDefaults(), facts{
		has:            v1.ResourceList{v1.ResourceCPU: q("2")},
		deviceCapacity: v1.ResourceList{"example.org/a": q("4")}, deviceAllocatable: v1.ResourceList{"example.org/a": q("3")}, deviceRemoved: []string{"example.org/b"},
	})
	for name, want := range map[v1.ResourceName][2]int64{"example.org/a": {4, 3}, "example.org/b": {0, 0}, "pods": {110, 110}} {
		capacity, allocatable := status.Capacity[name], status.Allocatable[name]
		if got := [2]int64{capacity.Value(), allocatable.Value()}; got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

func TestIsExtended(t *testing.T) {
	for name, want := range map[v1.ResourceName]bool{
		"cpu": false, "hugepages-2Mi": false, "example.org/gpu": true, "kubernetes.io/x": false, "a.kubernetes.io/x": false, "requests.example.org/x": false,
	} {
		if got := isExtended(name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestSpreadReports holds that reports of an unchanged status are spread after a
// change, and regular after that.
func TestSpreadReports(t *testing.T) {
	for jitter, want := range map[float64]time.Duration{0: 150 * time.Second, 0.999: 450 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			rig := newRig()
			rig.jitter = func() float64 { return jitter }
			reporter := rig.start(t)
			<-reporter.Ready()
			patches := rig.api.count("patch node status")
			next := func() time.Duration {
				began := time.Now()
				for rig.api.count("patch node status") == patches {
					after(time.Second)
				}
				patches++
				return time.Since(began)
			}
			if got := next(); got < want-15*time.Second || got > want+15*time.Second {
				t.Errorf("jitter %v: %v after the change, want about %v", jitter, got, want)
			}
			if got := next(); got < 5*time.Minute-time.Second || got > 5*time.Minute+15*time.Second {
				t.Errorf("jitter %v: %v later the next, want 5m", jitter, got)
			}
		})
	}
}
