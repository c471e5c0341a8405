package diskusage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// tree makes files below a new folder: a name that ends with / is a folder, the
// number is a file's size in bytes.
func tree(t *testing.T, files map[string]int) string {
	t.Helper()
	dir := t.TempDir()
	for name, size := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "/") {
			if err := os.MkdirAll(path, 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.WriteFile(path, make([]byte, size), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// simple counts without any of the tricks.
func simple(t *testing.T, dir string) (used Usage) {
	t.Helper()
	seen := map[uint64]bool{}
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		s := info.Sys().(*syscall.Stat_t)
		if !seen[s.Ino] {
			seen[s.Ino] = true
			used.Bytes += uint64(s.Blocks) * 512
			used.Inodes++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return used
}

func measure(t *testing.T, dir string, o Options) Usage {
	t.Helper()
	used, err := Measure(t.Context(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return used
}

func TestMeasure(t *testing.T) {
	big := map[string]int{}
	for i := range 3000 {
		big[fmt.Sprintf("d%d/e%d/f%d", i%40, i%7, i)] = i % 9000
	}
	long := strings.Repeat("x", 250)
	for name, files := range map[string]map[string]int{
		"empty":                       {},
		"empty folders":               {"a/": 0, "b/c/": 0},
		"files":                       {"a": 0, "b": 1, "c": 100_000, "d/e": 5},
		"many, more than one buffer":  big,
		"long names, deep":            {strings.Repeat(long+"/", 10) + "f": 9},
		"names of one and two dots x": {".x": 1, "..x": 1, "...": 1},
	} {
		t.Run(name, func(t *testing.T) {
			dir := tree(t, files)
			want := simple(t, dir)
			for _, o := range []Options{{}, {Workers: 1}, {Workers: 7}, {Background: true}} {
				if got := measure(t, dir, o); got != want {
					t.Errorf("with %+v: %+v, want %+v", o, got, want)
				}
			}
		})
	}
}

func TestLinks(t *testing.T) {
	dir := tree(t, map[string]int{"a/f": 50_000, "b/": 0, "outside/g": 50_000})
	inside := filepath.Join(dir, "in")
	if err := os.Mkdir(inside, 0o755); err != nil {
		t.Fatal(err)
	}
	base := measure(t, inside, Options{})
	for i := range 5 {
		if err := os.Link(filepath.Join(dir, "a/f"), filepath.Join(inside, fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(dir, "outside"), filepath.Join(inside, "link")); err != nil {
		t.Fatal(err)
	}
	got := measure(t, inside, Options{})
	if got.Inodes != base.Inodes+2 || got.Bytes < 50_000 || got.Bytes > 60_000+base.Bytes {
		t.Errorf("got %+v: want one file of five names, the link, and nothing behind it", got)
	}
	if link := measure(t, filepath.Join(inside, "link"), Options{}); link.Inodes != 1 {
		t.Errorf("the top is a link: %+v, want the link alone", link)
	}
	if file := measure(t, filepath.Join(dir, "a/f"), Options{}); file.Inodes != 1 || file.Bytes < 50_000 {
		t.Errorf("the top is a file: %+v", file)
	}
}

func TestSparse(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "sparse")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 1<<40); err != nil {
		t.Fatal(err)
	}
	if got := measure(t, dir, Options{}); got.Bytes > 1<<20 {
		t.Errorf("a file of a tebibyte of holes takes %d bytes", got.Bytes)
	}
}

func TestMissing(t *testing.T) {
	if _, err := Measure(t.Context(), filepath.Join(t.TempDir(), "none"), Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want that nothing is there", err)
	}
}

func TestEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	because := errors.New("no time left")
	cancel(because)
	if _, err := Measure(ctx, tree(t, map[string]int{"a/b": 1}), Options{}); err == nil {
		t.Error("a context that has ended: no error")
	}
	w := &walk{}
	w.changed.L = &w.mu
	w.fail(because)
	if f := w.next(); f != nil || !errors.Is(w.err, because) {
		t.Errorf("after the end there is a next folder %v, %v", f, w.err)
	}
}

// TestDeep walks a tree that is deeper than descriptors and paths reach, with a
// sibling at each level, as a pod could make it.
func TestDeep(t *testing.T) {
	dir := t.TempDir()
	const depth = 3 * maxOpen
	name := strings.Repeat("n", 100) // the whole path is longer than the kernel takes
	fd, err := unix.Open(dir, openFlags, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range depth {
		for _, n := range []string{name, "sibling"} {
			if err := unix.Mkdirat(fd, n, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		next, err := unix.Openat(fd, name, openFlags, 0)
		if err = errors.Join(err, unix.Close(fd)); err != nil {
			t.Fatal(err)
		}
		fd = next
	}
	if err := unix.Close(fd); err != nil {
		t.Fatal(err)
	}
	before := descriptors(t)
	for _, workers := range []int{1, 4} {
		if got := measure(t, dir, Options{Workers: workers}); got.Inodes != 2*depth+1 {
			t.Errorf("%d workers: %d inodes, want %d", workers, got.Inodes, 2*depth+1)
		}
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors are open, %d were before", after, before)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// TestChanging counts a tree that is being made and removed.
func TestChanging(t *testing.T) {
	dir := tree(t, map[string]int{"stays/f": 1})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 200 {
			sub := filepath.Join(dir, fmt.Sprint("d", i%5))
			_ = os.MkdirAll(filepath.Join(sub, "a/b/c"), 0o755)
			_ = os.WriteFile(filepath.Join(sub, "a/b/f"), []byte("x"), 0o644)
			_ = os.Remove(filepath.Join(sub, "a/b/f"))
			_ = os.RemoveAll(sub)
			_ = os.Symlink("/", sub) // in place of a folder
			_ = os.Remove(sub)
		}
	}()
	for {
		select {
		case <-done:
			if got, want := measure(t, dir, Options{}), simple(t, dir); got != want {
				t.Errorf("at rest: %+v, want %+v", got, want)
			}
			return
		default:
			if got := measure(t, dir, Options{Workers: 3}); got.Inodes > 100 {
				t.Fatalf("%d inodes: it left the tree", got.Inodes)
			}
		}
	}
}

func TestOneFilesystem(t *testing.T) {
	testenv.Need(t, "root")
	dir := tree(t, map[string]int{"f": 1, "mounted/": 0, "bound/": 0})
	want := measure(t, dir, Options{})
	other := tree(t, map[string]int{"g": 100_000})
	for target, mount := range map[string]func(string) error{
		"mounted": func(p string) error { return unix.Mount("tmpfs", p, "tmpfs", 0, "") },
		"bound":   func(p string) error { return unix.Mount(other, p, "", unix.MS_BIND, "") },
	} {
		path := filepath.Join(dir, target)
		if err := mount(path); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
		if err := os.WriteFile(filepath.Join(path, "more"), make([]byte, 50_000), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got := measure(t, dir, Options{}); got.Inodes != want.Inodes-2 || got.Bytes > want.Bytes {
		t.Errorf("got %+v, want %+v without the two folders that others are mounted on", got, want)
	}
}

// TestYieldsToOthers holds that a count in the background is behind all others that want
// the disk or the processor, and that its thread is not left there for others.
func TestYieldsToOthers(t *testing.T) {
	type state struct {
		disk uintptr
		nice int
	}
	now := func() state {
		disk, _, _ := unix.Syscall(unix.SYS_IOPRIO_GET, thisThread, 0, 0)
		nice, _ := unix.Getpriority(unix.PRIO_PROCESS, 0)
		return state{disk, 20 - nice}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends
		before := now()
		was := yieldToOthers()
		if got, want := now(), (state{idleDisk, max(before.nice, lowNice)}); got != want {
			t.Errorf("behind others: %+v, want %+v", got, want)
		}
		// Who is not root cannot go back.
		if restored := was.restore(); restored != (now() == before) || !restored && os.Geteuid() == 0 {
			t.Errorf("restored %v: %+v, was %+v", restored, now(), before)
		}
	}()
	<-done
}

func BenchmarkMeasure(b *testing.B) {
	dir := b.TempDir()
	for d := range 1000 {
		sub := filepath.Join(dir, fmt.Sprint(d/32), fmt.Sprint(d))
		if err := os.MkdirAll(sub, 0o755); err != nil {
			b.Fatal(err)
		}
		for f := range 100 {
			if err := os.WriteFile(filepath.Join(sub, fmt.Sprint(f)), []byte("x"), 0o644); err != nil {
				b.Fatal(err)
			}
		}
	}
	for name, o := range map[string]Options{
		"workers=1": {Workers: 1}, "workers=2": {Workers: 2}, "workers=8": {Workers: 8}, "background": {Background: true},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Measure(b.Context(), dir, o); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
