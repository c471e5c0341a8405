// Package hangingfs is a small filesystem in memory that stops answering when a
// test tells it to, as a server that is gone does: whatever asks it waits. It
// is mounted by the kernel's FUSE protocol (root).
//
// Nothing of it is kept by the kernel, so that every look at it asks. A process
// that waits for it can be killed. All methods may be called by any goroutine.
package hangingfs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Size is how many bytes each says it has, whatever is in it.
const Size = 1 << 20

// An FS is one of them.
type FS struct {
	dir  string
	fuse int
	bell [2]int // a pipe that ends the server's wait for a request
	done chan struct{}

	mu struct {
		sync.Mutex
		hangs bool
		ended bool
	}
	nodes map[uint64]*node // the server's alone
	last  uint64           // ID of the node made last
}

// Mount mounts an empty one on dir, which must be there. The test unmounts it
// when it ends, whatever still waits for it.
func Mount(t testing.TB, dir string) *FS {
	t.Helper()
	f, err := mount(dir)
	if err != nil {
		t.Fatalf("mount a filesystem that can hang: %v", err)
	}
	t.Cleanup(func() {
		if err := f.close(); err != nil {
			t.Errorf("unmount a filesystem that can hang: %v", err)
		}
	})
	return f
}

func mount(dir string) (*FS, error) {
	fuse, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/fuse: %w", err)
	}
	f := &FS{dir: dir, fuse: fuse, done: make(chan struct{}), last: rootID}
	f.nodes = map[uint64]*node{rootID: {mode: unix.S_IFDIR | 0o755, links: map[string]uint64{}}}
	if err := unix.Pipe2(f.bell[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, errors.Join(err, unix.Close(fuse))
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fuse)
	if err := unix.Mount("hangingfs", dir, "fuse.hangingfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return nil, errors.Join(&os.PathError{Op: "mount", Path: dir, Err: err}, f.closeFiles())
	}
	go f.serve()
	return f, nil
}

// Hang stops the answers: whoever asks from now on waits.
func (f *FS) Hang() { f.set(func() { f.mu.hangs = true }) }

// Answer ends it: those that wait have their answers too.
func (f *FS) Answer() { f.set(func() { f.mu.hangs = false }) }

// AwaitAsked returns when somebody waits for an answer. It fails t if nobody
// does within a minute.
func (f *FS) AwaitAsked(t testing.TB) {
	t.Helper()
	asked, err := f.poll(int(time.Minute.Milliseconds()), f.fuse)
	if err != nil {
		t.Fatal(err)
	}
	if !asked[0] {
		t.Fatal("nobody asks the filesystem")
	}
}

// close fails what waits, unmounts dir, and ends the server. Binds of it
// elsewhere are dead from then on.
func (f *FS) close() error {
	// In this order: the end of the connection lets go of all that waits, and of
	// an unmount that would.
	f.set(func() { f.mu.ended = true })
	<-f.done
	err := f.closeFiles()
	return errors.Join(err, unix.Unmount(f.dir, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH))
}

func (f *FS) closeFiles() error {
	return errors.Join(unix.Close(f.fuse), unix.Close(f.bell[0]), unix.Close(f.bell[1]))
}

// set changes what the server is to do, and tells it.
func (f *FS) set(change func()) {
	f.mu.Lock()
	change()
	f.mu.Unlock()
	_, _ = unix.Write(f.bell[1], []byte{0}) // full: it was told
}

// serve answers requests until it is told to end. What it has taken from the
// kernel it answers: a request that was read and is not answered would make
// its process unkillable.
func (f *FS) serve() {
	defer close(f.done)
	buf := make([]byte, maxWrite+4096)
	for {
		f.mu.Lock()
		hangs, ended := f.mu.hangs, f.mu.ended
		f.mu.Unlock()
		if ended {
			return
		}
		wait := []int{f.bell[0], f.fuse}
		if hangs {
			wait = wait[:1]
		}
		ready, err := f.poll(-1, wait...)
		if err != nil {
			return
		}
		if ready[0] {
			_, _ = unix.Read(f.bell[0], make([]byte, 64))
			continue
		}
		n, err := unix.Read(f.fuse, buf)
		switch {
		case errors.Is(err, unix.ENODEV): // unmounted
			return
		case err != nil: // the request was taken back
			continue
		}
		if reply := f.answer(buf[:n]); reply != nil {
			_, _ = unix.Write(f.fuse, reply) // fails if nobody waits any more
		}
	}
}

func (f *FS) poll(timeout int, fds ...int) ([]bool, error) {
	var wait []unix.PollFd
	for _, fd := range fds {
		wait = append(wait, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	for {
		_, err := unix.Poll(wait, timeout)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		ready := make([]bool, len(wait))
		for i := range wait {
			ready[i] = wait[i].Revents != 0
		}
		return ready, err
	}
}

// answer returns the reply to a request, or nil for one that has none.
func (f *FS) answer(request []byte) []byte {
	in := header{
		op: binary.NativeEndian.Uint32(request[4:]), unique: binary.NativeEndian.Uint64(request[8:]),
		node: binary.NativeEndian.Uint64(request[16:]), uid: binary.NativeEndian.Uint32(request[24:]), gid: binary.NativeEndian.Uint32(request[28:]),
	}
	var body []byte
	errno := unix.ENOSYS
	if in.op == opForget || in.op == opBatchForget || in.op == opInterrupt {
		return nil
	}
	if do := operations[in.op]; do != nil {
		body, errno = do(f, in, request[headerSize:])
	}
	reply := make([]byte, 16, 16+len(body))
	binary.NativeEndian.PutUint32(reply, uint32(16+len(body)))
	binary.NativeEndian.PutUint32(reply[4:], uint32(-int32(errno)))
	binary.NativeEndian.PutUint64(reply[8:], in.unique)
	return append(reply, body...)
}
