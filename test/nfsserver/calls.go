package nfsserver

import (
	"maps"
	"slices"
	"time"
)

// Programs of the RPC protocol, and what calls answer.
const (
	programNFS   = 100003
	programMount = 100005

	done        = 0
	errNoEntry  = 2
	errExist    = 17
	errNotDir   = 20
	errIsDir    = 21
	errNotEmpty = 66
	errStale    = 70
	errNotDone  = 10004 // not supported
)

// call answers one call.
func (s *Server) call(call []byte) []byte {
	r := &reader{call}
	xid := r.u32()
	r.u32() // a call
	r.u32() // of RPC version 2
	program, version, procedure := r.u32(), r.u32(), r.u32()
	for range 2 { // credentials and their verifier
		r.u32()
		r.bytes()
	}
	w := &writer{}
	w.u32(xid, 1, 0, 0, 0) // a reply, accepted, no verifier
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case program != programNFS && program != programMount:
		w.u32(1)
	case version != 3:
		w.u32(2, 3, 3)
	case program == programMount:
		w.u32(0)
		s.mountLocked(procedure, r, w)
	default:
		w.u32(0)
		s.nfsLocked(procedure, r, w)
	}
	return w.out
}

// mountLocked answers the mount protocol: MNT, and with nothing all others.
func (s *Server) mountLocked(procedure uint32, r *reader, w *writer) {
	if procedure != 1 {
		return
	}
	if string(r.bytes()) != Export {
		w.u32(errNoEntry)
		return
	}
	w.u32(done)
	w.handle(root)
	w.u32(1, 1) // one flavor of credentials: AUTH_SYS
}

// nfsLocked answers a procedure of RFC 1813.
func (s *Server) nfsLocked(procedure uint32, r *reader, w *writer) {
	if procedure == 0 {
		return
	}
	n := s.mu.nodes[r.handle()]
	if n == nil {
		w.u32(errStale, 0, 0)
		return
	}
	switch procedure {
	case 1: // GETATTR
		w.u32(done)
		attributes(n, w)
	case 2: // SETATTR
		set(n, r)
		w.u32(done)
		weak(n, w)
	case 3: // LOOKUP
		s.lookupLocked(n, string(r.bytes()), w)
	case 4: // ACCESS
		w.u32(done)
		post(n, w)
		w.u32(r.u32())
	case 6: // READ
		read(n, r, w)
	case 7: // WRITE
		write(n, r, w)
	case 8, 9: // CREATE, MKDIR
		s.createLocked(n, procedure == 9, r, w)
	case 12, 13: // REMOVE, RMDIR
		s.removeLocked(n, string(r.bytes()), w)
	case 16, 17: // READDIR, READDIRPLUS
		s.listLocked(n, procedure == 17, r, w)
	case 18: // FSSTAT
		w.u32(done)
		post(n, w)
		w.u64(1<<30, 1<<29, 1<<29, 1<<20, 1<<19, 1<<19)
		w.u32(0)
	case 19: // FSINFO
		w.u32(done)
		post(n, w)
		w.u32(1<<16, 1<<16, 1, 1<<16, 1<<16, 1, 1<<16)
		w.u64(1 << 40)
		w.u32(0, 1, 0x8|0x10) // times to the nanosecond; one set of properties, times can be set
	case 20: // PATHCONF
		w.u32(done)
		post(n, w)
		w.u32(1, 255, 1, 1, 0, 1)
	case 21: // COMMIT
		w.u32(done)
		weak(n, w)
		w.u64(0)
	default:
		w.u32(errNotDone, 0, 0)
	}
}

// attributes writes a fattr3.
func attributes(n *node, w *writer) {
	kind, links, size := uint32(1), uint32(1), uint64(len(n.data))
	if n.dir {
		kind, links, size = 2, 2, 4096
	}
	w.u32(kind, n.mode, links, 0, 0)
	w.u64(size, size)
	w.u32(0, 0)
	w.u64(7, n.id)
	for range 3 {
		w.u32(uint32(n.changed.Unix()), uint32(n.changed.Nanosecond()))
	}
}

// post writes attributes that may be left out; weak those after a change.
func post(n *node, w *writer) {
	w.u32(1)
	attributes(n, w)
}

func weak(n *node, w *writer) {
	w.u32(0)
	post(n, w)
}

// set reads a sattr3: mode and size count.
func set(n *node, r *reader) {
	if r.u32() == 1 {
		n.mode = r.u32() & 0o7777
	}
	for range 2 { // user and group
		if r.u32() == 1 {
			r.u32()
		}
	}
	if r.u32() == 1 {
		resize(n, int(r.u64()))
	}
	n.changed = time.Now()
}

func resize(n *node, size int) {
	if size = min(size, maxCall); size <= len(n.data) {
		n.data = n.data[:size]
		return
	}
	n.data = append(n.data, make([]byte, size-len(n.data))...)
}

func (s *Server) lookupLocked(dir *node, name string, w *writer) {
	n := s.childLocked(dir, name)
	if name == "." {
		n = dir
	}
	if n == nil {
		w.u32(errNoEntry)
		post(dir, w)
		return
	}
	w.u32(done)
	w.handle(n.id)
	post(n, w)
	post(dir, w)
}

func read(n *node, r *reader, w *writer) {
	if n.dir {
		w.u32(errIsDir)
		post(n, w)
		return
	}
	from := min(int(r.u64()), len(n.data))
	part := n.data[from:min(from+int(r.u32()), len(n.data))]
	w.u32(done)
	post(n, w)
	w.u32(uint32(len(part)))
	if from+len(part) == len(n.data) {
		w.u32(1)
	} else {
		w.u32(0)
	}
	w.bytes(part)
}

func write(n *node, r *reader, w *writer) {
	at := int(r.u64())
	r.u32()
	r.u32()
	data := r.bytes()
	if end := at + len(data); end > len(n.data) {
		resize(n, end)
	}
	copy(n.data[min(at, len(n.data)):], data)
	n.changed = time.Now()
	w.u32(done)
	weak(n, w)
	w.u32(uint32(len(data)), 2) // on stable storage, as far as tests go
	w.u64(0)
}

func (s *Server) createLocked(dir *node, folder bool, r *reader, w *writer) {
	name := string(r.bytes())
	exclusive := uint32(0)
	if !folder {
		exclusive = r.u32()
	}
	n := s.childLocked(dir, name)
	switch {
	case !dir.dir:
		w.u32(errNotDir)
		weak(dir, w)
		return
	case n != nil && (folder || exclusive != 0):
		w.u32(errExist)
		weak(dir, w)
		return
	case n == nil:
		n = s.addLocked(folder, 0o644)
		dir.children[name], dir.changed = n.id, time.Now()
	}
	if exclusive != 2 {
		set(n, r)
	}
	w.u32(done, 1)
	w.handle(n.id)
	post(n, w)
	weak(dir, w)
}

func (s *Server) removeLocked(dir *node, name string, w *writer) {
	n := s.childLocked(dir, name)
	switch {
	case n == nil:
		w.u32(errNoEntry)
	case len(n.children) > 0:
		w.u32(errNotEmpty)
	default:
		delete(dir.children, name)
		delete(s.mu.nodes, n.id)
		dir.changed = time.Now()
		w.u32(done)
	}
	weak(dir, w)
}

// listLocked answers with all names at once: tests have few.
func (s *Server) listLocked(dir *node, plus bool, r *reader, w *writer) {
	from := r.u64()
	w.u32(done)
	post(dir, w)
	w.u64(0)
	for i, name := range slices.Sorted(maps.Keys(dir.children)) {
		if uint64(i) < from {
			continue
		}
		n := s.mu.nodes[dir.children[name]]
		w.u32(1)
		w.u64(n.id)
		w.bytes([]byte(name))
		w.u64(uint64(i + 1))
		if plus {
			post(n, w)
			w.u32(1)
			w.handle(n.id)
		}
	}
	w.u32(0, 1)
}
