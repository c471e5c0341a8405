package nfsserver

import "encoding/binary"

// reader takes values of RFC 4506 from a call; after the end all are zero.
type reader struct{ rest []byte }

func (r *reader) u32() uint32 {
	if len(r.rest) < 4 {
		r.rest = nil
		return 0
	}
	v := binary.BigEndian.Uint32(r.rest)
	r.rest = r.rest[4:]
	return v
}

func (r *reader) u64() uint64 { return uint64(r.u32())<<32 | uint64(r.u32()) }

func (r *reader) bytes() []byte {
	n := int(r.u32())
	padded := (n + 3) &^ 3
	if n < 0 || padded > len(r.rest) {
		r.rest = nil
		return nil
	}
	v := r.rest[:n]
	r.rest = r.rest[padded:]
	return v
}

// handle reads a file handle; 0: it is none of ours.
func (r *reader) handle() uint64 {
	h := r.bytes()
	if len(h) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(h)
}

// writer makes a reply.
type writer struct{ out []byte }

func (w *writer) u32(values ...uint32) {
	for _, v := range values {
		w.out = binary.BigEndian.AppendUint32(w.out, v)
	}
}

func (w *writer) u64(values ...uint64) {
	for _, v := range values {
		w.out = binary.BigEndian.AppendUint64(w.out, v)
	}
}

func (w *writer) bytes(b []byte) {
	w.u32(uint32(len(b)))
	w.out = append(w.out, b...)
	w.out = append(w.out, make([]byte, (4-len(b)%4)%4)...)
}

func (w *writer) handle(id uint64) { w.bytes(binary.BigEndian.AppendUint64(nil, id)) }
