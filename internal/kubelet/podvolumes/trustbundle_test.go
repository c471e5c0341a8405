package podvolumes

import (
	"context"
	"encoding/pem"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/atomicdir"
)

// TrustBundles are those that the api holds, whatever their keys.
func (a api) TrustBundles(context.Context) (*certificatesv1.ClusterTrustBundleList, error) {
	list := &certificatesv1.ClusterTrustBundleList{}
	for _, object := range a {
		switch o := object.(type) {
		case *certificatesv1.ClusterTrustBundle:
			list.Items = append(list.Items, *o)
		case error:
			return nil, o
		}
	}
	return list, nil
}

// pemOf returns certificates of these names, which no parser would take.
func pemOf(names ...string) string {
	var out strings.Builder
	for _, name := range names {
		out.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(name)}))
	}
	return out.String()
}

func TestTrustBundle(t *testing.T) {
	bundle := func(name, signer, certificates string) *certificatesv1.ClusterTrustBundle {
		b := &certificatesv1.ClusterTrustBundle{Spec: certificatesv1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: certificates}}
		b.Name, b.Labels = name, map[string]string{"ring": strings.ReplaceAll(name, ":", "-")}
		return b
	}
	headers := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Headers: map[string]string{"a": "b"}, Bytes: []byte("ca-1")}))
	bundles := api{
		"plain": bundle("plain", "", "our root:\n"+pemOf("ca-2")+headers+pemOf("ca-1")),
		"x:new": bundle("x:new", "example.com/x", pemOf("x-2", "x-1")),
		"x:old": bundle("x:old", "example.com/x", pemOf("x-1", "x-0")),
		"y:one": bundle("y:one", "example.com/y", pemOf("y-1")),
	}
	named := func(name string, optional bool) v1.ClusterTrustBundleProjection {
		return v1.ClusterTrustBundleProjection{Name: &name, Path: "ca.pem", Optional: &optional}
	}
	signed := func(signer string, selector *metav1.LabelSelector) v1.ClusterTrustBundleProjection {
		return v1.ClusterTrustBundleProjection{SignerName: &signer, Path: "ca.pem", LabelSelector: selector}
	}
	tests := []struct {
		name    string
		source  v1.ClusterTrustBundleProjection
		objects api
		want    string
		err     string
		waits   bool
	}{
		{"by name, each once and in order", named("plain", false), bundles, pemOf("ca-1", "ca-2"), "", false},
		{"all of a signer", signed("example.com/x", &metav1.LabelSelector{}), bundles, pemOf("x-0", "x-1", "x-2"), "", false},
		{"by labels", signed("example.com/x", &metav1.LabelSelector{MatchLabels: map[string]string{"ring": "x-old"}}), bundles, pemOf("x-0", "x-1"), "", false},
		{"no labels select nothing", signed("example.com/x", nil), bundles, "", `ClusterTrustBundle of signer "example.com/x" (volume "v"): there is none`, true},
		{"missing", named("none", false), bundles, "", `waiting for ClusterTrustBundle none (volume "v"): there is none`, true},
		{"missing, optional", named("none", true), bundles, "", "", false},
		{"cannot be read", named("plain", true), api{"": errors.New("no such kind")}, "", "no such kind", true},
		{"neither", v1.ClusterTrustBundleProjection{Path: "ca.pem"}, bundles, "", "neither name nor signerName", false},
		{"bad labels", signed("example.com/x", &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "?"}}}), bundles, "", "labelSelector", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := projected(nil, v1.VolumeProjection{ClusterTrustBundle: &tt.source})
			got, err := Resolve(t.Context(), pod(nil, v), &v, tt.objects, Host{})
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) || errors.Is(err, ErrWaiting) != tt.waits {
					t.Errorf("err = %v, want %q; waits: %v", err, tt.err, errors.Is(err, ErrWaiting))
				}
				return
			}
			want := map[string]atomicdir.File{"ca.pem": {Data: []byte(tt.want), Mode: 0o644}}
			if diff := cmp.Diff(got.Files, want); err != nil || diff != "" {
				t.Errorf("%v (-got +want):\n%s", err, diff)
			}
		})
	}
	t.Run("for one user", func(t *testing.T) {
		source := named("plain", false)
		source.User = new(int64(1001))
		v := projected(nil, v1.VolumeProjection{ClusterTrustBundle: &source})
		got, err := Resolve(t.Context(), pod(nil, v), &v, bundles, Host{})
		if f := got.Files["ca.pem"]; err != nil || f.Mode != 0o600 || f.UID == nil || *f.UID != 1001 {
			t.Errorf("%+v, %v", f, err)
		}
	})
}
