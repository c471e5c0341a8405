package podvolumes

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// A Certificate is what a signer issued for one pod. Nobody changes it.
type Certificate struct {
	Key   []byte // PEM, PKCS #8
	Chain []byte // PEM, the pod's own certificate first
}

// Certificates returns the certificates of a text in PEM, in order, without what
// else there is in it.
func Certificates(text string) []byte { return certificates(blocks([]byte(text))) }

// certificate adds the files of a certificate that is issued for the pod: the key
// and the certificates in one file, or each in its own.
func (r resolver) certificate(ctx context.Context, c *content, index int, source *v1.PodCertificateProjection) error {
	got, err := r.objects.PodCertificate(ctx, r.pod, r.volume.Name, index)
	if err != nil {
		return r.waiting(RefPodCertificate, r.pod.Name, err)
	}
	for _, file := range []struct {
		path string
		data []byte
	}{
		{source.CredentialBundlePath, slices.Concat(got.Key, got.Chain)},
		{source.KeyPath, got.Key},
		{source.CertificateChainPath, got.Chain},
	} {
		if file.path != "" {
			r.putPrivately(c, file.path, file.data, source.User)
		}
	}
	return nil
}
