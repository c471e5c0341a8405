package identity

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"path/filepath"
	"time"

	certutil "k8s.io/client-go/util/cert"

	"github.com/holdfast-dev/holdfast/internal/atomicfile"
	"github.com/holdfast-dev/holdfast/internal/regularfile"
)

// renewBefore is how much life a certificate that we signed ourselves has to have
// at a start; it has a year when it is made.
const renewBefore = 30 * 24 * time.Hour

// subject is how a node is named by the cluster's authority.
func subject(node string) pkix.Name {
	return pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}}
}

// servingTemplate is what a serving certificate is to say: the node's name and
// addresses. Nil: it has none yet.
func servingTemplate(node string, addresses []netip.Addr) *x509.CertificateRequest {
	if len(addresses) == 0 {
		return nil
	}
	r := &x509.CertificateRequest{Subject: subject(node), DNSNames: []string{node}}
	for _, a := range addresses {
		r.IPAddresses = append(r.IPAddresses, net.IP(a.AsSlice()))
	}
	return r
}

// selfSigned returns the certificate in dir that this node signed itself, under
// upstream's names kubelet.crt and kubelet.key, and makes one if there is none that
// is good for a while. Whoever made it, it is used as it is.
func selfSigned(dir, node string) (*tls.Certificate, error) {
	certFile, keyFile := filepath.Join(dir, "kubelet.crt"), filepath.Join(dir, "kubelet.key")
	pair, err := readPair(certFile, keyFile)
	if err == nil && time.Until(pair.Leaf.NotAfter) > renewBefore {
		return pair, nil
	}
	if path := (*fs.PathError)(nil); errors.As(err, &path) && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("certificate of the kubelet's API: %w", err) // what cannot be read is not replaced
	}
	cert, key, err := certutil.GenerateSelfSignedCertKey(node, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("sign a certificate of the kubelet's API: %w", err)
	}
	// The key first: with the certificate before it, it makes no pair, and the next
	// start makes both anew.
	if err := atomicfile.Write(keyFile, key, 0o600); err != nil {
		return nil, err
	}
	if err := atomicfile.Write(certFile, cert, 0o644); err != nil {
		return nil, err
	}
	return readPair(certFile, keyFile)
}

func readPair(certFile, keyFile string) (*tls.Certificate, error) {
	const limit = 1 << 20
	cert, _, err := regularfile.ReadAll(certFile, limit)
	if err != nil {
		return nil, err
	}
	key, _, err := regularfile.ReadAll(keyFile, limit)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("certificate %s with key %s: %w", certFile, keyFile, err)
	}
	return &pair, nil
}
