package objects

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// trusting returns a pod that has ClusterTrustBundles projected.
func trusting(name string) *v1.Pod {
	source := v1.VolumeProjection{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{Name: new("a"), Path: "ca.pem"}}
	p := &v1.Pod{}
	p.Namespace, p.Name, p.UID = "ns", name, "uid-1"
	p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{source}}}}}
	return p
}

func (w *world) bundles() string {
	w.t.Helper()
	list, err := w.store.TrustBundles(w.t.Context())
	if err != nil {
		return err.Error()
	}
	var names []string
	for _, b := range list.Items {
		names = append(names, fmt.Sprintf("%s=%s", b.Name, b.Spec.TrustBundle))
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func TestTrustBundles(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		client := w.api.CertificatesV1().ClusterTrustBundles()
		bundle := func(name, text string) *certificatesv1.ClusterTrustBundle {
			return &certificatesv1.ClusterTrustBundle{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: certificatesv1.ClusterTrustBundleSpec{TrustBundle: text}}
		}
		check := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		_, err := client.Create(t.Context(), bundle("a", "1"), metav1.CreateOptions{})
		check(err)
		if got := w.bundles(); got != "a=1" || w.called("watch clustertrustbundles") != 0 {
			t.Errorf("nobody holds them: %s, watched %d times", got, w.called("watch clustertrustbundles"))
		}

		w.store.Hold(trusting("p"))
		w.wantNews("uid-1")
		lists := w.called("list clustertrustbundles")
		_, err = client.Create(t.Context(), bundle("b", "2"), metav1.CreateOptions{})
		check(err)
		w.wantNews("uid-1")
		_, err = client.Update(t.Context(), bundle("a", "3"), metav1.UpdateOptions{})
		check(err)
		w.wantNews("uid-1")
		if got := w.bundles(); got != "a=3 b=2" {
			t.Errorf("after a change: %s", got)
		}
		check(client.Delete(t.Context(), "a", metav1.DeleteOptions{}))
		w.wantNews("uid-1")
		if got := w.bundles(); got != "b=2" || w.called("list clustertrustbundles") != lists {
			t.Errorf("after a deletion: %s, listed %d times more", got, w.called("list clustertrustbundles")-lists)
		}

		w.fail(errors.New("away"))
		if got := w.bundles(); got != "b=2" {
			t.Errorf("the API server is away: %s", got)
		}
		w.store.Release("uid-1")
	})
}

func TestTrustBundlesAreNotServed(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.fail(apierrors.NewNotFound(schema.GroupResource{}, ""))
		w.store.Hold(trusting("p"))
		if got := w.bundles(); !strings.Contains(got, "does not serve") {
			t.Errorf("err = %s", got)
		}
		w.store.Release("uid-1")
	})
}
