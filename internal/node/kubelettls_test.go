package node

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/localapi/pki"
)

// at is a connection that was made to a listener of a network.
type at struct {
	net.Conn
	local net.Addr
}

func (a at) LocalAddr() net.Addr { return a.local }

// TestKubeletTLS checks which certificate the kubelet's API shows to whom, and
// whose clients it takes, while the files come, break and change.
func TestKubeletTLS(t *testing.T) {
	authority := func() *pki.Authority {
		a, err := pki.Open(pki.Config{Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	issue := func(a *pki.Authority, file string) *pki.Leaf {
		leaf, err := a.Issue(pki.Request{File: file, User: file, Names: []string{"127.0.0.1"}})
		if err != nil {
			t.Fatal(err)
		}
		return leaf
	}
	own, others := authority(), authority()
	ownLeaf, firstLeaf, secondLeaf := issue(own, "own"), issue(others, "first"), issue(others, "second")
	dir := t.TempDir()
	s := TLSSettings{TLSCertFile: filepath.Join(dir, "tls.crt"), TLSPrivateKeyFile: filepath.Join(dir, "tls.key")}
	s.Authentication.X509.ClientCAFile = filepath.Join(dir, "ca.crt")
	put := func(from, to string) {
		data, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(to, data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	put2 := func(leaf *pki.Leaf) {
		pair := leaf.Pair()
		put(pair.CertFile, s.TLSCertFile)
		put(pair.KeyFile, s.TLSPrivateKeyFile)
	}
	k := newKubeletTLS(s, ownLeaf, own.CertPEM(), slog.New(slog.DiscardHandler))
	check := func(step, certificate string, bothCAs bool, faults ...string) {
		t.Helper()
		for network, want := range map[string]string{"tcp": certificate, "unix": "own"} {
			var local net.Addr = &net.TCPAddr{}
			if network == "unix" {
				local = &net.UnixAddr{Net: network}
			}
			got, err := k.certificate(&tls.ClientHelloInfo{Conn: at{local: local}})
			if err != nil {
				t.Fatal(err)
			}
			leaf, err := x509.ParseCertificate(got.Certificate[0])
			if err != nil || leaf.Subject.CommonName != want {
				t.Errorf("%s, over %s: shows the certificate of %v (%v), want %s", step, network, leaf.Subject, err, want)
			}
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(own.CertPEM())
		if bothCAs {
			pool.AppendCertsFromPEM(others.CertPEM())
		}
		if !k.clientCAs().Equal(pool) {
			t.Errorf("%s: other authorities than wanted", step)
		}
		got := k.faults()
		if len(got) != len(faults) {
			t.Fatalf("%s: faults %v, want %q", step, got, faults)
		}
		for i, want := range faults {
			if !strings.Contains(got[i].Field+": "+got[i].Message, want) {
				t.Errorf("%s: fault %v, want %q in it", step, got[i], want)
			}
		}
	}
	check("no files", "own", false, "kubelet.tlsCertFile: ", "kubelet.authentication.x509.clientCAFile: ")
	put2(firstLeaf)
	put(others.CertFile(), s.Authentication.X509.ClientCAFile)
	check("files", "first", true)
	put(secondLeaf.Pair().CertFile, s.TLSCertFile)
	check("half of another", "first", true, "does not match")
	put2(secondLeaf)
	check("another", "second", true)

	k = newKubeletTLS(TLSSettings{}, ownLeaf, own.CertPEM(), slog.New(slog.DiscardHandler))
	check("nothing is set", "own", false)
}
