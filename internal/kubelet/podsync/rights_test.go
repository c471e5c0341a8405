package podsync

import (
	"context"
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/cri/crifake"
	"github.com/holdfast-dev/holdfast/internal/kubelet/imagerights"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podfiles"
	"github.com/holdfast-dev/holdfast/internal/kubelet/pullrecords"
)

const private = "reg.example/app:2"

// rightsWorld is a world whose registry gives an image only to ann, and whose
// node remembers pulls.
type rightsWorld struct {
	*world
	dir string
}

func newRightsWorld(t *testing.T, verify imagerights.Policy, change func(*Config)) rightsWorld {
	w := rightsWorld{dir: t.TempDir()}
	w.world = newWorld(t, func(c *Config) {
		c.Records, c.Pulls.Verify = w.records(t), verify
		if change != nil {
			change(c)
		}
	})
	w.fake.OfferImage(private)
	w.fake.Inject(crifake.Fault{Op: "PullImage", Err: errors.New("denied"), Match: func(req any) bool {
		return req.(*runtimeapi.PullImageRequest).GetAuth().GetUsername() != "ann"
	}})
	w.secrets["a"] = pullSecret("a", "ann")
	w.main().Image = private
	return w
}

func (w *rightsWorld) records(t *testing.T) records {
	t.Helper()
	store, err := pullrecords.New(w.dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func pullSecret(name, user string) *v1.Secret {
	s := &v1.Secret{Type: v1.SecretTypeDockerConfigJson, Data: map[string][]byte{
		v1.DockerConfigJsonKey: []byte(`{"auths":{"reg.example":{"username":"` + user + `","password":"p"}}}`),
	}}
	s.Name, s.Namespace, s.UID = name, "shop", types.UID("uid of "+name)
	return s
}

// ensure asks for the image for a pod of that name, with a pull secret perhaps.
func (w *rightsWorld) ensure(name, secret string, policy v1.PullPolicy) error {
	w.t.Helper()
	pod := w.pod.DeepCopy()
	pod.Name, pod.UID = name, types.UID(name)
	if secret != "" {
		pod.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: secret}}
	}
	c := &pod.Spec.Containers[0]
	c.ImagePullPolicy = policy
	_, err := w.puller.ensure(w.t.Context(), pod, c, nil)
	return err
}

func (w *rightsWorld) wantPulls(n int) {
	w.t.Helper()
	if got := len(w.fake.Calls("PullImage")); got != n {
		w.t.Errorf("got %d tries to pull, want %d", got, n)
	}
}

func (w *rightsWorld) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Error(err)
	}
}

func (w *rightsWorld) mustNot(err error, why string) {
	w.t.Helper()
	var start *startError
	if !errors.As(err, &start) || start.wait.Reason != why {
		w.t.Errorf("got %v, want %s", err, why)
	}
}

func TestRights(t *testing.T) {
	const ifNotPresent = v1.PullIfNotPresent
	t.Run("a pod gets nothing for another's secret", func(t *testing.T) {
		w := newRightsWorld(t, imagerights.Policy{}, nil)
		w.must(w.ensure("p1", "a", ifNotPresent))
		w.mustNot(w.ensure("p2", "", ifNotPresent), "ErrImagePull")
		w.mustNot(w.ensure("p3", "", v1.PullNever), "ErrImageNeverPull")
		w.wantPulls(2)
		w.wantEvents(`Warning ErrImageNeverPull Container image "reg.example/app:2" is not present with pull policy of Never`)
	})
	t.Run("nor after a restart", func(t *testing.T) {
		w := newRightsWorld(t, imagerights.Policy{}, nil)
		w.must(w.ensure("p1", "a", ifNotPresent))
		w.puller.rights.records = w.records(t)
		w.mustNot(w.ensure("p2", "", ifNotPresent), "ErrImagePull")
		w.must(w.ensure("p1", "a", ifNotPresent))
		w.wantPulls(2)
	})
	t.Run("the same secret, and the same credentials, are enough", func(t *testing.T) {
		w := newRightsWorld(t, imagerights.Policy{}, nil)
		w.secrets["same"] = pullSecret("same", "ann")
		w.must(w.ensure("p1", "a", ifNotPresent))
		w.must(w.ensure("p2", "a", v1.PullNever))
		w.must(w.ensure("p3", "same", v1.PullNever))
		w.secrets["a"] = pullSecret("a", "bob") // the secret is what counts, too
		w.must(w.ensure("p4", "a", ifNotPresent))
		w.wantPulls(1)
		w.wantEvents(`Normal Pulled Container image "reg.example/app:2" already present on machine and can be accessed by the pod`)
	})
	t.Run("the node's credentials are everybody's", func(t *testing.T) {
		w := newRightsWorld(t, imagerights.Policy{}, func(c *Config) {
			c.ImageCredentials = func() ([]*v1.Secret, error) { return []*v1.Secret{pullSecret("n", "ann")}, nil }
		})
		w.must(w.ensure("p1", "", ifNotPresent))
		w.puller.keyring.node = func() ([]*v1.Secret, error) { return nil, nil }
		w.must(w.ensure("p2", "", ifNotPresent))
		w.wantPulls(1)
	})
	t.Run("a provider's are the service account's", func(t *testing.T) {
		provided := func(uid string) providerFunc {
			return func(context.Context, *v1.Pod, string) ([]podfiles.Credential, error) {
				return []podfiles.Credential{{
					Auth:    &runtimeapi.AuthConfig{Username: "ann"},
					Account: &kubeletconfig.ImagePullServiceAccount{UID: uid, Namespace: "shop", Name: "s"},
				}}, errors.New("one of them is broken")
			}
		}
		w := newRightsWorld(t, imagerights.Policy{}, func(c *Config) { c.Providers = provided("1") })
		w.must(w.ensure("p1", "", ifNotPresent))
		w.must(w.ensure("p2", "", ifNotPresent))
		w.wantPulls(1)
		w.puller.keyring.providers = provided("2")
		w.must(w.ensure("p3", "", ifNotPresent)) // the registry says that it may
		w.wantPulls(2)
		w.wantEvents("Warning FailedToRetrieveImagePullSecret Unable to get image credentials from a provider: one of them is broken")
	})
	t.Run("what was put there is everybody's", func(t *testing.T) {
		w := newRightsWorld(t, imagerights.Policy{}, nil)
		w.fake.AddImage(private)
		w.must(w.ensure("p1", "", ifNotPresent))
		w.wantPulls(0)
	})
	t.Run("what is pinned is everybody's, though it was pulled", func(t *testing.T) {
		w := newRightsWorld(t, imagerights.Policy{}, nil)
		w.must(w.ensure("p1", "a", ifNotPresent))
		w.fake.AddImage(private, func(i *runtimeapi.Image) { i.Pinned = true })
		w.must(w.ensure("p2", "", ifNotPresent))
		w.wantPulls(1)
	})
	t.Run("not what an agent that died was pulling", func(t *testing.T) {
		w := newRightsWorld(t, imagerights.Policy{}, nil)
		w.must(w.records(t).Begin(private))
		w.fake.AddImage(private)
		w.mustNot(w.ensure("p1", "", ifNotPresent), "ErrImagePull")
	})
	t.Run("not what came though nobody said so", func(t *testing.T) {
		w := newRightsWorld(t, imagerights.Policy{}, nil)
		w.fake.Inject(crifake.Fault{Op: "PullImage", Err: context.DeadlineExceeded, Match: func(any) bool {
			w.fake.AddImage(private)
			return true
		}})
		w.mustNot(w.ensure("p1", "", ifNotPresent), "ErrImagePull")
		w.mustNot(w.ensure("p2", "", ifNotPresent), "ErrImagePull")
	})
	t.Run("NeverVerify", func(t *testing.T) {
		w := newRightsWorld(t, imagerights.Policy{Kind: kubeletconfig.NeverVerify}, nil)
		w.must(w.ensure("p1", "a", ifNotPresent))
		w.must(w.ensure("p2", "", ifNotPresent))
	})
	t.Run("AlwaysVerify, but for what no registry has", func(t *testing.T) {
		w := newRightsWorld(t, imagerights.Policy{Kind: kubeletconfig.AlwaysVerify}, nil)
		w.fake.AddImage(private)
		w.mustNot(w.ensure("p1", "", ifNotPresent), "ErrImagePull")
		w.main().Image = image
		w.must(w.ensure("p2", "", ifNotPresent))
	})
	t.Run("NeverVerifyAllowlistedImages", func(t *testing.T) {
		w := newRightsWorld(t, imagerights.Policy{Kind: kubeletconfig.NeverVerifyAllowlistedImages, Allowlist: []string{"reg.example/other"}}, nil)
		w.fake.AddImage(private)
		w.mustNot(w.ensure("p1", "", ifNotPresent), "ErrImagePull")
		w.puller.rights.policy.Allowlist = []string{"reg.example/*"}
		w.must(w.ensure("p2", "", ifNotPresent))
	})
}

type providerFunc func(context.Context, *v1.Pod, string) ([]podfiles.Credential, error)

func (f providerFunc) Credentials(ctx context.Context, pod *v1.Pod, image string) ([]podfiles.Credential, error) {
	return f(ctx, pod, image)
}

func TestImageMetrics(t *testing.T) {
	metrics := prometheus.NewRegistry()
	w := newRightsWorld(t, imagerights.Policy{}, func(c *Config) { c.Metrics = metrics })
	w.must(w.ensure("p1", "a", v1.PullIfNotPresent))
	w.must(w.ensure("p2", "a", v1.PullIfNotPresent))
	w.must(w.ensure("p3", "a", v1.PullAlways))
	w.mustNot(w.ensure("p4", "", v1.PullNever), "ErrImageNeverPull")
	counted := w.puller.metrics
	for _, want := range []struct {
		labels []string
		n      float64
	}{
		{[]string{"ifnotpresent", "false", "true"}, 1},
		{[]string{"ifnotpresent", "true", "false"}, 1},
		{[]string{"always", "unknown", "true"}, 1},
		{[]string{"never", "true", "unknown"}, 1},
	} {
		if got := testutil.ToFloat64(counted.requests.WithLabelValues(want.labels...)); got != want.n {
			t.Errorf("requests %q: got %v, want %v", want.labels, got, want.n)
		}
	}
	for result, want := range map[string]float64{"credentialRecordFound": 1, "mustAuthenticate": 1} {
		if got := testutil.ToFloat64(counted.checks.WithLabelValues(result)); got != want {
			t.Errorf("checks %s: got %v, want %v", result, got, want)
		}
	}
	if n, err := testutil.GatherAndCount(metrics, "kubelet_image_pull_duration_seconds"); n != 1 || err != nil {
		t.Errorf("got %d series of pulls' durations (%v), want one", n, err)
	}
	for bytes, want := range map[uint64]string{0: "N/A", 1: "0-10MB", 10 << 20: "0-10MB", 10<<20 + 1: "10MB-100MB", 2 << 30: "1GB-5GB", 1 << 40: "GT100GB"} {
		if got := sizeBucket(bytes); got != want {
			t.Errorf("%d bytes: got %s, want %s", bytes, got, want)
		}
	}
}
