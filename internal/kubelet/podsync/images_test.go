package podsync

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/cri/crifake"
)

func TestImages(t *testing.T) {
	const other = "reg.example/app:2"
	t.Run("pulled", func(t *testing.T) {
		w := newWorld(t, nil)
		w.fake.OfferImage(other)
		w.main().Image = other
		w.mustSync()
		w.wantRunning("main")
		got := w.eventsSoFar()
		if len(got) < 2 || got[0] != `Normal Pulling Pulling image "reg.example/app:2"` || !strings.HasPrefix(got[1], `Normal Pulled Successfully pulled image "reg.example/app:2" in `) {
			t.Errorf("got events %q", got)
		}
	})
	t.Run("not there", func(t *testing.T) {
		w := newWorld(t, nil)
		w.main().Image = other
		w.mustSync()
		w.wantWait("main", "ErrImagePull", "")
		w.wantRetry(pullSettle)
		w.wantEvents("Warning Failed Error: ErrImagePull")
		w.mustSync()
		w.wantWait("main", "ImagePullBackOff", `Back-off pulling image "reg.example/app:2": ErrImagePull: `)
		w.wantRetry(10 * time.Second)
		w.wantEvents(`Normal BackOff Back-off pulling image "reg.example/app:2"`, "Warning Failed Error: ImagePullBackOff")
		if n := len(w.fake.Calls("PullImage")); n != 1 {
			t.Errorf("got %d pulls, want 1", n)
		}
	})
	t.Run("never", func(t *testing.T) {
		w := newWorld(t, nil)
		w.fake.OfferImage(other)
		w.main().Image, w.main().ImagePullPolicy = other, v1.PullNever
		if err := w.sync(); err == nil {
			t.Error("got no error")
		}
		w.wantWait("main", "ErrImageNeverPull", `Container image "reg.example/app:2" is not present with pull policy of Never`)
	})
	t.Run("always", func(t *testing.T) {
		w := newWorld(t, nil)
		w.fake.AddImage(other)
		w.fake.OfferImage(other)
		w.main().Image, w.main().ImagePullPolicy = other, v1.PullAlways
		w.mustSync()
		if n := len(w.fake.Calls("PullImage")); n != 1 {
			t.Errorf("got %d pulls, want 1", n)
		}
	})
	t.Run("with the node's credentials, after the pod's", func(t *testing.T) {
		w := newWorld(t, nil)
		w.fake.OfferImage(other)
		var asked []string
		w.fake.Inject(crifake.Fault{Op: "PullImage", Err: errors.New("denied"), Match: func(req any) bool {
			asked = append(asked, req.(*runtimeapi.PullImageRequest).GetAuth().GetUsername())
			return asked[len(asked)-1] != "node"
		}})
		secret := func(user string) *v1.Secret {
			return &v1.Secret{Type: v1.SecretTypeDockerConfigJson, Data: map[string][]byte{
				v1.DockerConfigJsonKey: []byte(`{"auths":{"reg.example":{"username":"` + user + `"}}}`),
			}}
		}
		w.puller.keyring.node = func() ([]*v1.Secret, error) { return []*v1.Secret{secret("node")}, errors.New("a file is gone") }
		w.main().Image = other
		w.pod.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: "a"}}
		w.secrets["a"] = secret("pod")
		w.mustSync()
		w.wantRunning("main")
		w.wantEvents("Warning FailedToRetrieveImagePullSecret Unable to use some of the node's own image credentials: a file is gone")
		if !slices.Equal(asked, []string{"pod", "node"}) {
			t.Errorf("asked with %q", asked)
		}
	})
	t.Run("came another way meanwhile", func(t *testing.T) {
		w := newWorld(t, nil)
		w.fake.Inject(crifake.Fault{Op: "PullImage", Err: errors.New("no such host"), Match: func(any) bool {
			w.fake.AddImage(other) // an archive is imported while the registry is asked
			return true
		}})
		w.main().Image = other
		w.mustSync()
		w.wantRunning("main")
	})
	t.Run("always, and it is there", func(t *testing.T) {
		w := newWorld(t, nil)
		w.fake.AddImage(other)
		w.main().Image, w.main().ImagePullPolicy = other, v1.PullAlways
		w.mustSync()
		w.wantWait("main", "ErrImagePull", "imagePullPolicy IfNotPresent would use it")
	})
	t.Run("always, and the pod ran with it before a start without the API", func(t *testing.T) {
		for _, test := range []struct {
			name    string
			offline bool
			ran     func(id string) []v1.ContainerStatus
			starts  bool
		}{
			{"with this image", true, func(id string) []v1.ContainerStatus { return []v1.ContainerStatus{{Name: "main", ImageID: id}} }, true},
			{"with another", true, func(string) []v1.ContainerStatus {
				return []v1.ContainerStatus{{Name: "main", ImageID: "sha256:other"}}
			}, false},
			{"another container", true, func(id string) []v1.ContainerStatus { return []v1.ContainerStatus{{Name: "side", ImageID: id}} }, false},
			{"it never ran", true, func(string) []v1.ContainerStatus { return nil }, false},
			{"the API is there", false, func(id string) []v1.ContainerStatus { return []v1.ContainerStatus{{Name: "main", ImageID: id}} }, false},
		} {
			t.Run(test.name, func(t *testing.T) {
				w := newWorld(t, func(c *Config) { c.Offline = func(types.UID) bool { return test.offline } })
				w.fake.AddImage(other)
				image, err := w.cfg.Runtime.Image(t.Context(), other)
				if err != nil {
					t.Fatal(err)
				}
				w.main().Image, w.main().ImagePullPolicy = other, v1.PullAlways
				w.pod.Status.ContainerStatuses = test.ran(image.GetId())
				w.mustSync()
				if test.starts {
					w.wantRunning("main")
				} else {
					w.wantWait("main", "ErrImagePull", "imagePullPolicy IfNotPresent would use it")
				}
			})
		}
	})
	t.Run("no name", func(t *testing.T) {
		w := newWorld(t, nil)
		w.main().Image = "A B"
		if err := w.sync(); err == nil {
			t.Error("got no error")
		}
		w.wantWait("main", "InvalidImageName", `Failed to apply default image tag "A B": couldn't parse image name`)
	})
	t.Run("with secrets", func(t *testing.T) {
		w := newWorld(t, nil)
		w.fake.OfferImage(other)
		w.fake.Inject(crifake.Fault{Op: "PullImage", Err: errors.New("denied"), Match: func(req any) bool {
			return req.(*runtimeapi.PullImageRequest).GetAuth().GetUsername() != "ann"
		}})
		w.main().Image = other
		w.pod.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: "a"}, {Name: "none"}}
		w.secrets["a"] = &v1.Secret{Type: v1.SecretTypeDockerConfigJson, Data: map[string][]byte{
			v1.DockerConfigJsonKey: []byte(`{"auths":{"reg.example/app":{"username":"bob"},"reg.example":{"username":"ann"}}}`),
		}}
		w.mustSync()
		w.wantRunning("main")
		w.wantEvents("Warning FailedToRetrieveImagePullSecret Unable to retrieve some image pull secrets (none); attempting to pull the image may not succeed.")
	})
}

func TestOnePullAtATime(t *testing.T) {
	const other = "reg.example/app:2"
	w := newWorld(t, nil)
	w.fake.OfferImage(other)
	back := w.fake.Inject(crifake.Fault{Op: "PullImage", Hang: true})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ensure := func(ctx context.Context, name string) <-chan error {
		done := make(chan error, 1)
		pod := w.pod.DeepCopy()
		pod.Name, pod.UID = name, types.UID(name)
		go func() {
			_, err := w.puller.ensure(ctx, pod, &v1.Container{Name: "c", Image: other}, nil)
			done <- err
		}()
		return done
	}
	first := ensure(ctx, "p1")
	for len(w.fake.Calls("PullImage")) == 0 {
		<-time.After(time.Millisecond)
	}
	second, third := ensure(ctx, "p2"), ensure(t.Context(), "p3")
	for !w.puller.hasUsers(other, 3) {
		<-time.After(time.Millisecond)
	}
	cancel()
	for _, done := range []<-chan error{first, second} {
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want context.Canceled", err)
		}
	}
	for len(w.fake.Calls("PullImage")) < 2 {
		<-time.After(time.Millisecond)
	}
	back()
	if err := <-third; err != nil {
		t.Errorf("third: %v", err)
	}
	if n := len(w.fake.Calls("PullImage")); n != 2 {
		t.Errorf("got %d pulls, want 2: the cancelled one and one more", n)
	}
	if len(w.puller.mu.turns) != 0 {
		t.Errorf("%d turns are left", len(w.puller.mu.turns))
	}
}

func (p *puller) hasUsers(ref string, n int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.mu.turns[ref]
	return t != nil && t.users == n
}
