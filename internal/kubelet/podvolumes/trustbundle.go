package podvolumes

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// trustBundle adds the file of the certificates that a pod is to trust: those of
// one ClusterTrustBundle, or of all of a signer that the labels select.
func (r resolver) trustBundle(ctx context.Context, c *content, source *v1.ClusterTrustBundleProjection) error {
	all, err := r.objects.TrustBundles(ctx)
	if err != nil {
		return r.waiting(RefTrustBundle, describeBundles(source), err)
	}
	chosen, err := chooseBundles(all.Items, source)
	if err != nil {
		return fmt.Errorf("%s: clusterTrustBundle for %s: %w", Describe(r.volume.Name), source.Path, err)
	}
	if len(chosen) == 0 && (source.Optional == nil || !*source.Optional) {
		return r.waiting(RefTrustBundle, describeBundles(source), errNoBundle)
	}
	r.putPrivately(c, source.Path, anchors(chosen), source.User)
	return nil
}

// errNoBundle is why a pod waits for bundles that nobody has made.
var errNoBundle = errors.New("there is none")

func describeBundles(source *v1.ClusterTrustBundleProjection) string {
	if source.Name != nil {
		return *source.Name
	}
	return fmt.Sprintf("of signer %q", deref(source.SignerName))
}

// chooseBundles returns what a projection is made of. No labels select nothing,
// empty ones everything, as everywhere in the API.
func chooseBundles(all []certificatesv1.ClusterTrustBundle, source *v1.ClusterTrustBundleProjection) ([]certificatesv1.ClusterTrustBundle, error) {
	var is func(*certificatesv1.ClusterTrustBundle) bool
	switch {
	case source.Name != nil:
		is = func(b *certificatesv1.ClusterTrustBundle) bool { return b.Name == *source.Name }
	case source.SignerName != nil:
		selector, err := metav1.LabelSelectorAsSelector(source.LabelSelector)
		if err != nil {
			return nil, fmt.Errorf("labelSelector: %w", err)
		}
		is = func(b *certificatesv1.ClusterTrustBundle) bool {
			return b.Spec.SignerName == *source.SignerName && selector.Matches(labels.Set(b.Labels))
		}
	default:
		return nil, errors.New("neither name nor signerName is set")
	}
	var chosen []certificatesv1.ClusterTrustBundle
	for i := range all {
		if is(&all[i]) {
			chosen = append(chosen, all[i])
		}
	}
	return chosen, nil
}

// anchors returns the certificates of bundles as PEM: each once, in an order of
// their own, without headers and what else people write between them. Programs
// thus see the same file until a certificate comes or goes.
func anchors(bundles []certificatesv1.ClusterTrustBundle) []byte {
	var all [][]byte
	for i := range bundles {
		all = append(all, blocks([]byte(bundles[i].Spec.TrustBundle))...)
	}
	slices.SortFunc(all, bytes.Compare)
	return certificates(slices.CompactFunc(all, bytes.Equal))
}

// blocks returns what the PEM blocks of a text hold.
func blocks(text []byte) [][]byte {
	var all [][]byte
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return all
		}
		all = append(all, block.Bytes)
	}
}

// certificates returns PEM of certificates, in order.
func certificates(all [][]byte) []byte {
	out := []byte{} // no certificate is an empty file
	for _, one := range all {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: one})...)
	}
	return out
}

// putPrivately adds a file that nobody but who needs it can read, where it is
// known who that is: the user that it is given to, or the one that the whole pod
// runs as. Upstream does so too.
func (r resolver) putPrivately(c *content, path string, data []byte, user *int64) {
	if user == nil && c.user == nil {
		user = fsUser(r.pod)
	}
	var mode *int32
	if user != nil || c.user != nil || c.group {
		private := int32(0o600)
		mode = &private
	}
	c.put(path, data, mode, user)
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
