package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/localapi/pki"
)

// TestKubeletCertificate gives the kubelet's API a certificate, and clients' an
// authority, of another's making, and changes them while the node runs: clients
// see the new ones, and the node's own API reaches its kubelet all the while.
func TestKubeletCertificate(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	dir := t.TempDir()
	cert, key, clients := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), filepath.Join(dir, "clients.crt")
	first := newSite(t, "first")
	first.give(cert, key, clients)
	n.configure(fmt.Sprintf("  tlsCertFile: %s\n  tlsPrivateKeyFile: %s\n  authentication: {x509: {clientCAFile: %s}}\n", cert, key, clients))
	n.up()
	address := "https://127.0.0.1:" + n.kubectl("get", "node", n.name, "-o", "jsonpath={.status.daemonEndpoints.kubeletEndpoint.Port}")
	check := func(site *site, faults int) {
		t.Helper()
		n.eventually("the kubelet's API takes clients of "+site.name, func() error { return site.known(address + "/pods") })
		if out := n.kubectl("get", "--raw", "/api/v1/nodes/"+n.name+"/proxy/configz"); !strings.Contains(out, cert) {
			t.Errorf("by the API, /configz says: %s", out)
		}
		n.eventually(fmt.Sprintf("%d faults are told", faults), func() error {
			if r := n.report(); len(r.Faults) != faults {
				return fmt.Errorf("faults %v", r.Faults)
			}
			return nil
		})
	}
	check(first, 0)
	second := newSite(t, "second")
	second.give(cert, key, clients)
	check(second, 0)
	if err := os.WriteFile(key, []byte("half of a ke"), 0o600); err != nil {
		t.Fatal(err)
	}
	check(second, 1)
}

// A site is somebody's authority, and the certificates of a host and of a client
// of theirs.
type site struct {
	t            *testing.T
	name         string
	ca           *pki.Authority
	host, client *pki.Leaf
}

func newSite(t *testing.T, name string) *site {
	t.Helper()
	ca, err := pki.Open(pki.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	host, err := ca.Issue(pki.Request{File: "host", User: "host", Names: []string{"127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	client, err := ca.Issue(pki.Request{File: "client", User: "somebody at " + name})
	if err != nil {
		t.Fatal(err)
	}
	return &site{t, name, ca, host, client}
}

// give writes the files that the node is told of.
func (s *site) give(cert, key, clients string) {
	s.t.Helper()
	for path, content := range map[string][]byte{cert: s.host.Pair().Cert, key: s.host.Pair().Key, clients: s.ca.CertPEM()} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			s.t.Fatal(err)
		}
	}
}

// known returns nil if a server has the site's certificate and knows its client,
// who may do nothing there.
func (s *site) known(url string) error {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(s.ca.CertPEM())
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{
		RootCAs: pool, Certificates: []tls.Certificate{*s.client.TLS()},
	}}}
	answer, err := client.Get(url)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusForbidden {
		return fmt.Errorf("%s answers %s, want %d: it knows who asks", url, answer.Status, http.StatusForbidden)
	}
	return nil
}
