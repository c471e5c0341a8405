package identity

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// transport sends requests with the certificate that is in use then. Requests wait
// while there is none. When there is another, new requests go over new connections;
// what is under way, such as a watch, ends in its own time over the old ones, which
// then close: no request is broken off by a rotation.
//
// It may be used from any goroutine.
type transport struct {
	keeper  *keeper
	stopped <-chan struct{} // closed: there will be no other certificate
	base    *tls.Config
	config  *rest.Config

	mu   sync.Mutex // guards the fields below
	cert *tls.Certificate
	http *http.Transport
}

func newTransport(k *keeper, stopped <-chan struct{}, config *rest.Config) (*transport, error) {
	base, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, fmt.Errorf("TLS with the cluster's API: %w", err)
	}
	if base == nil {
		base = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return &transport{keeper: k, stopped: stopped, base: base, config: config}, nil
}

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-t.keeper.has:
	default:
		if err := t.wait(r); err != nil {
			if r.Body != nil {
				_ = r.Body.Close() // as RoundTrip must; nobody reads it
			}
			return nil, err
		}
	}
	return t.now().RoundTrip(r)
}

// wait waits for the first certificate.
func (t *transport) wait(r *http.Request) error {
	select {
	case <-t.keeper.has:
		return nil
	case <-r.Context().Done():
		return fmt.Errorf("%w: %w", t.keeper.state(), r.Context().Err())
	case <-t.stopped:
		return t.keeper.state()
	}
}

// now returns the transport of the certificate in use.
func (t *transport) now() *http.Transport {
	cert := t.keeper.get()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.http != nil && t.cert == cert {
		return t.http
	}
	if t.http != nil {
		t.http.CloseIdleConnections()
	}
	config := t.base.Clone()
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
	proxy := t.config.Proxy
	if proxy == nil {
		proxy = http.ProxyFromEnvironment
	}
	dial := t.config.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	t.cert = cert
	t.http = utilnet.SetTransportDefaults(&http.Transport{
		Proxy: proxy, DialContext: dial, TLSClientConfig: config,
		TLSHandshakeTimeout: 10 * time.Second, MaxIdleConnsPerHost: 25, DisableCompression: t.config.DisableCompression,
	})
	return t.http
}

// CloseIdleConnections closes those that nobody uses.
func (t *transport) CloseIdleConnections() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.http != nil {
		t.http.CloseIdleConnections()
	}
}
