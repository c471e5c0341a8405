package server

import (
	"context"
	"net/http"
	"time"

	streamproxy "k8s.io/apiserver/pkg/util/proxy"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// runtime starts sessions in containers. Exec, Attach and PortForward return
// the URL at which the runtime waits for the session; ExecSync runs a command
// to its end.
type runtime interface {
	Exec(ctx context.Context, req *runtimeapi.ExecRequest) (url string, err error)
	Attach(ctx context.Context, req *runtimeapi.AttachRequest) (url string, err error)
	PortForward(ctx context.Context, req *runtimeapi.PortForwardRequest) (url string, err error)
	ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (stdout, stderr []byte, exitCode int32, err error)
}

// serveExec answers /exec: a command in a container, its streams over SPDY or
// WebSocket.
func (s *Server) serveExec(w http.ResponseWriter, r *http.Request) {
	streams, ok := streamsOf(w, r)
	if !ok {
		return
	}
	command := r.URL.Query()["command"]
	if len(command) == 0 {
		http.Error(w, "you must specify a command", http.StatusBadRequest)
		return
	}
	id, ok := s.findRunning(w, r)
	if !ok {
		return
	}
	url, err := s.cfg.Runtime.Exec(r.Context(), &runtimeapi.ExecRequest{
		ContainerId: id, Cmd: command,
		Stdin: streams.Stdin, Stdout: streams.Stdout, Stderr: streams.Stderr, Tty: streams.Tty,
	})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	s.proxyStreams(w, r, url, streams)
}

// streamsOf reads which streams a session has. A terminal has no standard
// error of its own.
func streamsOf(w http.ResponseWriter, r *http.Request) (streamproxy.Options, bool) {
	query := r.URL.Query()
	streams := streamproxy.Options{
		Stdin:  query.Get("input") == "1",
		Stdout: query.Get("output") == "1",
		Stderr: query.Get("error") == "1",
		Tty:    query.Get("tty") == "1",
	}
	streams.Stderr = streams.Stderr && !streams.Tty
	if !streams.Stdin && !streams.Stdout && !streams.Stderr {
		http.Error(w, "you must specify at least 1 of stdin, stdout, stderr", http.StatusBadRequest)
		return streams, false
	}
	return streams, true
}
