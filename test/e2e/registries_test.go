package e2e

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	imagev1 "github.com/google/go-containerregistry/pkg/v1"
)

// The credentials of the test's registry.
const registryUser, registryPassword = "ann", "secret"

// newRegistry serves a registry on loopback, with TLS by an authority of its
// own, to who knows the password. It holds the demo image as app:1. httptest's
// certificate is for 127.0.0.1 and example.com.
func newRegistry(t *testing.T) (address, caFile string) {
	t.Helper()
	open := registry.New()
	for _, req := range pushes(t, "app", "1", demoArchive(t, "example.com/app:1")) {
		answer := httptest.NewRecorder()
		open.ServeHTTP(answer, req)
		if answer.Code != http.StatusCreated {
			t.Fatalf("%s %s: %d %s", req.Method, req.URL, answer.Code, answer.Body)
		}
	}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		user, password, _ := req.BasicAuth()
		if user != registryUser || password != registryPassword {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			http.Error(w, `{"errors":[{"code":"UNAUTHORIZED"}]}`, http.StatusUnauthorized)
			return
		}
		open.ServeHTTP(w, req)
	}))
	t.Cleanup(server.Close)
	caFile = filepath.Join(t.TempDir(), "ca.pem")
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(caFile, ca, 0o644); err != nil {
		t.Fatal(err)
	}
	return server.Listener.Addr().String(), caFile
}

// pushes returns the requests that put an archive's image into a registry.
func pushes(t *testing.T, repo, tag string, archive []byte) (reqs []*http.Request) {
	t.Helper()
	blobs := map[string][]byte{}
	for tr := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if blobs[h.Name], err = io.ReadAll(tr); err != nil {
			t.Fatal(err)
		}
	}
	for name, data := range blobs {
		if strings.HasPrefix(name, "blobs/") {
			reqs = append(reqs, httptest.NewRequest(http.MethodPost, "/v2/"+repo+"/blobs/uploads/?digest=sha256:"+path.Base(name), bytes.NewReader(data)))
		}
	}
	var index imagev1.IndexManifest
	if err := json.Unmarshal(blobs["index.json"], &index); err != nil {
		t.Fatal(err)
	}
	m := index.Manifests[0]
	req := httptest.NewRequest(http.MethodPut, "/v2/"+repo+"/manifests/"+tag, bytes.NewReader(blobs["blobs/sha256/"+m.Digest.Hex]))
	req.Header.Set("Content-Type", string(m.MediaType))
	return append(reqs, req)
}

// A proxy takes every CONNECT to one address.
type proxy struct {
	target string
	mu     sync.Mutex
	asked  []string
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	p.mu.Lock()
	p.asked = append(p.asked, req.Method+" "+req.Host)
	p.mu.Unlock()
	var d net.Dialer
	to, err := d.DialContext(req.Context(), "tcp", p.target)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer to.Close()
	from, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer from.Close()
	if _, err := io.WriteString(from, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(to, from)
		_ = to.Close()
	}()
	_, _ = io.Copy(from, to)
	_ = from.Close()
	<-done
}

// TestRegistries pulls through a mirror with an authority and a password of its
// own, and then through a proxy, which leaves the pods alone.
func TestRegistries(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	address, caFile := newRegistry(t)
	through := &proxy{target: address}
	proxyServer := httptest.NewServer(through)
	t.Cleanup(proxyServer.Close)
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte(registryPassword+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "node.yaml")
	images := fmt.Sprintf(`apiVersion: holdfast.dev/v1alpha1
kind: NodeConfiguration
images:
  mirrors:
  - registry: registry.example
    endpoints: [{url: "https://%s", caFile: %s}]
  - registry: example.com
    endpoints: [{url: "https://example.com", caFile: %s}]
  credentials:
  - {registry: registry.example, username: %s, passwordFile: %s}
  - {registry: example.com, username: %s, passwordFile: %s}
`, address, caFile, caFile, registryUser, password, registryUser, password)
	start := func(text string) (string, error) {
		t.Helper()
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return n.try("up", "--detach", "--config", config, "--node-name", n.name, "--api-port", "0", "--kubelet-port", "0")
	}

	// What is wrong is said by its field, before anything starts.
	out, err := start(strings.ReplaceAll(images, caFile, "/none.pem"))
	if err == nil {
		t.Fatal("it starts without the authority's certificate")
	}
	if err := wants(out, "images.mirrors[0].endpoints[0].caFile: open /none.pem", "images.mirrors[1].endpoints[0].caFile",
		"images.credentials[0].passwordFile: "+password+" has mode 0644", "chmod 600"); err != nil {
		t.Error(err)
	}
	if err := os.Chmod(password, 0o600); err != nil {
		t.Fatal(err)
	}

	if out, err := start(images); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	n.kubectl("run", "mirrored", "--image=registry.example/app:1")
	before := containers(n.running("mirrored"))

	// A change of the proxy needs another containerd, and no other pods.
	kill(t, n.report().PID)
	if out, err := start(images + "  proxy: {httpsProxy: \"" + proxyServer.URL + "\"}\n"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	n.kubectl("run", "proxied", "--image=example.com/app:1")
	n.running("proxied")
	if got := containers(n.running("mirrored")); got != before {
		t.Errorf("got containers %s, want %s", got, before)
	}
	through.mu.Lock()
	defer through.mu.Unlock()
	if err := wants(strings.Join(through.asked, "\n"), "CONNECT example.com:443"); err != nil {
		t.Error(err)
	}
	n.kubectl("delete", "pod", "mirrored", "proxied", "--timeout=3m")
}
