package server

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestTooManyRequests(t *testing.T) {
	s := sessions{idle: make(chan struct{})}
	for i := range maxRequests {
		if why := s.enter(); why != "" {
			t.Fatalf("request %d: %s", i, why)
		}
	}
	if s.enter() == "" {
		t.Errorf("request %d was let in", maxRequests+1)
	}
	s.leave()
	if why := s.enter(); why != "" {
		t.Errorf("after another one's end: %s", why)
	}
	s.close()
	for range maxRequests {
		if s.enter() == "" {
			t.Fatal("a request was let in after close")
		}
		s.leave()
	}
	<-s.idle
}

func TestTooManyConnections(t *testing.T) {
	c := &conns{open: map[*conn]struct{}{}}
	var last *conn
	for i := range maxConnections {
		if last = c.add(nopConn{}); last == nil {
			t.Fatalf("connection %d was refused", i)
		}
	}
	if c.add(nopConn{}) != nil {
		t.Errorf("connection %d was accepted", maxConnections+1)
	}
	if err := last.Close(); err != nil {
		t.Fatal(err)
	}
	if c.add(nopConn{}) == nil {
		t.Error("a connection was refused after another one's end")
	}
}

type nopConn struct{ net.Conn }

func (nopConn) Close() error { return nil }

// TestLargeHeader checks that headers are bounded.
func TestLargeHeader(t *testing.T) {
	r := newRig(t, nil)
	client := r.client()
	// Over HTTP/1.1: HTTP/2 ends the stream, without an answer.
	client.Transport.(*http.Transport).TLSClientConfig.NextProtos = []string{"http/1.1"}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+"/healthz", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Large", strings.Repeat("x", 2*maxHeaderBytes))
	resp, err := client.Do(req)
	if err != nil {
		return // the connection was closed while the client still wrote
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("GET with a header of %d bytes = %d, want 431", 2*maxHeaderBytes, resp.StatusCode)
	}
}

// TestIdleSessions checks that sessions are closed when nothing goes over them,
// and other connections, which the HTTP server closes, are not.
func TestIdleSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &conns{open: map[*conn]struct{}{}}
		var closed [3]atomic.Bool
		var ends []*conn
		for i := range closed {
			near, far := net.Pipe()
			ends = append(ends, c.add(near))
			go func() {
				_, _ = io.Copy(io.Discard, far)
				closed[i].Store(true)
			}()
		}
		silent, used, request := ends[0], ends[1], ends[2]
		for _, session := range []*conn{silent, used} {
			c.state(session, http.StateHijacked)
		}
		c.state(request, http.StateActive)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go c.closeIdle(ctx, time.Hour)
		for range 10 {
			time.Sleep(20 * time.Minute)
			if _, err := used.Write([]byte("x")); err != nil {
				t.Fatalf("a session that is used: %v", err)
			}
		}
		synctest.Wait()
		if got := [3]bool{closed[0].Load(), closed[1].Load(), closed[2].Load()}; got != [3]bool{true, false, false} {
			t.Errorf("closed: silent, used, no session: %v, want the first alone", got)
		}
		for _, end := range ends {
			_ = end.Close()
		}
		if len(c.open) != 0 {
			t.Errorf("%d connections are remembered after their end", len(c.open))
		}
	})
}

func TestRequestsAreCounted(t *testing.T) {
	registry := prometheus.NewRegistry()
	r := newRig(t, func(cfg *Config) { cfg.Registerer = registry })
	r.get("/pods")
	r.get("/metrics/none")
	if code, _, _ := r.do(r.client(), "ODD", r.url+"/x", "admin-token"); code == http.StatusOK {
		t.Error("ODD /x = 200")
	}
	if err := r.stop(); err != nil { // after which all are counted
		t.Fatal(err)
	}
	want := `
# HELP kubelet_http_requests_total Requests to the kubelet's API since it began.
# TYPE kubelet_http_requests_total counter
kubelet_http_requests_total{long_running="false",method="GET",path="other",server_type="readwrite"} 1
kubelet_http_requests_total{long_running="false",method="GET",path="pods",server_type="readwrite"} 1
kubelet_http_requests_total{long_running="false",method="other",path="other",server_type="readwrite"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "kubelet_http_requests_total"); err != nil {
		t.Error(err)
	}
	if n, err := testutil.GatherAndCount(registry, "kubelet_http_requests_duration_seconds"); n != 3 || err != nil {
		t.Errorf("%d series of durations, %v, want 3", n, err)
	}
}

func TestHealthIsCounted(t *testing.T) {
	r := newRig(t, func(cfg *Config) { cfg.Checks = []Check{{"syncloop", func() error { return io.EOF }}} })
	r.get("/healthz")
	r.get("/healthz/ping")
	_, body := r.get("/metrics/slis")
	for _, line := range []string{
		`kubernetes_healthcheck{name="syncloop",type="healthz"} 0`,
		`kubernetes_healthcheck{name="ping",type="healthz"} 1`,
		`kubernetes_healthchecks_total{name="ping",status="success",type="healthz"} 2`,
		`kubernetes_healthchecks_total{name="syncloop",status="error",type="healthz"} 1`,
	} {
		if !strings.Contains(body, line) {
			t.Errorf("/metrics/slis has no %s:\n%s", line, body)
		}
	}
	if code, _, body := r.ask(http.MethodDelete, "/metrics/slis", "", http.NoBody); gotten(code, body) != "200 metrics reset" {
		t.Errorf("DELETE /metrics/slis = %d %q", code, body)
	}
	if _, body := r.get("/metrics/slis"); strings.Contains(body, "ping") {
		t.Errorf("after DELETE:\n%s", body)
	}
}
