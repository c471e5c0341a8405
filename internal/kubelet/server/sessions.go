package server

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
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
		if why := s.enter(); why != "" {
			w.Header().Set("Retry-After", "1")
			http.Error(w, why, http.StatusServiceUnavailable)
			return
		}
		defer s.leave()
		handler.ServeHTTP(w, r)
	})
}

// enter returns why a request cannot be let in; empty: it is.
func (s *sessions) enter() (why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return "the kubelet is stopping"
	case s.n >= maxRequests:
		return "the kubelet answers too many requests: try again"
	}
	s.n++
	return ""
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
// HTTP server no longer knows, and those which nobody uses.
type conns struct {
	mu   sync.Mutex // guards open
	open map[*conn]struct{}
}

// listener adds what it accepts to conns, and closes at once what is too much.
type listener struct {
	net.Listener
	to *conns
}

// Accept is that of a net.Listener.
func (l listener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := l.to.add(raw); c != nil {
			return c, nil
		}
		_ = raw.Close() // nobody was told of it yet
	}
}

// add returns nil for a connection that is too much.
func (c *conns) add(raw net.Conn) *conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.open) >= maxConnections {
		return nil
	}
	added := &conn{Conn: raw, of: c}
	c.open[added] = struct{}{}
	return added
}

func (c *conns) closeAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for open := range c.open {
		_ = open.Conn.Close() // its user sees the error
	}
}

// state is told what the HTTP server does with a connection. One that it has let
// go of is a session.
func (c *conns) state(of net.Conn, state http.ConnState) {
	if state != http.StateHijacked {
		return
	}
	if secure, ok := of.(*tls.Conn); ok {
		of = secure.NetConn()
	}
	if session, ok := of.(*conn); ok {
		session.touch()
		session.session.Store(true)
	}
}

// closeIdle closes sessions over which nothing has gone for that long, and up to
// a quarter of it longer; negative: it closes none.
func (c *conns) closeIdle(ctx context.Context, idle time.Duration) {
	if idle < 0 {
		return
	}
	ticker := time.NewTicker(max(idle/4, time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			c.closeBefore(time.Now().Add(-idle))
		}
	}
}

func (c *conns) closeBefore(then time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for open := range c.open {
		if open.session.Load() && open.used.Load() < then.UnixNano() {
			_ = open.Conn.Close() // its user sees the error
		}
	}
}

// A conn is a connection, and when something last went over it.
type conn struct {
	net.Conn
	of      *conns
	session atomic.Bool  // the HTTP server has let go of it
	used    atomic.Int64 // Unix time in nanoseconds
}

func (c *conn) touch() { c.used.Store(time.Now().UnixNano()) }

// Read is that of a net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.touch()
	}
	return n, err
}

// Write is that of a net.Conn.
func (c *conn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if n > 0 {
		c.touch()
	}
	return n, err
}

// Close is that of a net.Conn.
func (c *conn) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}
