package controlplane

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/holdfast-dev/holdfast/internal/localapi/pki"
)

// nodeRequest is what a kubelet asks for its certificate with.
func nodeRequest(t *testing.T, node string) (keyPEM, csrPEM []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}},
	}, key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: csr})
}

const (
	aggregatedGroup = "things.test"
	aggregatedPath  = "/apis/" + aggregatedGroup + "/v1"
)

// testAggregation: a server in another network namespace is behind a service
// of no pod; the aggregator reaches it by its endpoint, says who asks, and
// takes it away when the endpoint is gone.
func testAggregation(t *testing.T, c *Test, admin kubernetes.Interface, space netns) {
	port := serveThings(t, c, space)
	ctx := t.Context()
	_, err := admin.CoreV1().Services("default").Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "things"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "https", Port: 443}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	name, ready := "https", true
	slice, err := admin.DiscoveryV1().EndpointSlices("default").Create(ctx, &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "things-1", Labels: map[string]string{discoveryv1.LabelServiceName: "things"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{space.far}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	rest := admin.Discovery().RESTClient()
	body, err := json.Marshal(map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
		"metadata": map[string]any{"name": "v1." + aggregatedGroup},
		"spec": map[string]any{
			"group": aggregatedGroup, "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 100,
			"caBundle": c.CA(), // JSON has it in base64
			"service":  map[string]any{"namespace": "default", "name": "things"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	err = rest.Post().AbsPath("/apis/apiregistration.k8s.io/v1/apiservices").SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error()
	if err != nil {
		t.Fatal(err)
	}

	c.Eventually("the aggregated API answers", func(ctx context.Context) (bool, error) {
		got, err := rest.Get().AbsPath(aggregatedPath, "whoami").DoRaw(ctx)
		if err != nil {
			return false, err
		}
		if string(got) != "kubernetes-admin" {
			return false, fmt.Errorf("the server behind was told %q", got)
		}
		return true, nil
	})
	if err := admin.DiscoveryV1().EndpointSlices("default").Delete(ctx, slice.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.Eventually("the aggregated API is gone with its endpoint", func(ctx context.Context) (bool, error) {
		_, err := rest.Get().AbsPath(aggregatedPath, "whoami").DoRaw(ctx)
		return err != nil, nil
	})
}

// serveThings serves a small API in space, to the aggregator alone, and
// returns its port.
func serveThings(t *testing.T, c *Test, space netns) int32 {
	t.Helper()
	pair, err := issue(c.ca, pki.Request{File: "things", User: "things", Names: []string{"things.default.svc"}})
	if err != nil {
		t.Fatal(err)
	}
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	proxyCA, err := os.ReadFile(c.creds.proxyCA)
	if err != nil {
		t.Fatal(err)
	}
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(proxyCA)
	var listener net.Listener
	if err := space.do(func() error {
		listener, err = net.Listen("tcp4", space.far+":0")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	server := &http.Server{
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert},
		Handler:   http.HandlerFunc(things),
	}
	done := make(chan error, 1)
	go func() { done <- server.ServeTLS(listener, "", "") }()
	t.Cleanup(func() {
		_ = server.Close() // what is open is a client's
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return int32(listener.Addr().(*net.TCPAddr).Port) //nolint:gosec // a port
}

func things(w http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.URL.Path, "/whoami") {
		fmt.Fprint(w, r.Header.Get("X-Remote-User"))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"%s/v1","resources":[]}`, aggregatedGroup)
}
