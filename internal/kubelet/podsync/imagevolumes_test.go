package podsync

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podfiles"
)

func TestImageVolumes(t *testing.T) {
	const data = "reg.example/data:1"
	// with returns a world whose pod has an image as a volume, which main mounts.
	with := func(t *testing.T, change func(*Config)) *world {
		w := newWorld(t, change)
		w.pod.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: data, PullPolicy: v1.PullIfNotPresent}}}}
		w.main().VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: "/data"}, {Name: "v", MountPath: "/part", SubPath: "a/b"}}
		return w
	}
	t.Run("pulled and mounted", func(t *testing.T) {
		w := with(t, nil)
		w.fake.OfferImage(data)
		w.mustSync()
		w.wantRunning("main")
		var got []string
		for _, m := range w.fake.Config(w.newest("main").ID).GetMounts() {
			if image := m.GetImage(); image != nil {
				got = append(got, fmt.Sprintf("%s %s %q %q ro=%v", m.GetContainerPath(), image.GetUserSpecifiedImage(), m.GetImageSubPath(), m.GetHostPath(), m.GetReadonly()))
				if image.GetImage() == "" {
					t.Error("the runtime is not told which image it has")
				}
			}
		}
		want := fmt.Sprintf("[/data %[1]s \"\" \"\" ro=true /part %[1]s \"a/b\" \"\" ro=true]", data)
		if fmt.Sprint(got) != want {
			t.Errorf("mounts %v, want %s", got, want)
		}
		if n := len(w.fake.Calls("PullImage")); n != 1 || len(w.parts) > 0 {
			t.Errorf("got %d pulls, and parts of volumes %v", n, w.parts)
		}
		w.wantEvents(`Normal Pulling Pulling image "reg.example/data:1"`)
	})
	t.Run("not there", func(t *testing.T) {
		w := with(t, nil)
		w.pod.Spec.Containers = append(w.pod.Spec.Containers, v1.Container{Name: "other", Image: image})
		w.mustSync()
		w.wantRunning("other") // which does not mount it
		w.wantWait("main", "ErrImagePull", "")
		w.wantRetry(pullSettle)
		w.mustSync()
		w.wantWait("main", "ImagePullBackOff", `Back-off pulling image "reg.example/data:1": ErrImagePull: `)
		w.fake.AddImage(data)
		w.mustSync()
		w.wantRunning("main other")
	})
	t.Run("never", func(t *testing.T) {
		w := with(t, nil)
		w.pod.Spec.Volumes[0].Image.PullPolicy = v1.PullNever
		if err := w.sync(); err == nil {
			t.Error("got no error")
		}
		w.wantWait("main", "ErrImageNeverPull", `Container image "reg.example/data:1" is not present with pull policy of Never`)
	})
	t.Run("no image", func(t *testing.T) {
		w := with(t, nil)
		w.pod.Spec.Volumes[0].Image.Reference = "UPPER CASE"
		if err := w.sync(); err == nil {
			t.Error("got no error")
		}
		w.wantWait("main", "InvalidImageName", "")
	})
	for runtime, can := range map[string]bool{"containerd://1.6.20~ds1": false, "containerd://2.0.5": false, "containerd://2.1.0-rc.1": true, "cri-o://1.29.0": true, "": true} {
		t.Run("runtime "+runtime, func(t *testing.T) {
			w := with(t, func(c *Config) {
				node := c.Node()
				node.RuntimeVersion = runtime
				c.Node = func() *podfiles.Node { return node }
			})
			w.fake.AddImage(data)
			w.mustSync()
			if can {
				w.wantRunning("main")
				return
			}
			w.wantRunning("")
			w.wantWait("main", "CreateContainerConfigError", "cannot mount an image as a volume")
			if n := len(w.fake.Calls("PullImage")); n > 0 || !strings.Contains(w.waits["main"].Message, "containerd") {
				t.Errorf("%d pulls, %q", n, w.waits["main"].Message)
			}
		})
	}
}

// TestReadOnlyVolume holds that the runtime is told of a volume that is read-only
// as a whole: it would make a mount that does not say so writable.
func TestReadOnlyVolume(t *testing.T) {
	w := newWorld(t, nil)
	w.paths["disk"], w.paths["other"] = "/volumes/disk", "/volumes/other"
	w.main().VolumeMounts = []v1.VolumeMount{{Name: "disk", MountPath: "/disk"}, {Name: "other", MountPath: "/other"}}
	w.readOnly = "disk"
	w.mustSync()
	for _, m := range w.fake.Config(w.newest("main").ID).GetMounts() {
		if strings.HasPrefix(m.GetHostPath(), "/volumes") && m.GetReadonly() != (m.GetContainerPath() == "/disk") {
			t.Errorf("mount %s is read-only: %v", m.GetContainerPath(), m.GetReadonly())
		}
	}
}
