package server

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// client-go keeps its klog flusher for the life of the process.
		goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"),
		// A closed SPDY connection waits up to a second for somebody to take its error.
		goleak.IgnoreTopFunction("github.com/moby/spdystream.(*Connection).shutdown"))
}

// ca signs certificates for one test.
type ca struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newCA(t *testing.T) *ca {
	t.Helper()
	c := &ca{t: t}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	pair := c.sign(template)
	c.cert, c.key = pair.Leaf, pair.PrivateKey.(*ecdsa.PrivateKey)
	return c
}

// sign signs a certificate with the CA's key, or with its own if there is no
// CA yet.
func (c *ca) sign(template *x509.Certificate) tls.Certificate {
	c.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		c.t.Fatal(err)
	}
	parent, by := c.cert, c.key
	if parent == nil {
		parent, by = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
	if err != nil {
		c.t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		c.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func (c *ca) issue(name string, usage x509.ExtKeyUsage, groups ...string) tls.Certificate {
	return c.sign(&x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{usage}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	})
}

func (c *ca) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(c.cert)
	return pool
}

// fakeAPI reviews tokens and access.
type fakeAPI struct {
	mu      sync.Mutex
	down    bool
	tokens  map[string]user
	allowed map[string][]string // "verb subresource" by user
	reviews []string            // access reviews asked for
	asked   int                 // token reviews asked for
}

type tokenAPI struct{ *fakeAPI }

func (f tokenAPI) Create(_ context.Context, review *authenticationv1.TokenReview, _ metav1.CreateOptions) (*authenticationv1.TokenReview, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	if f.down {
		return nil, errors.New("connection refused")
	}
	who, ok := f.tokens[review.Spec.Token]
	review.Status.Authenticated, review.Status.User = ok, who
	return review, nil
}

type accessAPI struct{ *fakeAPI }

func (f accessAPI) Create(_ context.Context, review *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return nil, errors.New("connection refused")
	}
	at := review.Spec.ResourceAttributes
	what := at.Verb + " " + at.Subresource
	f.reviews = append(f.reviews, review.Spec.User+": "+what+" of "+at.Resource+" "+at.Name)
	allowed := f.allowed[review.Spec.User]
	for _, group := range review.Spec.Groups {
		allowed = append(allowed, f.allowed["group "+group]...)
	}
	review.Status.Allowed = slices.Contains(allowed, what) || slices.Contains(allowed, "*")
	return review, nil
}

func (f *fakeAPI) asks() (tokens int, reviews []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked, slices.Clone(f.reviews)
}

// fakeNode is the pods of a node and what their runtime reports.
type fakeNode struct {
	mu       sync.Mutex
	pods     []*v1.Pod
	statuses map[types.UID]*observed.Status
	listed   []observed.Pod
}

func (f *fakeNode) Pods() []*v1.Pod { return f.pods }

func (f *fakeNode) PodByName(namespace, name string) (*v1.Pod, bool) {
	for _, pod := range f.pods {
		if pod.Namespace == namespace && pod.Name == name {
			return pod, true
		}
	}
	return nil, false
}

func (f *fakeNode) Get(uid types.UID) (*observed.Status, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if status, ok := f.statuses[uid]; ok {
		return status, nil
	}
	return &observed.Status{UID: uid}, nil
}

func (f *fakeNode) set(status *observed.Status) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.statuses[status.UID] = status
}

type fakeRelist struct{ *fakeNode }

func (f fakeRelist) Pods() []observed.Pod { return f.listed }

// rig is a running Server among fakes.
type rig struct {
	t      *testing.T
	ca     *ca
	api    *fakeAPI
	node   *fakeNode
	logDir string
	url    string // https://127.0.0.1:port
	health string // http://127.0.0.1:port
	cfg    Config
	stop   func() error // stops the server and returns what Run did
}

func newRig(t *testing.T, change func(*Config)) *rig {
	t.Helper()
	r := &rig{
		t: t, ca: newCA(t), logDir: t.TempDir(),
		api: &fakeAPI{
			tokens:  map[string]user{"admin-token": {Username: "admin"}, "nobody-token": {Username: "nobody"}},
			allowed: map[string][]string{"admin": {"*"}},
		},
	}
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "u1"},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "app"}, {Name: "side"}}, InitContainers: []v1.Container{{Name: "init"}}},
		Status: v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{
			Name: "side", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "Back-off pulling image"}},
		}}},
	}
	r.node = &fakeNode{pods: []*v1.Pod{pod}, statuses: map[types.UID]*observed.Status{}}
	r.node.set(&observed.Status{
		UID:       "u1",
		Sandboxes: []*runtimeapi.PodSandboxStatus{{Id: "sandbox1", State: runtimeapi.PodSandboxState_SANDBOX_READY}},
		Containers: []observed.ContainerStatus{
			{ID: "c2", Name: "app", State: observed.Running, LogPath: filepath.Join(r.logDir, "web/app/1.log")},
			{ID: "c1", Name: "app", State: observed.Exited, LogPath: filepath.Join(r.logDir, "web/app/0.log")},
		},
	})
	serving := r.ca.issue("node", x509.ExtKeyUsageServerAuth)
	r.cfg = Config{
		Listeners: []net.Listener{listen(t), listen(t)}, HealthListener: listen(t),
		Certificate:  func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &serving, nil },
		ClientCAs:    r.ca.pool,
		TokenReviews: tokenAPI{r.api}, AccessReview: accessAPI{r.api},
		Node: "n1", Pods: r.node, Statuses: r.node, Relist: fakeRelist{r.node},
		LogDir: r.logDir, Metrics: prometheus.NewRegistry(), Probes: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&r.cfg)
	}
	r.url = "https://" + r.cfg.Listeners[1].Addr().String()
	r.health = "http://" + r.cfg.HealthListener.Addr().String()

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- New(r.cfg).Run(ctx) }()
	r.stop = sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return r
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// client trusts the rig's server and has a client certificate, if one is given.
func (r *rig) client(certs ...tls.Certificate) *http.Client {
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: r.ca.pool(), Certificates: certs}}
	r.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// do sends a request and returns the status, the headers and the body.
func (r *rig) do(client *http.Client, method, url, token string) (int, http.Header, string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, url, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(body)
}

func (r *rig) get(path string) (int, string) {
	r.t.Helper()
	code, _, body := r.do(r.client(), http.MethodGet, r.url+path, "admin-token")
	return code, strings.TrimSpace(body)
}

// writeLog puts a log file into the log folder.
func (r *rig) writeLog(name, content string) {
	r.t.Helper()
	path := filepath.Join(r.logDir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		r.t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o640)
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := f.WriteString(content); err != nil {
		r.t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		r.t.Fatal(err)
	}
}
