// Package controlserver answers at a node's control socket: what runs, what is
// wrong, and the order to stop. Package internal/control documents the
// protocol and has the client.
package controlserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfast-dev/holdfast/internal/control"
)

// A Config says where to listen and whom to ask.
type Config struct {
	Socket string // path of the unix socket; its folder is made, 0700

	// Report returns the node as it is now. It is called concurrently.
	Report func(context.Context) control.Report

	// Store writes a snapshot of the API's store. It is called concurrently.
	Store func(io.Writer) error

	// Down stops pods and node, calling step at each step, and returns when
	// both are gone. It is called at most once at a time.
	Down func(ctx context.Context, step func(string)) error
}

// A Server answers at one socket.
type Server struct {
	cfg  Config
	down chan struct{} // holds a token while nobody stops the node
}

// New returns a server that does not listen yet.
func New(cfg Config) *Server {
	s := &Server{cfg: cfg, down: make(chan struct{}, 1)}
	s.down <- struct{}{}
	return s
}

// Run listens until ctx is done. A socket file that an earlier process left is
// replaced: the instance's lock says that nobody uses it.
func (s *Server) Run(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Dir(s.cfg.Socket), 0o700); err != nil {
		return fmt.Errorf("control socket: %w", err)
	}
	if err := os.Remove(s.cfg.Socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("control socket: %w", err)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", s.cfg.Socket)
	if err != nil {
		return fmt.Errorf("control socket: %w", err)
	}
	if err := os.Chmod(s.cfg.Socket, 0o600); err != nil {
		return errors.Join(fmt.Errorf("control socket: %w", err), listener.Close())
	}

	mux := http.NewServeMux()
	mux.HandleFunc("GET /report", s.report)
	mux.HandleFunc("GET /store", s.store)
	mux.HandleFunc("POST /down", s.stop)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	select {
	case err = <-done:
		return err
	case <-ctx.Done():
	}
	// Answers under way are let finish: the last one may say that all is done.
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	err = server.Shutdown(grace)
	if served := <-done; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

func (s *Server) report(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(s.cfg.Report(r.Context())) // the client has gone: nobody to tell
}

// store sends a snapshot of the store. An answer that fails half-way is cut
// off, which the client sees.
func (s *Server) store(w http.ResponseWriter, _ *http.Request) {
	out := &counter{w: w}
	err := s.cfg.Store(out)
	switch {
	case err == nil:
	case out.n == 0:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	default:
		panic(http.ErrAbortHandler)
	}
}

// A counter counts what is written to w.
type counter struct {
	w io.Writer
	n int
}

func (c *counter) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil // it would send the head of an answer that is fine
	}
	n, err := c.w.Write(p)
	c.n += n
	return n, err
}

func (s *Server) stop(w http.ResponseWriter, r *http.Request) {
	select {
	case <-s.down:
		defer func() { s.down <- struct{}{} }()
	default:
		http.Error(w, "the node is being stopped already", http.StatusConflict)
		return
	}
	out := json.NewEncoder(w)
	say := func(p control.Progress) {
		_ = out.Encode(p) // the client has gone: the node stops all the same
		_ = http.NewResponseController(w).Flush()
	}
	err := s.cfg.Down(context.WithoutCancel(r.Context()), func(step string) { say(control.Progress{Step: step}) })
	if err != nil {
		say(control.Progress{Error: err.Error()})
		return
	}
	say(control.Progress{Done: true})
}
