package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/client-go/util/exec"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
	streamcommand "k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
)

// fakeRuntime is the streaming server that runtimes embed, with commands of
// our own: cat copies its input, exit ends with its argument's code, wait
// waits for its input to end and says so.
type fakeRuntime struct {
	streaming.Server

	mu   sync.Mutex
	last string // what was asked for last
}

func newFakeRuntime(t *testing.T) *fakeRuntime {
	t.Helper()
	listener := listen(t)
	config := streaming.DefaultConfig
	config.BaseURL = &url.URL{Scheme: "http", Host: listener.Addr().String()}
	f := &fakeRuntime{}
	server, err := streaming.NewServer(config, f)
	if err != nil {
		t.Fatal(err)
	}
	f.Server = server
	httpServer := &http.Server{Handler: noCredentials{t, server}, ReadHeaderTimeout: time.Minute}
	var wg sync.WaitGroup
	wg.Go(func() { _ = httpServer.Serve(listener) })
	t.Cleanup(func() { _ = httpServer.Close(); wg.Wait() })
	return f
}

// noCredentials fails the test if the kubelet hands credentials on.
type noCredentials struct {
	t *testing.T
	http.Handler
}

func (n noCredentials) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if got := r.Header.Get("Authorization"); got != "" {
		n.t.Errorf("the runtime was sent credentials: %q", got)
	}
	n.Handler.ServeHTTP(w, r)
}

func (f *fakeRuntime) note(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = fmt.Sprintf(format, args...)
}

func (f *fakeRuntime) noted() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

// The runtime's side of the API.

func (f *fakeRuntime) run(cmd []string, in io.Reader, out, errOut io.Writer) error {
	switch cmd[0] {
	case "cat":
		_, err := io.Copy(out, in)
		return err
	case "exit":
		fmt.Fprint(errOut, "bye")
		return exec.CodeExitError{Err: errors.New("exit"), Code: 7}
	default:
		fmt.Fprint(out, strings.Join(cmd, "|"))
		return nil
	}
}

type commandRuntime struct{ *fakeRuntime }

func (f *fakeRuntime) Exec(_ context.Context, id string, cmd []string, in io.Reader, out, errOut io.WriteCloser, tty bool, _ <-chan streamcommand.TerminalSize) error {
	f.note("exec %s tty=%t", id, tty)
	return f.run(cmd, in, out, errOut)
}

func (f *fakeRuntime) Attach(_ context.Context, id string, in io.Reader, out, errOut io.WriteCloser, tty bool, _ <-chan streamcommand.TerminalSize) error {
	f.note("attach %s tty=%t", id, tty)
	return f.run([]string{"cat"}, in, out, errOut)
}

func (f *fakeRuntime) PortForward(_ context.Context, sandbox string, port int32, stream io.ReadWriteCloser) error {
	f.note("forward %s %d", sandbox, port)
	_, err := io.Copy(stream, stream)
	return err
}

// The kubelet's side: what package cri offers.

func (c commandRuntime) Exec(_ context.Context, req *runtimeapi.ExecRequest) (string, error) {
	resp, err := c.GetExec(req)
	return resp.GetUrl(), err
}

func (c commandRuntime) Attach(_ context.Context, req *runtimeapi.AttachRequest) (string, error) {
	resp, err := c.GetAttach(req)
	return resp.GetUrl(), err
}

func (c commandRuntime) PortForward(_ context.Context, req *runtimeapi.PortForwardRequest) (string, error) {
	resp, err := c.GetPortForward(req)
	return resp.GetUrl(), err
}

func (c commandRuntime) ExecSync(_ context.Context, id string, cmd []string, _ time.Duration) (stdout, stderr []byte, exitCode int32, err error) {
	if cmd[0] == "exit" {
		return nil, []byte("bye"), 7, nil
	}
	return []byte(id + ":" + strings.Join(cmd, "|")), nil, 0, nil
}

func streamRig(t *testing.T) (*rig, *fakeRuntime, *rest.Config) {
	t.Helper()
	runtime := newFakeRuntime(t)
	r := newRig(t, func(cfg *Config) { cfg.Runtime = commandRuntime{runtime} })
	return r, runtime, &rest.Config{
		Host: r.url, BearerToken: "admin-token",
		TLSClientConfig: rest.TLSClientConfig{Insecure: true}, // the server's certificate has its own test
	}
}

func TestSessions(t *testing.T) {
	r, runtime, client := streamRig(t)
	executors := map[string]func(path string) (remotecommand.Executor, error){
		"SPDY": func(path string) (remotecommand.Executor, error) {
			u, err := url.Parse(r.url + path)
			if err != nil {
				return nil, err
			}
			return remotecommand.NewSPDYExecutor(client, "POST", u)
		},
		"WebSocket": func(path string) (remotecommand.Executor, error) {
			return remotecommand.NewWebSocketExecutor(client, "GET", r.url+path)
		},
	}
	tests := []struct {
		name, path string
		in         string
		tty        bool
		out, err   string
		code       int
		noted      string
	}{
		{"output", "/exec/default/web/app?command=say&command=a+b&output=1&error=1", "", false, "say|a b", "", 0, "exec c2 tty=false"},
		{"input", "/exec/default/web/app?command=cat&input=1&output=1&error=1", "hello", false, "hello", "", 0, "exec c2 tty=false"},
		{"of a UID", "/exec/default/web/u1/app?command=cat&input=1&output=1&error=1", "hello", false, "hello", "", 0, "exec c2 tty=false"},
		{"exit code", "/exec/default/web/app?command=exit&output=1&error=1", "", false, "", "bye", 7, "exec c2 tty=false"},
		{"terminal", "/exec/default/web/app?command=say&output=1&tty=1", "", true, "say", "", 0, "exec c2 tty=true"},
		{"attach", "/attach/default/web/app?input=1&output=1&error=1", "typed", false, "typed", "", 0, "attach c2 tty=false"},
	}
	for protocol, executor := range executors {
		for _, tt := range tests {
			t.Run(protocol+" "+tt.name, func(t *testing.T) {
				e, err := executor(tt.path)
				if err != nil {
					t.Fatal(err)
				}
				var out, errOut bytes.Buffer
				streams := remotecommand.StreamOptions{Tty: tt.tty}
				query, _ := url.ParseQuery(tt.path[strings.Index(tt.path, "?")+1:])
				if query.Get("input") == "1" {
					streams.Stdin = strings.NewReader(tt.in)
				}
				if query.Get("output") == "1" {
					streams.Stdout = &out
				}
				if query.Get("error") == "1" {
					streams.Stderr = &errOut
				}
				err = e.StreamWithContext(t.Context(), streams)
				var exit exec.CodeExitError
				if errors.As(err, &exit) != (tt.code != 0) || exit.Code != tt.code || (tt.code == 0 && err != nil) {
					t.Errorf("ended with %v, want code %d", err, tt.code)
				}
				if out.String() != tt.out || errOut.String() != tt.err {
					t.Errorf("output %q, %q, want %q, %q", out.String(), errOut.String(), tt.out, tt.err)
				}
				if got := runtime.noted(); got != tt.noted {
					t.Errorf("the runtime was asked for %q, want %q", got, tt.noted)
				}
			})
		}
	}
}

func TestRefusedSessions(t *testing.T) {
	r, _, _ := streamRig(t)
	tests := []struct {
		name, method, path string
		code               int
		body               string
	}{
		{"no stream", "POST", "/exec/default/web/app?command=a", 400, "you must specify at least 1 of stdin, stdout, stderr"},
		{"no command", "POST", "/exec/default/web/app?output=1", 400, "you must specify a command"},
		{"no upgrade", "POST", "/exec/default/web/app?command=a&output=1", 400, "Upgrade request required"},
		{"no such pod", "POST", "/exec/default/other/app?command=a&output=1", 404, `pod "other" does not exist`},
		{"other UID", "POST", "/exec/default/web/u9/app?command=a&output=1", 404, `pod "web" does not exist`},
		{"not running", "POST", "/exec/default/web/side?command=a&output=1", 404, `container not found ("side")`},
		{"attach to nothing", "GET", "/attach/default/web/side?output=1", 404, `container not found ("side")`},
		{"forward of another UID", "POST", "/portForward/default/web/u9", 404, `pod "web" does not exist`},
		{"delete", "DELETE", "/exec/default/web/app?command=a&output=1", 405, "Method Not Allowed"},
		{"run", "POST", "/run/default/web/app?cmd=echo+a", 200, "c2:echo|a"},
		{"run that fails", "POST", "/run/default/web/u1/app?cmd=exit", 500, "command exited with 7: bye"},
		{"run nothing", "POST", "/run/default/web/app", 400, `query parameter "cmd" is required`},
		{"run by GET", "GET", "/run/default/web/app?cmd=a", 405, "Method Not Allowed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			code, _, body := r.do(r.client(), tt.method, r.url+tt.path, "admin-token")
			if code != tt.code || !strings.Contains(body, tt.body) {
				t.Errorf("%s %s = %d %q, want %d %q", tt.method, tt.path, code, body, tt.code, tt.body)
			}
		})
	}
}

func TestPortForward(t *testing.T) {
	r, runtime, client := streamRig(t)
	u, err := url.Parse(r.url + "/portForward/default/web")
	if err != nil {
		t.Fatal(err)
	}
	dialers := map[string]func() (httpstream.Dialer, error){
		"SPDY": func() (httpstream.Dialer, error) {
			transport, upgrader, err := spdy.RoundTripperFor(client)
			return spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, "POST", u), err
		},
		"WebSocket tunnel": func() (httpstream.Dialer, error) {
			return portforward.NewSPDYOverWebsocketDialerForStreaming(u, client)
		},
	}
	for protocol, dialer := range dialers {
		t.Run(protocol, func(t *testing.T) {
			d, err := dialer()
			if err != nil {
				t.Fatal(err)
			}
			stop, ready := make(chan struct{}), make(chan struct{})
			forwarder, err := portforward.NewOnAddressesForStreaming(d, []string{"127.0.0.1"}, []string{"0:8080"}, stop, ready, io.Discard, io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- forwarder.ForwardPorts() }()
			<-ready
			ports, err := forwarder.GetPorts()
			if err != nil {
				t.Fatal(err)
			}
			var dial net.Dialer
			conn, err := dial.DialContext(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", ports[0].Local))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(conn, "ping"); err != nil {
				t.Fatal(err)
			}
			answer := make([]byte, 4)
			if _, err := io.ReadFull(conn, answer); err != nil || string(answer) != "ping" {
				t.Errorf("answer %q, %v", answer, err)
			}
			if got := runtime.noted(); got != "forward sandbox1 8080" {
				t.Errorf("the runtime was asked for %q", got)
			}
			_ = conn.Close()
			close(stop)
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestStopEndsSessions stops the server while a command waits for input.
func TestStopEndsSessions(t *testing.T) {
	r, runtime, client := streamRig(t)
	u, err := url.Parse(r.url + "/exec/default/web/app?command=cat&input=1&output=1")
	if err != nil {
		t.Fatal(err)
	}
	e, err := remotecommand.NewSPDYExecutor(client, "POST", u)
	if err != nil {
		t.Fatal(err)
	}
	in, typed := io.Pipe()
	out, shown := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- e.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: in, Stdout: shown})
	}()
	go func() { _, _ = io.WriteString(typed, "x") }()
	if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if got := runtime.noted(); got != "exec c2 tty=false" {
		t.Errorf("the runtime was asked for %q", got)
	}
	if err := r.stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
	_ = typed.Close()
	_ = out.Close()
	t.Logf("the client was told: %v", <-done) // however it takes the loss
}

func TestPortsOf(t *testing.T) {
	tests := []struct {
		params []string
		want   string
	}{
		{[]string{"80"}, "[80]"},
		{[]string{"80,443", "1"}, "[80 443 1]"},
		{nil, ""},
		{[]string{""}, ""},
		{[]string{"0"}, ""},
		{[]string{"65536"}, ""},
		{[]string{"80,"}, ""},
		{[]string{"-1"}, ""},
	}
	for _, tt := range tests {
		got, err := portsOf(tt.params)
		if (err == nil) != (tt.want != "") || (err == nil && fmt.Sprint(got) != tt.want) {
			t.Errorf("portsOf(%q) = %v, %v, want %q", tt.params, got, err, tt.want)
		}
	}
}

func FuzzPorts(f *testing.F) {
	for _, seed := range []string{"80", "80,443", "0", "65536", "-1", "", ",", "8 0", "+80"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, given string) {
		ports, err := portsOf([]string{given})
		if (err == nil) != (len(ports) > 0) {
			t.Errorf("portsOf(%q) = %v, %v", given, ports, err)
		}
		for _, port := range ports {
			if port < 1 || port > 65535 {
				t.Errorf("portsOf(%q) has %d", given, port)
			}
		}
	})
}
