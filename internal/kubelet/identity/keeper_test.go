package identity

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	certificatesclient "k8s.io/client-go/kubernetes/typed/certificates/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/certstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// An authority signs what it is asked to.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(20, 0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert, key}
}

// sign issues a certificate for a request in PEM, from five minutes ago on, as
// upstream's signer does.
func (a *authority) sign(t *testing.T, request []byte, life time.Duration) []byte {
	t.Helper()
	block, _ := pem.Decode(request)
	r, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return a.issue(t, r, life)
}

func (a *authority) issue(t *testing.T, r *x509.CertificateRequest, life time.Duration) []byte {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: r.Subject, DNSNames: r.DNSNames, IPAddresses: r.IPAddresses,
		NotBefore: time.Now().Add(-5 * time.Minute), NotAfter: time.Now().Add(life),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, r.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// pair issues a certificate of a name with its key.
func (a *authority) pair(t *testing.T, name string, life time.Duration) *tls.Certificate {
	t.Helper()
	cert, key := a.pem(t, name, life)
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return &pair
}

func (a *authority) pem(t *testing.T, name string, life time.Duration) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return a.issue(t, &x509.CertificateRequest{Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, PublicKey: private.Public()}, life), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}

// A world is an API with a signer, and a node's folder of certificates.
type world struct {
	t    *testing.T
	dir  string
	api  certificatesclient.CertificateSigningRequestInterface
	auth *authority
	life time.Duration

	mu         sync.Mutex // guards the fields below
	log        bytes.Buffer
	addresses  []netip.Addr
	bootstraps int // how often asking was by the bootstrap credentials
}

// Write is of the log.
func (w *world) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.Write(p)
}

func (w *world) said() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.String()
}

func newWorld(t *testing.T, dir string) *world {
	return &world{
		t: t, dir: dir, api: fake.NewClientset().CertificatesV1().CertificateSigningRequests(),
		auth: newAuthority(t), life: 10 * time.Hour, addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")},
	}
}

// keeper makes one of a serving certificate.
func (w *world) keeper(first *tls.Certificate) *keeper {
	return newKeeper(keeperConfig{
		what: "serving certificate", store: certstore.New(w.dir, "kubelet-server"), first: first, renew: true,
		signer: certificatesv1.KubeletServingSignerName, usage: certificatesv1.UsageServerAuth,
		template: func() *x509.CertificateRequest {
			w.mu.Lock()
			defer w.mu.Unlock()
			return servingTemplate("n1", w.addresses)
		},
		client: func(good bool) (certificatesclient.CertificateSigningRequestInterface, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if !good {
				w.bootstraps++
			}
			return w.api, nil
		},
		failed:  func(_ bool, err error) error { return err },
		metrics: serverMetrics(prometheus.NewRegistry()), log: slog.New(slog.NewTextHandler(w, nil)),
	})
}

// start runs a keeper until stop is called.
func (w *world) start(k *keeper) (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		k.run(ctx)
	}()
	synctest.Wait()
	return func() {
		cancel()
		<-done
	}
}

// requests returns the requests that there are.
func (w *world) requests() []certificatesv1.CertificateSigningRequest {
	w.t.Helper()
	list, err := w.api.List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return list.Items
}

// only returns the one request that there is.
func (w *world) only() *certificatesv1.CertificateSigningRequest {
	w.t.Helper()
	all := w.requests()
	if len(all) != 1 {
		w.t.Fatalf("%d requests, want 1", len(all))
	}
	return &all[0]
}

// approve signs the one request that there is.
func (w *world) approve() {
	w.t.Helper()
	r := w.only()
	r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue})
	r.Status.Certificate = w.auth.sign(w.t, r.Spec.Request, w.life)
	w.update(r)
}

func (w *world) update(r *certificatesv1.CertificateSigningRequest) {
	w.t.Helper()
	if _, err := w.api.UpdateStatus(w.t.Context(), r, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	synctest.Wait()
}

func (w *world) remove() {
	w.t.Helper()
	if err := w.api.Delete(w.t.Context(), w.only().Name, metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
	synctest.Wait()
}

// bubble runs a test in a bubble of time, with a world.
func bubble(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) { test(t, newWorld(t, dir)) })
}

func TestFirstCertificate(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		k := w.keeper(nil)
		stop := w.start(k)
		r := w.only()
		if want := []certificatesv1.KeyUsage{"digital signature", "server auth"}; !slices.Equal(r.Spec.Usages, want) || r.Spec.SignerName != "kubernetes.io/kubelet-serving" {
			t.Errorf("asked %s for %v, want %v", r.Spec.SignerName, r.Spec.Usages, want)
		}
		if k.get() != nil {
			t.Error("a certificate before one was issued")
		}
		time.Sleep(2 * patience)
		if want := "kubectl certificate approve " + r.Name; strings.Count(w.said(), want) != 1 || !strings.Contains(k.state().Error(), want) {
			t.Errorf("said %s and %v, want %q once", w.said(), k.state(), want)
		}
		w.approve()
		leaf := k.get().Leaf
		if leaf.Subject.CommonName != "system:node:n1" || !slices.Equal(leaf.Subject.Organization, []string{"system:nodes"}) || !slices.Equal(leaf.DNSNames, []string{"n1"}) {
			t.Errorf("issued to %v, %v", leaf.Subject, leaf.DNSNames)
		}
		if k.state() != nil {
			t.Errorf("state %v, want none", k.state())
		}
		stop()
		again := w.keeper(nil)
		stop = w.start(again)
		defer stop()
		if again.get() == nil || !again.get().Leaf.Equal(leaf) || len(w.requests()) != 1 {
			t.Error("after a restart the certificate is another, or was asked for again")
		}
	})
}

// An agent that dies while nobody has answered goes on with the same request.
func TestResume(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		for range 5 {
			w.start(w.keeper(nil))()
		}
		stop := w.start(w.keeper(nil))
		w.approve() // of the only one
		stop()
		k := w.keeper(nil)
		if !k.good() {
			t.Error("no certificate after it was issued")
		}
		// One that was issued while the agent was away.
		w.remove()
		next := newWorld(t, t.TempDir())
		next.start(next.keeper(nil))()
		next.approve()
		k = next.keeper(nil)
		defer next.start(k)()
		if !k.good() {
			t.Error("what was issued meanwhile was not taken")
		}
	})
}

func TestRefusal(t *testing.T) {
	for _, kind := range []certificatesv1.RequestConditionType{certificatesv1.CertificateDenied, certificatesv1.CertificateFailed} {
		t.Run(string(kind), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				k := w.keeper(nil)
				defer w.start(k)()
				r := w.only()
				r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: kind, Status: corev1.ConditionTrue, Reason: "Because", Message: "no such node"})
				w.update(r)
				for _, want := range []string{r.Name, `"Because"`, `"no such node"`, "kubectl describe"} {
					if err := k.state(); err == nil || !strings.Contains(err.Error(), want) {
						t.Errorf("state %v, want %q in it", err, want)
					}
				}
				time.Sleep(firstRefused - time.Second)
				if len(w.requests()) != 1 {
					t.Error("asked again at once")
				}
				time.Sleep(2 * time.Second)
				synctest.Wait()
				if all := w.requests(); len(all) != 2 || bytes.Equal(all[0].Spec.Request, all[1].Spec.Request) {
					t.Errorf("%d requests, want another one", len(all))
				}
				if err := w.api.Delete(t.Context(), r.Name, metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
				w.approve()
				if !k.good() {
					t.Error("no certificate after the second request was approved")
				}
			})
		})
	}
}

// The API removes requests that nobody answers.
func TestRequestIsRemoved(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		k := w.keeper(nil)
		defer w.start(k)()
		name := w.only().Name
		w.remove()
		time.Sleep(firstRetry)
		synctest.Wait()
		if again := w.only().Name; again != name {
			t.Errorf("asked by %s, want %s: the key is the same", again, name)
		}
		w.approve()
		if !k.good() {
			t.Error("no certificate")
		}
	})
}

// Somebody else may have made an object of the name that we would take.
func TestRequestOfAnotherKey(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.start(w.keeper(nil))()
		r := w.only()
		other := newWorld(t, t.TempDir())
		other.start(other.keeper(nil))()
		r.Spec.Request = other.only().Spec.Request
		if _, err := w.api.Update(t.Context(), r, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		k := w.keeper(nil)
		defer w.start(k)()
		if k.state() == nil || !strings.Contains(k.state().Error(), "another key") {
			t.Errorf("state %v", k.state())
		}
		time.Sleep(firstRetry)
		synctest.Wait()
		if len(w.requests()) != 2 {
			t.Errorf("%d requests, want a second one of another name", len(w.requests()))
		}
	})
}

func TestRotation(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		k := w.keeper(nil)
		defer w.start(k)()
		for range 3 {
			w.approve()
			before := k.get()
			w.remove()
			const backdate = 5 * time.Minute // counts as life, for files have the machine's time
			time.Sleep(w.life*7/10 - backdate)
			synctest.Wait()
			if len(w.requests()) != 0 {
				t.Error("another was asked for before 70 % of its life")
			}
			time.Sleep(w.life*2/10 + 2*backdate)
			synctest.Wait()
			if len(w.requests()) != 1 {
				t.Error("no other was asked for after 90 % of its life")
			}
			if k.get() != before {
				t.Error("the one before does not serve while another is asked for")
			}
		}
		if strings.Count(w.said(), "certificate issued") != 3 {
			t.Errorf("said %s", w.said())
		}
	})
}

func TestOtherAddresses(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.mu.Lock()
		w.addresses = nil
		w.mu.Unlock()
		k := w.keeper(nil)
		defer w.start(k)()
		if len(w.requests()) != 0 || !strings.Contains(k.state().Error(), "address") {
			t.Errorf("%d requests, %v, want none before there is an address", len(w.requests()), k.state())
		}
		w.mu.Lock()
		w.addresses = []netip.Addr{netip.MustParseAddr("10.0.0.1")}
		w.mu.Unlock()
		time.Sleep(lastRetry)
		synctest.Wait()
		w.approve()
		w.remove()
		w.mu.Lock()
		w.addresses = []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}
		w.mu.Unlock()
		time.Sleep(look)
		synctest.Wait()
		block, _ := pem.Decode(w.only().Spec.Request)
		r, err := x509.ParseCertificateRequest(block.Bytes)
		if err != nil || len(r.IPAddresses) != 2 {
			t.Errorf("asked for %v, %v, want both addresses", r.IPAddresses, err)
		}
	})
}

// What somebody puts into the folder is taken up, and an expired certificate is
// replaced without being used to ask.
func TestExpired(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		k := w.keeper(w.auth.pair(t, "old", -time.Minute))
		defer w.start(k)()
		if k.good() || w.bootstraps != 1 {
			t.Errorf("an expired certificate is good: %v; asked by others %d times, want 1", k.good(), w.bootstraps)
		}
		w.remove() // nobody approves; an operator helps out
		cert, key := w.auth.pem(t, "by hand", w.life)
		if _, err := certstore.New(w.dir, "kubelet-server").Put(cert, key); err != nil {
			t.Fatal(err)
		}
		time.Sleep(firstRetry)
		synctest.Wait()
		if !k.good() || k.get().Leaf.Subject.CommonName != "by hand" {
			t.Errorf("in use: %v", k.get().Leaf.Subject)
		}
	})
}

func TestDue(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		since    time.Time
		from, to time.Duration // after start
	}{
		"its start counts":             {time.Time{}, 70 * time.Minute, 90 * time.Minute},
		"it was issued later":          {start.Add(50 * time.Minute), 85 * time.Minute, 95 * time.Minute},
		"the folder was copied since":  {start.Add(200 * time.Minute), 70 * time.Minute, 90 * time.Minute},
		"the folder says before it is": {start.Add(-time.Hour), 70 * time.Minute, 90 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			seen := map[time.Time]bool{}
			for i := range byte(100) {
				got := due(&x509.Certificate{Raw: []byte{i}, NotBefore: start, NotAfter: start.Add(100 * time.Minute)}, test.since)
				if got.Before(start.Add(test.from)) || got.After(start.Add(test.to)) {
					t.Errorf("due %v after its start, want %v to %v", got.Sub(start), test.from, test.to)
				}
				seen[got] = true
			}
			if len(seen) < 50 {
				t.Errorf("%d different times of 100 certificates", len(seen))
			}
		})
	}
}

// A failure is told of once.
func TestFailuresAreToldOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		k := w.keeper(nil)
		k.client = func(bool) (certificatesclient.CertificateSigningRequestInterface, error) {
			return nil, errors.New("no way there")
		}
		defer w.start(k)()
		time.Sleep(time.Hour)
		if n := strings.Count(w.said(), "no way there"); n != 1 {
			t.Errorf("told %d times, want once", n)
		}
	})
}
