// Package initramfs writes the archive that a Linux kernel unpacks into its
// first root file system: cpio, "newc", as the kernel's
// Documentation/driver-api/early-userspace/buffer-format.rst describes it.
//
// Everything in it belongs to root, whoever writes it, so that nobody needs to
// be root to make a machine's files.
package initramfs

import (
	"bufio"
	"fmt"
	"io"
	"path"
	"strings"
)

// The file types of a mode, as the archive has them.
const (
	typeDir     = 0o040000
	typeFile    = 0o100000
	typeSymlink = 0o120000
)

// A Writer writes one archive. It is for one goroutine. Folders above a file
// are made as they are needed.
type Writer struct {
	out    *bufio.Writer
	inode  int64
	offset int64 // bytes written, for padding
	dirs   map[string]bool
}

// NewWriter returns a writer to w; Close completes the archive.
func NewWriter(w io.Writer) *Writer {
	return &Writer{out: bufio.NewWriterSize(w, 1<<20), dirs: map[string]bool{"": true, ".": true}}
}

// Dir adds a folder. A second one of the same name is no error.
func (w *Writer) Dir(name string) error {
	name = clean(name)
	if w.dirs[name] {
		return nil
	}
	if err := w.Dir(path.Dir(name)); err != nil {
		return err
	}
	w.dirs[name] = true
	return w.entry(name, typeDir|0o755, 0, strings.NewReader(""))
}

// File adds a file with the size bytes of r. It fails if r has fewer.
func (w *Writer) File(name string, perm uint32, size int64, r io.Reader) error {
	if size < 0 || size >= 1<<32 {
		return fmt.Errorf("%s: %d bytes do not fit into the archive's format", name, size)
	}
	if err := w.Dir(path.Dir(clean(name))); err != nil {
		return err
	}
	return w.entry(clean(name), typeFile|perm, size, r)
}

// Symlink adds a symbolic link.
func (w *Writer) Symlink(name, target string) error {
	if err := w.Dir(path.Dir(clean(name))); err != nil {
		return err
	}
	return w.entry(clean(name), typeSymlink|0o777, int64(len(target)), strings.NewReader(target))
}

// Close completes the archive. It does not close what is below.
func (w *Writer) Close() error {
	w.inode = -1 // the trailer has number 0
	if err := w.entry("TRAILER!!!", 0, 0, strings.NewReader("")); err != nil {
		return err
	}
	return w.out.Flush()
}

func (w *Writer) entry(name string, mode uint32, size int64, r io.Reader) error {
	w.inode++
	links := 1
	if mode&typeDir != 0 && mode&typeFile != typeFile {
		links = 2
	}
	n, err := fmt.Fprintf(w.out, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%s\x00",
		w.inode, mode, 0, 0, links, 0, size, 0, 0, 0, 0, len(name)+1, 0, name)
	w.offset += int64(n)
	if err != nil {
		return err
	}
	if err := w.pad(); err != nil {
		return err
	}
	copied, err := io.CopyN(w.out, r, size)
	w.offset += copied
	if err != nil {
		return fmt.Errorf("%s: %d of %d bytes: %w", name, copied, size, err)
	}
	return w.pad()
}

// pad fills up to the next multiple of four bytes.
func (w *Writer) pad() error {
	n := -w.offset & 3
	w.offset += n
	_, err := w.out.Write(make([]byte, n))
	return err
}

func clean(name string) string { return strings.TrimPrefix(path.Clean("/"+name), "/") }
