package eviction

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func emptyDirOf(name string, limit int64, medium v1.StorageMedium) func(*subject) {
	return func(s *subject) {
		source := &v1.EmptyDirVolumeSource{Medium: medium}
		if limit >= 0 {
			source.SizeLimit = resource.NewQuantity(limit, resource.BinarySI)
		}
		s.pod.Spec.Volumes = append(s.pod.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{EmptyDir: source}})
	}
}

func mayHave(n int64) func(*subject) {
	return func(s *subject) {
		s.pod.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: *resource.NewQuantity(n, resource.BinarySI)}
	}
}

func sidecarMayHave(n int64) func(*subject) {
	return func(s *subject) {
		s.pod.Spec.InitContainers = []v1.Container{{Name: "c", RestartPolicy: new(v1.ContainerRestartPolicyAlways), Resources: v1.ResourceRequirements{
			Limits: v1.ResourceList{v1.ResourceEphemeralStorage: *resource.NewQuantity(n, resource.BinarySI)},
		}}}
		s.pod.Spec.Containers[0].Name = "other"
		s.pod.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse("1Gi")}
	}
}

func TestOverLimit(t *testing.T) {
	const pod = "Pod ephemeral local storage usage exceeds the total limit of containers 100. "
	for name, test := range map[string]struct {
		subject      subject
		layout       layout
		signal, text string
		unbounded    bool
	}{
		"no limits":                      {subjectOf("p", volume(1<<40, 1), emptyDirOf("v", -1, "")), oneDisk, "", "", true},
		"a limit of zero":                {subjectOf("p", volume(1<<40, 1), emptyDirOf("v", 0, "")), oneDisk, "", "", true},
		"an emptyDir":                    {subjectOf("p", volume(101, 1), emptyDirOf("v", 100, "")), oneDisk, "emptydirfs.limit", `Usage of EmptyDir volume "v" exceeds the limit "100". `, false},
		"just all of it":                 {subjectOf("p", volume(100, 1), emptyDirOf("v", 100, "")), oneDisk, "", "", false},
		"in memory the kernel bounds it": {subjectOf("p", volume(101, 1), emptyDirOf("v", 100, v1.StorageMediumMemory)), oneDisk, "", "", true},
		"another volume":                 {subjectOf("p", volume(101, 1), emptyDirOf("w", 100, "")), oneDisk, "", "", false},
		"all of the pod":                 {subjectOf("p", mayHave(100), volume(50, 1), layer(30, 1), logs(21, 1)), oneDisk, "ephemeralpodfs.limit", pod, false},
		"all of the pod, images apart":   {subjectOf("p", mayHave(100), volume(50, 1), layer(30, 1), logs(21, 1)), ownImages, "ephemeralpodfs.limit", pod, false},
		"within":                         {subjectOf("p", mayHave(100), volume(50, 1), layer(30, 1), logs(20, 1)), oneDisk, "", "", false},
		"a sidecar": {
			subjectOf("p", sidecarMayHave(100), layer(80, 1), logs(21, 1)), oneDisk,
			"ephemeralcontainerfs.limit", `Container c exceeded its local ephemeral storage limit "100". `, false,
		},
		"its layer does not count where images are apart": {subjectOf("p", sidecarMayHave(100), layer(80, 1), logs(21, 1)), ownImages, "", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := isBounded(test.subject.pod); got == test.unbounded {
				t.Errorf("bounded: %v", got)
			}
			signal, text := overLimit(test.subject.pod, test.subject.usage, test.layout)
			if signal != test.signal || text != test.text {
				t.Errorf("got %q, %q\nwant %q, %q", signal, text, test.signal, test.text)
			}
		})
	}
}

// TestLimits holds that pods over their limits go, all at once, though nothing is
// low, and that nobody measures the volumes of the others.
func TestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(
			subjectOf("a", volume(10, 1), emptyDirOf("v", 100, "")), subjectOf("b", mayHave(100), layer(50, 1)),
			subjectOf("critical", volume(900, 1), emptyDirOf("v", 1, ""), priority(2_000_000_000)), subjectOf("free", volume(20, 1)),
		)
		h.devices[imageDir] = 3
		r := start(t, h, hard())
		r.after(time.Minute, "")
		h.do(func() {
			h.pods["a"].usage.VolumeStats[0].FsStats = *filesystem(101, 1)
			h.pods["b"].usage.Containers[0].Rootfs = filesystem(101, 1)
		})
		r.after(10*time.Second, "", "Evicted a disrupted=false", "kill a in 1s", "Evicted b disrupted=false", "kill b in 1s")
		r.after(time.Hour, "")
		if h.counted["free"] != 0 || h.counted["critical"] != 0 || h.counted["a"] == 0 {
			t.Errorf("volumes were measured %v times", h.counted)
		}
	})
}

// TestLimitsByFiguresOfNow holds that no pod goes by figures that are stale or not there,
// and that those that take long hold up nothing.
func TestLimitsByFiguresOfNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(subjectOf("stale", volume(900, 1), emptyDirOf("v", 100, "")), subjectOf("slow", memory(10), volume(50, 1), emptyDirOf("v", 10, "")))
		h.pods["stale"].stale, h.counting = true, time.Hour
		r := start(t, h, hard("memory.available", "100"))
		r.after(time.Minute, "")
		h.do(func() { h.memory = 950 })
		r.after(30*time.Second, "MemoryPressure", "changed", "Evicted slow disrupted=true", "kill slow in 1s")
		h.do(func() { h.counting = 0 })
		r.after(time.Minute, "MemoryPressure")
		h.do(func() { h.pods["stale"].stale = false })
		r.after(20*time.Second, "MemoryPressure", "Evicted stale disrupted=false", "kill stale in 1s")
	})
}
