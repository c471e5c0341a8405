package probehandler

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	grpchealth "google.golang.org/grpc/health"
	health "google.golang.org/grpc/health/grpc_health_v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeExec runs `code N` and `sleep`; what is said comes back as output.
type fakeExec struct{}

func (fakeExec) ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (stdout, stderr []byte, exitCode int32, err error) {
	switch cmd[0] {
	case "sleep":
		select {
		case <-ctx.Done():
			return nil, nil, 0, ctx.Err()
		default:
			return nil, nil, 0, fmt.Errorf("command %q timed out after %s: %w", cmd, timeout, context.DeadlineExceeded)
		}
	case "broken":
		return nil, nil, 0, errors.New("container not found")
	case "ok":
		return []byte("fine"), nil, 0, nil
	default:
		return []byte(strings.Join(cmd, "|")), []byte("@" + id), 1, nil
	}
}

// portIn returns the port of an address or URL.
func portIn(t *testing.T, addr string) int32 {
	t.Helper()
	if u, err := url.Parse(addr); err == nil && u.Host != "" {
		addr = u.Host
	}
	tcp, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return int32(tcp.Port)
}

// closedPort returns a port on which nobody listens.
func closedPort(t *testing.T) int32 {
	t.Helper()
	l := listen(t)
	defer func() { _ = l.Close() }()
	return portIn(t, l.Addr().String())
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

type want struct {
	ok     bool
	output string // a part of it; empty: no output
	err    string // a part of it; empty: none
}

func check(t *testing.T, probe v1.Probe, c *v1.Container, ip string, want want) {
	t.Helper()
	ok, output, err := New(fakeExec{}, "v1.37.2").Probe(t.Context(), &probe, c, "c1", ip)
	if (err != nil) != (want.err != "") || (err != nil && !strings.Contains(err.Error(), want.err)) {
		t.Errorf("error %v, want %q", err, want.err)
	}
	if ok != want.ok || (want.output == "") != (output == "") || !strings.Contains(output, want.output) {
		t.Errorf("probe = %t, %q, want %t, %q", ok, output, want.ok, want.output)
	}
}

func TestExec(t *testing.T) {
	c := &v1.Container{Env: []v1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", ValueFrom: &v1.EnvVarSource{}}}}
	tests := []struct {
		name string
		cmd  []string
		want want
	}{
		{"ends with 0", []string{"ok"}, want{ok: true}},
		{"ends with 1", []string{"code", "1"}, want{output: "code|1@c1"}},
		{"variables", []string{"a=$(A)", "b=$(B)", "$$(A)"}, want{output: "a=1|b=$(B)|$(A)@c1"}},
		{"takes too long", []string{"sleep"}, want{output: "timed out after 3s"}},
		{"cannot run", []string{"broken"}, want{err: "container not found"}},
		{"says too much", []string{strings.Repeat("x", 2*maxOutput)}, want{output: strings.Repeat("x", maxOutput)}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			check(t, v1.Probe{TimeoutSeconds: 3, ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: tt.cmd}}}, c, "", tt.want)
		})
	}
}

func TestHTTPGet(t *testing.T) {
	var mu sync.Mutex
	var seen http.Request
	release := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/ok", func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen = *r
	})
	mux.HandleFunc("/bad", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "secret", 500) })
	mux.HandleFunc("/slow", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("/here", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/bad", http.StatusFound) })
	mux.HandleFunc("/away", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://other.example/", http.StatusFound)
	})
	mux.HandleFunc("/loop", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/loop", http.StatusFound) })
	mux.HandleFunc("/big", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 4*maxOutput)) })
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(release) })
	secure := httptest.NewTLSServer(mux)
	t.Cleanup(secure.Close)
	h2c := httptest.NewUnstartedServer(mux)
	h2c.Config.Protocols = new(http.Protocols)
	h2c.Config.Protocols.SetUnencryptedHTTP2(true)
	h2c.Start()
	t.Cleanup(h2c.Close)
	c := &v1.Container{Ports: []v1.ContainerPort{{Name: "web", ContainerPort: portIn(t, server.URL)}}}

	tests := []struct {
		name   string
		action v1.HTTPGetAction
		ip     string
		want   want
	}{
		{"ok", v1.HTTPGetAction{Path: "/ok?a=b"}, "127.0.0.1", want{ok: true}},
		{"no slash", v1.HTTPGetAction{Path: "ok"}, "127.0.0.1", want{ok: true}},
		{"by name", v1.HTTPGetAction{Path: "/ok", Port: intstr.FromString("web")}, "127.0.0.1", want{ok: true}},
		{"unknown name", v1.HTTPGetAction{Path: "/ok", Port: intstr.FromString("db")}, "127.0.0.1", want{err: `port "db" not found`}},
		{"of another host", v1.HTTPGetAction{Path: "/ok", Host: "127.0.0.1"}, "", want{ok: true}},
		{"no address", v1.HTTPGetAction{Path: "/ok"}, "", want{err: "no address"}},
		{"500", v1.HTTPGetAction{Path: "/bad"}, "127.0.0.1", want{output: "HTTP probe failed with statuscode: 500"}},
		{"404", v1.HTTPGetAction{Path: "/none"}, "127.0.0.1", want{output: "HTTP probe failed with statuscode: 404"}},
		{"takes too long", v1.HTTPGetAction{Path: "/slow"}, "127.0.0.1", want{output: "context deadline exceeded"}},
		{"redirect on the host", v1.HTTPGetAction{Path: "/here"}, "127.0.0.1", want{output: "statuscode: 500"}},
		{"redirect away", v1.HTTPGetAction{Path: "/away"}, "127.0.0.1", want{ok: true, output: "Probe terminated redirects"}},
		{"redirect for ever", v1.HTTPGetAction{Path: "/loop"}, "127.0.0.1", want{output: "stopped after 10 redirects"}},
		{"big answer", v1.HTTPGetAction{Path: "/big"}, "127.0.0.1", want{ok: true}},
		{"TLS", v1.HTTPGetAction{Path: "/ok", Scheme: v1.URISchemeHTTPS, Port: intstr.FromInt32(portIn(t, secure.URL))}, "127.0.0.1", want{ok: true}},
		{"HTTP/2 in the clear", v1.HTTPGetAction{Path: "/ok", Protocol: new(v1.HTTPProtocolHTTP2), Port: intstr.FromInt32(portIn(t, h2c.URL))}, "127.0.0.1", want{ok: true}},
		{"nobody listens", v1.HTTPGetAction{Path: "/ok", Port: intstr.FromInt32(closedPort(t))}, "127.0.0.1", want{output: "connection refused"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.action.Port == (intstr.IntOrString{}) {
				tt.action.Port = intstr.FromInt32(portIn(t, server.URL))
			}
			check(t, v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: &tt.action}}, c, tt.ip, tt.want)
		})
	}

	headers := []struct {
		name                string
		set                 []v1.HTTPHeader
		agent, accept, host string
	}{
		{"defaults", nil, "kube-probe/1.37", "*/*", strings.TrimPrefix(server.URL, "http://")},
		{"own", []v1.HTTPHeader{{Name: "user-agent", Value: "me"}, {Name: "Accept", Value: "text/x"}, {Name: "Host", Value: "site.example"}}, "me", "text/x", "site.example"},
		{"none", []v1.HTTPHeader{{Name: "Accept", Value: ""}}, "kube-probe/1.37", "", strings.TrimPrefix(server.URL, "http://")},
	}
	for _, tt := range headers {
		t.Run("headers "+tt.name, func(t *testing.T) {
			action := v1.HTTPGetAction{Path: "/ok", Port: intstr.FromString("web"), HTTPHeaders: tt.set}
			check(t, v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: &action}}, c, "127.0.0.1", want{ok: true})
			mu.Lock()
			defer mu.Unlock()
			if got := [3]string{seen.UserAgent(), seen.Header.Get("Accept"), seen.Host}; got != [3]string{tt.agent, tt.accept, tt.host} {
				t.Errorf("agent, accept, host = %q, want %q, %q, %q", got, tt.agent, tt.accept, tt.host)
			}
		})
	}
}

func TestTCPSocket(t *testing.T) {
	l := listen(t)
	t.Cleanup(func() { _ = l.Close() })
	tests := []struct {
		name   string
		action v1.TCPSocketAction
		ip     string
		want   want
	}{
		{"open", v1.TCPSocketAction{Port: intstr.FromInt32(portIn(t, l.Addr().String()))}, "127.0.0.1", want{ok: true}},
		{"of another host", v1.TCPSocketAction{Port: intstr.FromInt32(portIn(t, l.Addr().String())), Host: "127.0.0.1"}, "", want{ok: true}},
		{"closed", v1.TCPSocketAction{Port: intstr.FromInt32(closedPort(t))}, "127.0.0.1", want{output: "connection refused"}},
		{"no port", v1.TCPSocketAction{Port: intstr.FromInt32(0)}, "127.0.0.1", want{err: "invalid port number: 0"}},
		{"no address", v1.TCPSocketAction{Port: intstr.FromInt32(1)}, "", want{err: "no address"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			check(t, v1.Probe{ProbeHandler: v1.ProbeHandler{TCPSocket: &tt.action}}, &v1.Container{}, tt.ip, tt.want)
		})
	}
}

// slowHealth answers only when its caller has gone.
type slowHealth struct {
	health.UnimplementedHealthServer
}

func (slowHealth) Check(ctx context.Context, _ *health.HealthCheckRequest) (*health.HealthCheckResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func serveGRPC(t *testing.T, service health.HealthServer, opts ...grpc.ServerOption) int32 {
	t.Helper()
	server := grpc.NewServer(opts...)
	if service != nil {
		health.RegisterHealthServer(server, service)
	}
	l := listen(t)
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() { server.Stop(); wg.Wait() })
	return portIn(t, l.Addr().String())
}

func TestGRPC(t *testing.T) {
	service := grpchealth.NewServer()
	service.SetServingStatus("sick", health.HealthCheckResponse_NOT_SERVING)
	port := serveGRPC(t, service)
	tlsServer := httptest.NewUnstartedServer(nil)
	tlsServer.StartTLS() // for its certificate
	t.Cleanup(tlsServer.Close)
	secure := serveGRPC(t, service, grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: tlsServer.TLS.Certificates, NextProtos: []string{"h2"}})))

	tests := []struct {
		name   string
		action v1.GRPCAction
		ip     string
		want   want
	}{
		{"serves", v1.GRPCAction{Port: port}, "127.0.0.1", want{ok: true}},
		{"does not serve", v1.GRPCAction{Port: port, Service: new("sick")}, "127.0.0.1", want{output: `service unhealthy (responded with "NOT_SERVING")`}},
		{"unknown service", v1.GRPCAction{Port: port, Service: new("x")}, "127.0.0.1", want{output: "error: health rpc probe failed"}},
		{"no health service", v1.GRPCAction{Port: serveGRPC(t, nil)}, "127.0.0.1", want{output: "does not implement the grpc health protocol"}},
		{"takes too long", v1.GRPCAction{Port: serveGRPC(t, slowHealth{})}, "127.0.0.1", want{output: "timeout: health rpc did not complete within 1s"}},
		{"nobody listens", v1.GRPCAction{Port: closedPort(t)}, "127.0.0.1", want{output: "error: failed to connect service at"}},
		{"TLS", v1.GRPCAction{Port: secure, Mode: new(v1.GRPCProbeModeTLS)}, "127.0.0.1", want{ok: true}},
		{"no address", v1.GRPCAction{Port: port}, "", want{err: "no address"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			check(t, v1.Probe{ProbeHandler: v1.ProbeHandler{GRPC: &tt.action}}, &v1.Container{}, tt.ip, tt.want)
		})
	}
}

// TestCancelled checks that a probe that we end ourselves tells nothing of the
// container.
func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	port := closedPort(t)
	for name, handler := range map[string]v1.ProbeHandler{
		"command": {Exec: &v1.ExecAction{Command: []string{"sleep"}}},
		"HTTP":    {HTTPGet: &v1.HTTPGetAction{Port: intstr.FromInt32(port)}},
		"TCP":     {TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(port)}},
		"gRPC":    {GRPC: &v1.GRPCAction{Port: port}},
		"none":    {},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := New(fakeExec{}, "v1.37.2").Probe(ctx, &v1.Probe{ProbeHandler: handler}, &v1.Container{}, "c1", "127.0.0.1")
			if err == nil || (name != "none" && !errors.Is(err, context.Canceled)) {
				t.Errorf("error %v, want it cancelled", err)
			}
		})
	}
}
