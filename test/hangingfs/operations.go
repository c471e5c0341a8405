package hangingfs

import (
	"bytes"
	"encoding/binary"
	"maps"
	"slices"

	"golang.org/x/sys/unix"
)

// The protocol: include/uapi/linux/fuse.h, version 7.31.
const (
	headerSize = 40
	rootID     = 1
	maxWrite   = 128 << 10

	opLookup      = 1
	opForget      = 2
	opGetattr     = 3
	opSetattr     = 4
	opMkdir       = 9
	opUnlink      = 10
	opRmdir       = 11
	opOpen        = 14
	opRead        = 15
	opWrite       = 16
	opStatfs      = 17
	opRelease     = 18
	opFsync       = 20
	opFlush       = 25
	opInit        = 26
	opOpendir     = 27
	opReaddir     = 28
	opReleasedir  = 29
	opFsyncdir    = 30
	opCreate      = 35
	opInterrupt   = 36
	opDestroy     = 38
	opBatchForget = 42
)

// header is what every request begins with.
type header struct {
	op       uint32
	unique   uint64
	node     uint64
	uid, gid uint32
}

// A node is a file or a folder.
type node struct {
	mode     uint32
	uid, gid uint32
	data     []byte
	links    map[string]uint64 // of a folder
}

// operations are what can be asked. Of a file that is not open any more, and of
// one that nobody has a name for, nothing is freed: no test lives that long.
var operations = map[uint32]func(f *FS, in header, body []byte) ([]byte, unix.Errno){
	opInit: func(*FS, header, []byte) ([]byte, unix.Errno) {
		out := make([]byte, 64)
		binary.NativeEndian.PutUint32(out, 7)
		binary.NativeEndian.PutUint32(out[4:], 31)
		binary.NativeEndian.PutUint32(out[20:], maxWrite)
		binary.NativeEndian.PutUint32(out[24:], 1) // grain of times, ns
		return out, 0
	},
	opLookup: func(f *FS, in header, body []byte) ([]byte, unix.Errno) {
		id, ok := f.nodes[in.node].links[name(body)]
		if !ok {
			return nil, unix.ENOENT
		}
		return f.entry(id), 0
	},
	opGetattr: func(f *FS, in header, _ []byte) ([]byte, unix.Errno) {
		return append(make([]byte, 16), f.attr(in.node)...), 0
	},
	opSetattr: func(f *FS, in header, body []byte) ([]byte, unix.Errno) {
		n, valid := f.nodes[in.node], binary.NativeEndian.Uint32(body)
		if valid&1 != 0 {
			n.mode = n.mode&unix.S_IFMT | binary.NativeEndian.Uint32(body[68:])&0o7777
		}
		if valid&2 != 0 {
			n.uid = binary.NativeEndian.Uint32(body[76:])
		}
		if valid&4 != 0 {
			n.gid = binary.NativeEndian.Uint32(body[80:])
		}
		if valid&8 != 0 {
			n.resize(binary.NativeEndian.Uint64(body[16:]))
		}
		return append(make([]byte, 16), f.attr(in.node)...), 0
	},
	opMkdir: func(f *FS, in header, body []byte) ([]byte, unix.Errno) {
		mode, umask := binary.NativeEndian.Uint32(body), binary.NativeEndian.Uint32(body[4:])
		return f.make(in, name(body[8:]), node{mode: unix.S_IFDIR | mode&^umask&0o7777, links: map[string]uint64{}})
	},
	opCreate: func(f *FS, in header, body []byte) ([]byte, unix.Errno) {
		mode, umask := binary.NativeEndian.Uint32(body[4:]), binary.NativeEndian.Uint32(body[8:])
		out, errno := f.make(in, name(body[16:]), node{mode: unix.S_IFREG | mode&^umask&0o7777})
		return append(out, opened()...), errno
	},
	opOpen:       func(*FS, header, []byte) ([]byte, unix.Errno) { return opened(), 0 },
	opOpendir:    func(*FS, header, []byte) ([]byte, unix.Errno) { return opened(), 0 },
	opRelease:    nothing,
	opReleasedir: nothing,
	opFlush:      nothing,
	opFsync:      nothing,
	opFsyncdir:   nothing,
	opDestroy:    nothing,
	opRead: func(f *FS, in header, body []byte) ([]byte, unix.Errno) {
		return f.nodes[in.node].read(body), 0
	},
	opWrite: func(f *FS, in header, body []byte) ([]byte, unix.Errno) {
		n, offset, size := f.nodes[in.node], binary.NativeEndian.Uint64(body[8:]), binary.NativeEndian.Uint32(body[16:])
		if end := offset + uint64(size); end > uint64(len(n.data)) {
			n.resize(end)
		}
		copy(n.data[offset:], body[40:40+size])
		return append(binary.NativeEndian.AppendUint32(nil, size), make([]byte, 4)...), 0
	},
	opReaddir: func(f *FS, in header, body []byte) ([]byte, unix.Errno) { return f.readdir(in.node, body), 0 },
	opUnlink:  remove,
	opRmdir:   remove,
	opStatfs:  func(*FS, header, []byte) ([]byte, unix.Errno) { return statfs(), 0 },
}

func nothing(*FS, header, []byte) ([]byte, unix.Errno) { return nil, 0 }

// opened is the answer for a file that is open: the kernel is to keep nothing of it.
func opened() []byte {
	out := make([]byte, 16)
	binary.NativeEndian.PutUint32(out[8:], 1) // FOPEN_DIRECT_IO
	return out
}

// statfs is struct fuse_kstatfs: of Size bytes, of which one block is in use.
func statfs() []byte {
	const block = 4096
	out := make([]byte, 80)
	binary.NativeEndian.PutUint64(out, Size/block)
	binary.NativeEndian.PutUint64(out[8:], Size/block-1)
	binary.NativeEndian.PutUint64(out[16:], Size/block-1)
	binary.NativeEndian.PutUint32(out[40:], block)
	binary.NativeEndian.PutUint32(out[44:], 255) // bytes of a name
	binary.NativeEndian.PutUint32(out[48:], block)
	return out
}

func name(body []byte) string {
	text, _, _ := bytes.Cut(body, []byte{0})
	return string(text)
}

func (f *FS) make(in header, name string, n node) ([]byte, unix.Errno) {
	parent := f.nodes[in.node]
	if _, there := parent.links[name]; there {
		return nil, unix.EEXIST
	}
	n.uid, n.gid = in.uid, in.gid
	f.last++
	f.nodes[f.last], parent.links[name] = &n, f.last
	return f.entry(f.last), 0
}

func remove(f *FS, in header, body []byte) ([]byte, unix.Errno) {
	links := f.nodes[in.node].links
	id, ok := links[name(body)]
	switch {
	case !ok:
		return nil, unix.ENOENT
	case len(f.nodes[id].links) > 0:
		return nil, unix.ENOTEMPTY
	}
	delete(links, name(body))
	return nil, 0
}

// entry is struct fuse_entry_out: valid for no time.
func (f *FS) entry(id uint64) []byte {
	out := make([]byte, 40)
	binary.NativeEndian.PutUint64(out, id)
	return append(out, f.attr(id)...)
}

// attr is struct fuse_attr.
func (f *FS) attr(id uint64) []byte {
	n := f.nodes[id]
	out := make([]byte, 88)
	binary.NativeEndian.PutUint64(out, id)
	binary.NativeEndian.PutUint64(out[8:], uint64(len(n.data)))
	binary.NativeEndian.PutUint32(out[60:], n.mode)
	binary.NativeEndian.PutUint32(out[64:], 1)
	binary.NativeEndian.PutUint32(out[68:], n.uid)
	binary.NativeEndian.PutUint32(out[72:], n.gid)
	binary.NativeEndian.PutUint32(out[80:], 4096)
	return out
}

func (n *node) resize(size uint64) {
	n.data = append(n.data[:min(size, uint64(len(n.data)))], make([]byte, max(size, uint64(len(n.data)))-uint64(len(n.data)))...)
}

func (n *node) read(body []byte) []byte {
	offset, size := binary.NativeEndian.Uint64(body[8:]), uint64(binary.NativeEndian.Uint32(body[16:]))
	from := min(offset, uint64(len(n.data)))
	return n.data[from:min(from+size, uint64(len(n.data)))]
}

// readdir lists names in order from the one at the offset on.
func (f *FS) readdir(id uint64, body []byte) []byte {
	offset, size := binary.NativeEndian.Uint64(body[8:]), int(binary.NativeEndian.Uint32(body[16:]))
	names := slices.Sorted(maps.Keys(f.nodes[id].links))
	var out []byte
	for i := offset; i < uint64(len(names)); i++ {
		padded := (len(names[i]) + 7) &^ 7
		if len(out)+24+padded > size {
			break
		}
		child := f.nodes[id].links[names[i]]
		out = binary.NativeEndian.AppendUint64(out, child)
		out = binary.NativeEndian.AppendUint64(out, i+1)
		out = binary.NativeEndian.AppendUint32(out, uint32(len(names[i])))
		out = binary.NativeEndian.AppendUint32(out, f.nodes[child].mode>>12)
		out = append(append(out, names[i]...), make([]byte, padded-len(names[i]))...)
	}
	return out
}
