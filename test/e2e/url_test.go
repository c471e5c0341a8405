package e2e

import (
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// A manifestServer serves one document with TLS, by an authority of its own, to
// who has the token.
type manifestServer struct {
	*httptest.Server
	config string // a node's configuration file that asks it

	mu     sync.Mutex
	body   string
	status int // 0: answer with the body
}

func newManifestServer(t *testing.T) *manifestServer {
	t.Helper()
	s := &manifestServer{}
	s.Server = httptest.NewTLSServer(s)
	t.Cleanup(s.Close)
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ca := write("ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})))
	s.config = write("node.yaml", fmt.Sprintf(`apiVersion: holdfast.dev/v1alpha1
kind: NodeConfiguration
manifestURL:
  url: %s/pods?token=hidden
  caFile: %s
  bearerTokenFile: %s
  headers: {X-Site: [north]}
  period: 1s
`, s.URL, ca, write("token", "sesame\n")))
	return s
}

func (s *manifestServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case r.Header.Get("Authorization") != "Bearer sesame" || r.Header.Get("X-Site") != "north":
		w.WriteHeader(http.StatusUnauthorized)
	case s.status != 0:
		w.WriteHeader(s.status)
	default:
		_, _ = w.Write([]byte(s.body))
	}
}

func (s *manifestServer) serve(body string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.body, s.status = body, 0
}

func TestManifestURL(t *testing.T) {
	t.Parallel()
	server := newManifestServer(t)
	both := demoPod("a", "serve", "") + "---\n" + demoPod("b", "serve", "")
	server.serve(both)
	n := newNode(t)
	n.flags = append(n.flags, "--config", server.config)
	n.up()

	shows := func(texts ...string) {
		t.Helper()
		n.eventually("status shows it", func() error {
			out, _ := n.try("status")
			if strings.Contains(out, "hidden") {
				t.Error("status shows a secret")
			}
			return wants(out, texts...)
		})
	}
	healthy := func() {
		t.Helper()
		n.eventually("nothing is wrong", func() error {
			if out, err := n.try("status"); err != nil {
				return errors.New(out)
			}
			return nil
		})
	}
	gone := func(names ...string) {
		t.Helper()
		n.eventually("it is gone", func() error {
			for _, name := range names {
				if n.pod(name) != nil {
					return errors.New(name + " is still there")
				}
			}
			return nil
		})
	}
	var before string
	now := func() string {
		t.Helper()
		return containers(n.running("a-edge-1")) + containers(n.running("b-edge-1"))
	}

	step(t, "they run", func(t *testing.T) {
		n.t = t
		before = now()
		pod := n.pod("a-edge-1")
		if got := pod.Annotations["kubernetes.io/config.source"]; got != "http" {
			t.Errorf("source: got %q, want http", got)
		}
		for _, p := range n.report().Pods {
			if p.Source != "http" {
				t.Errorf("pod %s of source %q", p.Name, p.Source)
			}
		}
	})

	step(t, "an empty answer keeps them", func(t *testing.T) {
		n.t = t
		server.serve("")
		shows(server.URL+"/pods", "the answer is empty")
		n.eventually("an event says it", func() error {
			return wants(n.kubectl("get", "events"), "InvalidManifest", "the answer is empty")
		})
		server.serve(both)
		healthy()
		n.eventually("an event says that it healed", func() error { return wants(n.kubectl("get", "events"), "ManifestHealed") })
		if got := now(); got != before {
			t.Errorf("containers changed:\n%swant\n%s", got, before)
		}
	})

	step(t, "one bad pod costs only itself", func(t *testing.T) {
		n.t = t
		server.serve(strings.Replace(both, "image:", "imago:", 1) + "---\n" + demoPod("c", "serve", ""))
		shows("Pod default/a", "imago")
		n.running("c-edge-1")
		server.serve(both)
		gone("c-edge-1")
		healthy()
		if got := now(); got != before {
			t.Errorf("containers changed:\n%swant\n%s", got, before)
		}
	})

	step(t, "the folder goes on beside it", func(t *testing.T) {
		n.t = t
		n.write("f.yaml", demoPod("f", "serve", ""))
		n.running("f-edge-1")
		n.remove("f.yaml")
		gone("f-edge-1")
	})

	step(t, "without the server they run on, after a restart too", func(t *testing.T) {
		n.t = t
		server.mu.Lock()
		server.status = http.StatusServiceUnavailable
		server.mu.Unlock()
		shows("503 Service Unavailable")
		kill(t, n.report().PID)
		n.up()
		shows("503 Service Unavailable")
		if out, _ := n.try("sources"); wants(out, "http", "restored", server.URL+"/pods") != nil || strings.Contains(out, "hidden") {
			t.Errorf("sources:\n%s", out)
		}
		if got := now(); got != before {
			t.Errorf("containers changed:\n%swant\n%s", got, before)
		}
		n.holdfast("down") // and from nothing
		n.up()
		n.running("a-edge-1")
		n.running("b-edge-1")
		server.serve(both)
		healthy()
	})

	step(t, "what the server no longer names goes", func(t *testing.T) {
		n.t = t
		server.serve(demoPod("b", "serve", ""))
		gone("a-edge-1")
		n.running("b-edge-1")
	})

	step(t, "only an empty list takes the last one away", func(t *testing.T) {
		n.t = t
		server.serve("apiVersion: v1\nkind: List\nitems: []\n")
		gone("b-edge-1")
		healthy()
	})

	step(t, "a URL that never answers holds nobody up", func(t *testing.T) {
		other := newNode(t)
		other.name = "edge-2"
		other.flags = append(other.flags, "--manifest-url", "http://127.0.0.1:1/pods")
		other.up()
		other.write("f.yaml", demoPod("f", "serve", ""))
		other.running("f-edge-2")
		out, err := other.try("status")
		if err == nil {
			t.Error("status finds nothing wrong")
		}
		if err := wants(out, "http://127.0.0.1:1/pods", "has never answered", "connection refused"); err != nil {
			t.Error(err)
		}
		other.remove("f.yaml")
		other.eventually("it has ended", func() error {
			if pods := other.report().Pods; len(pods) != 0 {
				return fmt.Errorf("%+v", pods)
			}
			return nil
		})
	})
}
