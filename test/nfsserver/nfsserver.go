// Package nfsserver is an NFS server for tests: version 3 over TCP, with its
// mount protocol on the same port, files in memory, and no portmapper, locks or
// users. A client names the port and the version:
//
//	vers=3,proto=tcp,port=P,mountproto=tcp,mountport=P,nolock,noacl
//
// It can stop answering, as a server does that is cut off.
package nfsserver

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Export is the path that is served.
const Export = "/export"

// A Server serves one tree of files. Any goroutine may call its methods.
type Server struct {
	mu struct {
		sync.Mutex
		nodes  map[uint64]*node
		next   uint64
		silent bool
		conns  map[net.Conn]bool
	}
}

// node is a file or a folder.
type node struct {
	id       uint64
	dir      bool
	mode     uint32
	data     []byte
	children map[string]uint64
	changed  time.Time
}

const root = 1

// New makes a Server with an empty folder.
func New() *Server {
	s := &Server{}
	s.mu.conns = map[net.Conn]bool{}
	s.mu.next = root
	s.mu.nodes = map[uint64]*node{}
	s.addLocked(true, 0o777)
	return s
}

// Write makes or replaces a file in the folder that is served.
func (s *Server) Write(name, data string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.childLocked(s.mu.nodes[root], name)
	if n == nil {
		n = s.addLocked(false, 0o644)
		s.mu.nodes[root].children[name] = n.id
	}
	n.data, n.changed = []byte(data), time.Now()
}

// Read returns what is in a file of the folder that is served.
func (s *Server) Read(name string) (data string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.childLocked(s.mu.nodes[root], name)
	if n == nil {
		return "", false
	}
	return string(n.data), true
}

// Silence has the server take requests and not answer them, or answer again.
func (s *Server) Silence(silent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.silent = silent
}

func (s *Server) addLocked(dir bool, mode uint32) *node {
	n := &node{id: s.mu.next, dir: dir, mode: mode, children: map[string]uint64{}, changed: time.Now()}
	s.mu.nodes[n.id] = n
	s.mu.next++
	return n
}

func (s *Server) childLocked(dir *node, name string) *node {
	if id, ok := dir.children[name]; ok {
		return s.mu.nodes[id]
	}
	return nil
}

// Serve answers the clients of a listener until ctx is done.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	var clients sync.WaitGroup
	defer clients.Wait()
	stop := context.AfterFunc(ctx, func() {
		_ = listener.Close()
		s.mu.Lock()
		defer s.mu.Unlock()
		for conn := range s.mu.conns {
			_ = conn.Close()
		}
	})
	defer stop()
	for {
		conn, err := listener.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("accept a client: %w", err)
		}
		s.mu.Lock()
		s.mu.conns[conn] = true
		s.mu.Unlock()
		if ctx.Err() != nil {
			_ = conn.Close()
		}
		clients.Go(func() {
			_ = s.client(conn) // a client that goes is no fault of ours
			s.mu.Lock()
			delete(s.mu.conns, conn)
			s.mu.Unlock()
			_ = conn.Close()
		})
	}
}

// maxCall is the size in bytes of the largest request that is read.
const maxCall = 2 << 20

// client answers one connection: records of RFC 5531, each a call.
func (s *Server) client(conn net.Conn) error {
	for {
		call, err := record(conn)
		if err != nil {
			return err
		}
		s.mu.Lock()
		silent := s.mu.silent
		s.mu.Unlock()
		if silent {
			continue
		}
		reply := s.call(call)
		head := binary.BigEndian.AppendUint32(nil, 1<<31|uint32(len(reply)))
		if _, err := conn.Write(append(head, reply...)); err != nil {
			return err
		}
	}
}

var errTooLarge = errors.New("a call is too large")

func record(r io.Reader) ([]byte, error) {
	var all []byte
	for {
		var head [4]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return nil, err
		}
		mark := binary.BigEndian.Uint32(head[:])
		size := int(mark &^ (1 << 31))
		if len(all)+size > maxCall {
			return nil, errTooLarge
		}
		part := make([]byte, size)
		if _, err := io.ReadFull(r, part); err != nil {
			return nil, err
		}
		all = append(all, part...)
		if mark&(1<<31) != 0 {
			return all, nil
		}
	}
}
