package server

import (
	"net"
	"net/http"
	"sync"
)

// sessions counts the requests under way, among them those that took their
// connection out of the HTTP server's hands.
type sessions struct {
	idle chan struct{} // closed once close was called and no request is left

	mu     sync.Mutex // guards the fields below
	n      int
	closed bool
}

// count lets requests through to handler until close is called.
func (s *sessions) count(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.enter() {
			http.Error(w, "the kubelet is stopping", http.StatusServiceUnavailable)
			return
		}
		defer s.leave()
		handler.ServeHTTP(w, r)
	})
}

func (s *sessions) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.n++
	return true
}

func (s *sessions) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n--; s.closed && s.n == 0 {
		close(s.idle)
	}
}

// close lets no more requests in. It is called once.
func (s *sessions) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed = true; s.n == 0 {
		close(s.idle)
	}
}

// conns remembers the open connections, so that those can be closed which the
// HTTP server no longer knows.
type conns struct {
	mu   sync.Mutex // guards open
	open map[net.Conn]struct{}
}

// listener adds what it accepts to conns.
type listener struct {
	net.Listener
	to *conns
}

// Accept is that of a net.Listener.
func (l listener) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.to.mu.Lock()
	defer l.to.mu.Unlock()
	l.to.open[raw] = struct{}{}
	return &conn{raw, l.to}, nil
}

func (c *conns) closeAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for raw := range c.open {
		_ = raw.Close() // its user sees the error
	}
}

type conn struct {
	net.Conn
	of *conns
}

// Close is that of a net.Conn.
func (c *conn) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c.Conn)
	c.of.mu.Unlock()
	return c.Conn.Close()
}
