package node

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/holdfast-dev/holdfast/internal/certfile"
	"github.com/holdfast-dev/holdfast/internal/control"
	"github.com/holdfast-dev/holdfast/internal/localapi/pki"
)

// TLSSettings are the fields of KubeletSettings that say by which certificates
// the kubelet's API and its clients know each other. What the files hold is taken
// up when it changes, without a restart; while they are broken or gone, what was
// good before counts, and the node's own at the start.
type TLSSettings struct {
	// TLSCertFile and TLSPrivateKeyFile hold the certificate of the kubelet's API,
	// with its chain, and its key, in PEM. Both or none. Default: one of the node's
	// own authority. The node's own API knows its kubelet by that in any case.
	TLSCertFile       string `json:"tlsCertFile,omitempty"`
	TLSPrivateKeyFile string `json:"tlsPrivateKeyFile,omitempty"`
	// Authentication holds whose client certificates are taken.
	Authentication AuthenticationSettings `json:"authentication,omitzero"`
}

// AuthenticationSettings are upstream's KubeletAuthentication.
type AuthenticationSettings struct {
	X509 X509Settings `json:"x509,omitzero"`
}

// X509Settings are upstream's KubeletX509Authentication.
type X509Settings struct {
	// ClientCAFile holds authorities, in PEM, whose client certificates are taken
	// beside those of the node's own. Default: none.
	ClientCAFile string `json:"clientCAFile,omitempty"`
}

// A kubeletTLS is by what certificates the kubelet's API and its clients know
// each other.
type kubeletTLS struct {
	own     *pki.Leaf
	files   *certfile.Pair // nil: there are none
	clients *certfile.Pool // nil: the node's own clients alone

	ownClients *x509.CertPool
}

// newKubeletTLS makes it of the settings, the node's own certificate and its
// authority's.
func newKubeletTLS(s TLSSettings, own *pki.Leaf, authority []byte, log *slog.Logger) *kubeletTLS {
	k := &kubeletTLS{own: own, ownClients: x509.NewCertPool()}
	k.ownClients.AppendCertsFromPEM(authority)
	told := func(file string) func(error) {
		log := log.With("part", partKubelet, "file", file)
		return func(err error) {
			if err != nil {
				log.Warn("certificates cannot be taken up: the ones before count", "err", err)
				return
			}
			log.Info("certificates taken up")
		}
	}
	if s.TLSCertFile != "" {
		k.files = certfile.NewPair(s.TLSCertFile, s.TLSPrivateKeyFile, told(s.TLSCertFile))
	}
	if file := s.Authentication.X509.ClientCAFile; file != "" {
		k.clients = certfile.NewPool(file, authority, told(file))
	}
	return k
}

// certificate is what the kubelet's API shows: to the node's own API, which comes
// by a socket of their own, always the node's own certificate.
func (k *kubeletTLS) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if k.files != nil && hello.Conn.LocalAddr().Network() != "unix" {
		if pair := k.files.Certificate(); pair != nil {
			return pair, nil
		}
	}
	return k.own.TLS(), nil
}

// clientCAs are the authorities of clients.
func (k *kubeletTLS) clientCAs() *x509.CertPool {
	if k.clients != nil {
		return k.clients.Authorities()
	}
	return k.ownClients
}

// listenForAPI listens where the node's own API reaches the kubelet when that shows
// others a certificate that the API does not know.
func (n *node) listenForAPI(ctx context.Context) (net.Listener, error) {
	socket := n.in.Run("kubelet.sock")
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) { // of a process that was killed
		return nil, err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("socket of the kubelet's API: %w", err)
	}
	if err := os.Chmod(socket, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// dialKubelet is how the node's own API connects to a kubelet.
func (n *node) dialKubelet(ctx context.Context, network, address string) (net.Conn, error) {
	if n.kubeletTLS.files != nil && address == netip.AddrPortFrom(n.address, uint16(n.kubeletPort())).String() {
		network, address = "unix", n.in.Run("kubelet.sock")
	}
	dialer := net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second} // as upstream's
	return dialer.DialContext(ctx, network, address)
}

// faults says which files are not what counts.
func (k *kubeletTLS) faults() []control.Fault {
	var faults []control.Fault
	if k.files != nil {
		if err := k.files.Err(); err != nil {
			faults = append(faults, control.Fault{Field: "kubelet.tlsCertFile", Message: err.Error(), Hint: "the certificate before it is used until this is good"})
		}
	}
	if k.clients != nil {
		if err := k.clients.Err(); err != nil {
			faults = append(faults, control.Fault{Field: "kubelet.authentication.x509.clientCAFile", Message: err.Error(), Hint: "the authorities before count until this is good"})
		}
	}
	return faults
}
