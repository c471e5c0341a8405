package localapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/holdfast-dev/holdfast/internal/localapi/pki"
)

// credential is the fingerprint of the certificate by which a client is known.
func credential(ctx context.Context, client kubernetes.Interface) (string, error) {
	r, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return r.Status.UserInfo.Extra["authentication.kubernetes.io/credential-id"][0], nil
}

// served returns the certificate that the API shows.
func served(t *testing.T, s *Server) *x509.Certificate {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.CACert())
	conn, err := tls.Dial("tcp", s.Address(), &tls.Config{RootCAs: roots})
	if err != nil {
		t.Fatal(err)
	}
	cert := conn.ConnectionState().PeerCertificates[0]
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	return cert
}

// Everything is renewed while the API runs: what it serves, what its clients
// present, and the kubeconfig. A kubeconfig of before goes on.
func TestRenewal(t *testing.T) {
	var ahead atomic.Int64 // of the clock that certificates are dated by
	rewritten := make(chan struct{}, 10)
	s := start(t, func(cfg *Config) {
		cfg.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		cfg.RenewEvery = 20 * time.Millisecond
		cfg.AdminRenewed = func() error {
			rewritten <- struct{}{}
			return nil
		}
	})
	kubelet := clientFor(t, s.KubeletConfig())
	before, err := credential(t.Context(), kubelet)
	if err != nil {
		t.Fatal(err)
	}
	oldServing := served(t, s)
	oldKubeconfig, err := s.AdminKubeconfig()
	if err != nil {
		t.Fatal(err)
	}

	ahead.Store(int64(pki.DefaultLife * 3 / 4))
	eventually(t, "the API serves another certificate", func(context.Context) (bool, error) {
		now := served(t, s)
		return !now.Equal(oldServing) && now.NotAfter.After(oldServing.NotAfter), nil
	})
	eventually(t, "the client presents another certificate", func(ctx context.Context) (bool, error) {
		now, err := credential(ctx, kubelet)
		return err == nil && now != before, nil // the connection is closed under a request, perhaps
	})
	<-rewritten
	newKubeconfig, err := s.AdminKubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	if string(newKubeconfig) == string(oldKubeconfig) {
		t.Error("the kubeconfig is the old one")
	}
	for name, data := range map[string][]byte{"old": oldKubeconfig, "new": newKubeconfig} {
		cfg, err := clientcmd.RESTConfigFromKubeConfig(data)
		if err != nil {
			t.Fatal(err)
		}
		if user, err := whoAmI(t.Context(), clientFor(t, cfg)); err != nil || user != "kubernetes-admin" {
			t.Errorf("%s kubeconfig: user %q, %v", name, user, err)
		}
	}
}

// A clock that is wrong by decades keeps nobody from working with the API.
// Tokens are the exception: they say when they were made.
func TestWrongClockAtStart(t *testing.T) {
	for name, now := range map[string]time.Time{"1970": time.Unix(100, 0), "2150": time.Date(2150, 1, 1, 0, 0, 0, 0, time.UTC)} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			cfg := testConfig(dir, testLog)
			cfg.Now = func() time.Time { return now }
			s, err := New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			// The clock is right again, and the same files are used.
			running := start(t, func(c *Config) { c.DataDir, c.PKIDir, c.RunDir = cfg.DataDir, cfg.PKIDir, cfg.RunDir })
			if user, err := whoAmI(t.Context(), clientFor(t, running.KubeletConfig())); err != nil || user != "system:node:node1" {
				t.Errorf("user %q, %v", user, err)
			}
			if got, want := len(s.CertificateFaults()) > 0, name == "1970"; got != want {
				t.Errorf("told of the clock: %v, want %v", got, want)
			}
		})
	}
}
