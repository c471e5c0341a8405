package server

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestAttributes(t *testing.T) {
	tests := []struct {
		method, path string
		verb         string
		need         []string
	}{
		{"GET", "/stats/summary", "get", []string{"stats"}},
		{"GET", "/metrics", "get", []string{"metrics"}},
		{"GET", "/metrics/resource", "get", []string{"metrics"}},
		{"GET", "/metrics/cadvisor", "get", []string{"metrics"}},
		{"GET", "/metricsX", "get", []string{"proxy"}},
		{"GET", "/logs/", "get", []string{"log"}},
		{"POST", "/checkpoint/a/b/c", "create", []string{"checkpoint"}},
		{"GET", "/statusz", "get", []string{"statusz"}},
		{"GET", "/flagz", "get", []string{"configz"}},
		{"GET", "/pods", "get", []string{"pods", "proxy"}},
		{"GET", "/pods/", "get", []string{"pods", "proxy"}},
		{"GET", "/podsandmore", "get", []string{"proxy"}},
		{"GET", "/runningpods/", "get", []string{"pods", "proxy"}},
		{"GET", "/allocatedPods", "get", []string{"pods", "proxy"}},
		{"GET", "/healthz/ping", "get", []string{"healthz", "proxy"}},
		{"GET", "/configz", "get", []string{"configz", "proxy"}},
		{"POST", "/exec/ns/pod/c", "create", []string{"proxy"}},
		{"PUT", "/exec/ns/pod/c", "update", []string{"proxy"}},
		{"PATCH", "/", "patch", []string{"proxy"}},
		{"DELETE", "/containerLogs/a/b/c", "delete", []string{"proxy"}},
		{"OPTIONS", "/pods", "", []string{"pods", "proxy"}},
	}
	for _, tt := range tests {
		verb, need := attributes(tt.method, tt.path)
		if verb != tt.verb || !slices.Equal(need, tt.need) {
			t.Errorf("%s %s = %q, %q, want %q, %q", tt.method, tt.path, verb, need, tt.verb, tt.need)
		}
	}
}

func TestWhoGetsIn(t *testing.T) {
	r := newRig(t, nil)
	r.api.allowed["group readers"] = []string{"get pods"}
	r.api.allowed["proxier"] = []string{"get proxy"}
	stranger := newCA(t)
	tests := []struct {
		name   string
		certs  []tls.Certificate
		token  string
		method string
		path   string
		code   int
		body   string
	}{
		{"nobody", nil, "", "GET", "/pods", 401, "Unauthorized"},
		{"nobody asks for health", nil, "", "GET", "/healthz", 401, "Unauthorized"},
		{"nobody asks for what does not exist", nil, "", "GET", "/x", 401, "Unauthorized"},
		{"unknown token", nil, "forged", "GET", "/pods", 401, "Unauthorized"},
		{"token", nil, "admin-token", "GET", "/healthz", 200, "ok"},
		{"token without rights", nil, "nobody-token", "GET", "/pods", 403, "Forbidden (user=nobody, verb=get, resource=nodes, subresource(s)=[pods proxy])"},
		{"token without rights for a command", nil, "nobody-token", "POST", "/exec/default/web/app", 403, "Forbidden (user=nobody, verb=create, resource=nodes, subresource(s)=[proxy])"},
		{"certificate", []tls.Certificate{r.ca.issue("admin", x509.ExtKeyUsageClientAuth)}, "", "GET", "/healthz", 200, "ok"},
		{"certificate's group", []tls.Certificate{r.ca.issue("jane", x509.ExtKeyUsageClientAuth, "readers")}, "", "GET", "/pods", 200, `{"kind":"PodList"`},
		{"certificate's group elsewhere", []tls.Certificate{r.ca.issue("jane", x509.ExtKeyUsageClientAuth, "readers")}, "", "GET", "/metrics", 403, "Forbidden"},
		{"second subresource", []tls.Certificate{r.ca.issue("proxier", x509.ExtKeyUsageClientAuth)}, "", "GET", "/pods", 200, `{"kind":"PodList"`},
		{"certificate for serving", []tls.Certificate{r.ca.issue("admin", x509.ExtKeyUsageServerAuth)}, "", "GET", "/healthz", 401, "Unauthorized"},
		{"certificate of a stranger", []tls.Certificate{stranger.issue("admin", x509.ExtKeyUsageClientAuth)}, "", "GET", "/healthz", 401, "Unauthorized"},
		{"certificate without a name", []tls.Certificate{r.ca.issue("", x509.ExtKeyUsageClientAuth, "system:masters")}, "", "GET", "/healthz", 401, "Unauthorized"},
		{"certificate of a stranger and a token", []tls.Certificate{stranger.issue("admin", x509.ExtKeyUsageClientAuth)}, "admin-token", "GET", "/healthz", 200, "ok"},
		{"wrong method", nil, "admin-token", "POST", "/pods", 405, "Method Not Allowed"},
		{"no such path", nil, "admin-token", "GET", "/x", 404, "404"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			code, header, body := r.do(r.client(tt.certs...), tt.method, r.url+tt.path, tt.token)
			if code != tt.code || !strings.HasPrefix(body, tt.body) {
				t.Errorf("%s %s = %d %q, want %d %q", tt.method, tt.path, code, body, tt.code, tt.body)
			}
			if code == 405 && header.Get("Allow") != "GET" {
				t.Errorf("Allow = %q, want GET", header.Get("Allow"))
			}
		})
	}
}

func TestAPIDown(t *testing.T) {
	r := newRig(t, nil)
	r.api.down = true
	if code, _ := r.get("/pods"); code != 401 {
		t.Errorf("token that cannot be reviewed: %d, want 401", code)
	}
	code, _, body := r.do(r.client(r.ca.issue("admin", x509.ExtKeyUsageClientAuth)), http.MethodGet, r.url+"/pods", "")
	if code != 500 || !strings.HasPrefix(body, "Authorization error (user=admin, verb=get") {
		t.Errorf("access that cannot be reviewed: %d %q, want 500", code, body)
	}
}

func TestReviewsAreRemembered(t *testing.T) {
	r := newRig(t, nil)
	for range 3 {
		if code, _ := r.get("/pods"); code != 200 {
			t.Fatalf("GET /pods = %d", code)
		}
	}
	tokens, reviews := r.api.asks()
	if tokens != 1 {
		t.Errorf("%d token reviews, want 1", tokens)
	}
	if diff := cmp.Diff([]string{"admin: get pods of nodes n1"}, reviews); diff != "" {
		t.Errorf("access reviews (-want +got):\n%s", diff)
	}
}

func TestCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache[int, string]()
		c.put(1, "one", time.Minute)
		time.Sleep(time.Minute)
		if got, ok := c.get(1); !ok || got != "one" {
			t.Errorf("after its time to live: %q, %t", got, ok)
		}
		time.Sleep(time.Nanosecond)
		if got, ok := c.get(1); ok {
			t.Errorf("past its time to live: %q", got)
		}
		for i := range 3 * maxCached {
			c.put(i, "", time.Hour)
		}
		if len(c.entries) > maxCached {
			t.Errorf("%d entries, want %d at most", len(c.entries), maxCached)
		}
	})
}
