package podcertificate

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a Manager with an API server in memory, a signer and fake time.
type world struct {
	*Manager
	t      *testing.T
	api    *fake.Clientset
	events *record.FakeRecorder

	mu   sync.Mutex
	down error
	news []types.UID
}

func run(t *testing.T, body func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) {
		account := &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "default", UID: "account"}}
		w := &world{t: t, api: fake.NewClientset(account), events: record.NewFakeRecorder(100)}
		w.api.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.down != nil, nil, w.down
		})
		w.Manager = New(Config{
			Client: w.api.CertificatesV1(), Accounts: w.api.CoreV1(), Node: "edge-1", Recorder: w.events, Log: slog.New(slog.DiscardHandler),
			NodeUID: func(context.Context) (types.UID, error) { return "node", nil },
		})
		w.Subscribe(func(uid types.UID) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.news = append(w.news, uid)
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.Run(ctx) }()
		body(t, w)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func (w *world) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = err
}

// told returns who was told of a change since the last call.
func (w *world) told() string {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	news := w.news
	w.news = nil
	return fmt.Sprint(news)
}

func podOf(uid types.UID) *v1.Pod {
	source := v1.PodCertificateProjection{
		SignerName: "example.com/x", KeyType: "ED25519", MaxExpirationSeconds: new(int32(7200)), UserAnnotations: map[string]string{"example.com/a": "b"}, KeyPath: "k",
	}
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod-" + string(uid), UID: uid}}
	p.Spec.Volumes = []v1.Volume{
		{Name: "plain"},
		{Name: "tls", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{{}, {PodCertificate: &source}}}}},
	}
	return p
}

// requests returns those that nobody has answered yet.
func (w *world) requests() []certificatesv1.PodCertificateRequest {
	w.t.Helper()
	synctest.Wait()
	list, err := w.api.CertificatesV1().PodCertificateRequests("ns").List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return slices.DeleteFunc(list.Items, func(r certificatesv1.PodCertificateRequest) bool { return len(r.Status.Conditions) > 0 })
}

// open returns the one request that is not answered.
func (w *world) open() *certificatesv1.PodCertificateRequest {
	w.t.Helper()
	open := w.requests()
	if len(open) != 1 {
		w.t.Fatalf("%d requests are open", len(open))
	}
	return &open[0]
}

// answer gives the open request a condition.
func (w *world) answer(kind string, change func(*certificatesv1.PodCertificateRequestStatus)) {
	w.t.Helper()
	request := w.open()
	request.Status.Conditions = []metav1.Condition{{Type: kind, Status: metav1.ConditionTrue, Reason: "Because", Message: "so it is"}}
	if change != nil {
		change(&request.Status)
	}
	if _, err := w.api.CertificatesV1().PodCertificateRequests("ns").UpdateStatus(w.t.Context(), request, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	synctest.Wait()
}

// issue answers with a certificate of this content that lives for two hours and
// is due after one.
func (w *world) issue(content string) {
	w.t.Helper()
	now := time.Now()
	w.answer(certificatesv1.PodCertificateRequestConditionTypeIssued, func(s *certificatesv1.PodCertificateRequestStatus) {
		s.CertificateChain = "junk\n" + string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(content)}))
		s.BeginRefreshAt, s.NotAfter = &metav1.Time{Time: now.Add(time.Hour)}, &metav1.Time{Time: now.Add(2 * time.Hour)}
	})
}

// has returns the content of the pod's certificate, or why there is none.
func (w *world) has(pod *v1.Pod) string {
	w.t.Helper()
	synctest.Wait()
	c, err := w.PodCertificate(w.t.Context(), pod, "tls", 1)
	if err != nil {
		return err.Error()
	}
	block, rest := pem.Decode(c.Chain)
	if block == nil || len(rest) > 0 {
		w.t.Fatalf("the chain is %q", c.Chain)
	}
	return string(block.Bytes)
}

func (w *world) lastEvent() string {
	synctest.Wait()
	select {
	case e := <-w.events.Events:
		return e
	default:
		return ""
	}
}

func TestIssue(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		pod := podOf("1")
		if got := w.has(pod); got != "signer example.com/x: it is not issued yet" {
			t.Errorf("at first: %s", got)
		}
		request := w.open()
		proof, err := x509.ParseCertificateRequest(request.Spec.StubPKCS10Request)
		if err != nil || proof.CheckSignature() != nil {
			t.Errorf("proof of the key: %v, %v", err, proof)
		}
		request.Spec.StubPKCS10Request = nil
		want := certificatesv1.PodCertificateRequestSpec{
			SignerName: "example.com/x", PodName: "pod-1", PodUID: "1", ServiceAccountName: "default", ServiceAccountUID: "account",
			NodeName: "edge-1", NodeUID: "node", MaxExpirationSeconds: new(int32(7200)), UnverifiedUserAnnotations: map[string]string{"example.com/a": "b"},
		}
		if request.Spec.String() != want.String() || request.OwnerReferences[0].UID != "1" {
			t.Errorf("asked for %v", request)
		}

		w.issue("first")
		if got, told := w.has(pod), w.told(); got != "first" || told != "[1]" {
			t.Errorf("issued: %s, told %s", got, told)
		}
		before, _ := w.PodCertificate(t.Context(), pod, "tls", 1)
		block, _ := pem.Decode(before.Key)
		key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		if err != nil || fmt.Sprintf("%T", key) != "ed25519.PrivateKey" {
			t.Errorf("key: %T, %v", key, err)
		}

		time.Sleep(time.Hour)
		if n := len(w.requests()); n != 0 && jitter(key2(pod)) > look {
			t.Errorf("%d requests just when it is due", n)
		}
		time.Sleep(spread + look)
		if got := w.has(pod); got != "first" {
			t.Errorf("while it is renewed: %s", got)
		}
		w.issue("second")
		after, _ := w.PodCertificate(t.Context(), pod, "tls", 1)
		if got, told := w.has(pod), w.told(); got != "second" || told != "[1]" || bytes.Equal(before.Key, after.Key) {
			t.Errorf("renewed: %s, told %s, the same key: %v", got, told, bytes.Equal(before.Key, after.Key))
		}
		if event := w.lastEvent(); event != "" {
			t.Errorf("event %s", event)
		}
	})
}

func key2(pod *v1.Pod) key { return key{pod.UID, "tls", 1} }

func TestRefusal(t *testing.T) {
	for _, kind := range []string{certificatesv1.PodCertificateRequestConditionTypeDenied, certificatesv1.PodCertificateRequestConditionTypeFailed} {
		t.Run(kind, func(t *testing.T) {
			run(t, func(t *testing.T, w *world) {
				pod := podOf("1")
				w.has(pod)
				w.answer(kind, nil)
				if got, told := w.has(pod), w.told(); !strings.Contains(got, `reason="Because", message="so it is"`) || told != "[1]" {
					t.Errorf("%s, told %s", got, told)
				}
				if event := w.lastEvent(); !strings.HasPrefix(event, "Warning "+kind+" PodCertificateRequest ns/req-") {
					t.Errorf("event %q", event)
				}
				time.Sleep(24 * time.Hour)
				if n := len(w.requests()); n != 0 {
					t.Errorf("asked again %d times", n)
				}
			})
		})
	}
}

// TestTrouble holds that everything that is no refusal is tried again, with a new
// key, while the certificate of before serves.
func TestTrouble(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		pod := podOf("1")
		w.fail(errors.New("away"))
		w.has(pod)
		time.Sleep(10 * time.Second)
		if got := w.has(pod); !strings.Contains(got, ": away") {
			t.Errorf("the API is away: %s", got)
		}
		w.fail(nil)
		time.Sleep(time.Minute)

		t.Log("the request is deleted")
		name := w.open().Name
		if err := w.api.CertificatesV1().PodCertificateRequests("ns").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if again := w.open().Name; again == name {
			t.Error("it was not asked for again")
		}

		t.Log("an answer without a certificate")
		w.answer(certificatesv1.PodCertificateRequestConditionTypeIssued, nil)
		time.Sleep(time.Minute)
		if got := w.has(pod); !strings.Contains(got, "lacks a certificate") {
			t.Errorf("an empty answer: %s", got)
		}
		w.issue("at last")
		if got := w.has(pod); got != "at last" {
			t.Errorf("after all that: %s", got)
		}

		t.Log("nobody renews it")
		time.Sleep(time.Hour + overdue + spread)
		if event := w.lastEvent(); !strings.Contains(event, "CertificateOverdueForRefresh") {
			t.Errorf("event %q", event)
		}
		time.Sleep(time.Hour)
		if event := w.lastEvent(); !strings.Contains(event, "CertificateExpired") {
			t.Errorf("event %q", event)
		}
		if got := w.has(pod); got != "at last" {
			t.Errorf("expired: %s", got)
		}
	})
}

func TestRelease(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		pod := podOf("1")
		w.has(pod)
		w.has(podOf("2"))
		w.Release("1")
		if _, err := w.PodCertificate(t.Context(), pod, "plain", 0); err == nil {
			t.Error("a volume without certificates has one")
		}
		synctest.Wait()
		w.Manager.mu.Lock()
		left := len(w.Manager.mu.projections)
		w.Manager.mu.Unlock()
		if left != 1 {
			t.Errorf("%d are kept", left)
		}
	})
}

func TestMakeKey(t *testing.T) {
	for _, kind := range []string{"RSA3072", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"} {
		k, err := makeKey(kind)
		if err != nil {
			t.Error(err)
			continue
		}
		block, _ := pem.Decode(k.pem)
		if _, err := x509.ParsePKCS8PrivateKey(block.Bytes); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		if request, err := x509.ParseCertificateRequest(k.proof); err != nil || request.CheckSignature() != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if _, err := makeKey("DSA"); err == nil || !strings.Contains(err.Error(), `"DSA"`) {
		t.Errorf("err = %v", err)
	}
}
