package manifestdir

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/manifest"
)

// A looker reads a real folder whenever a test says so, by the test's clock.
type looker struct {
	t       *testing.T
	dir     string
	scanner scanner
	state   state
}

func newLooker(t *testing.T) *looker {
	dir := t.TempDir()
	return &looker{t: t, dir: dir, scanner: newScanner(Config{Dir: dir, Recursive: true, Parser: parser}.withDefaults())}
}

func (l *looker) path(name string) string { return filepath.Join(l.dir, name) }

func (l *looker) look() string {
	l.state, _ = fold(l.state, l.scanner.scan(), time.Now(), l.scanner.settle)
	return show(l.state)
}

func (l *looker) want(want string) {
	l.t.Helper()
	if got := l.look(); got != want {
		l.t.Errorf("got  %s\nwant %s\n%v", got, want, l.state.set.Faults)
	}
}

// appendTo writes at the end of a file, as a writer does that has more to come.
func appendTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	must(t, err)
	_, err = f.WriteString(text)
	must(t, errors.Join(err, f.Close()))
}

// TestSavePatterns saves one edit as editors and copying programs do. The folder
// is read after every step, the worst that can happen: the document must change
// once, from the old text to the new, and never be missing.
func TestSavePatterns(t *testing.T) {
	was, next := configMap("x", "1"), configMap("x", "2")
	half := next[:len(next)-8]
	rename := func(l *looker, from, to string) { must(l.t, os.Rename(l.path(from), l.path(to))) }
	file := func(l *looker, name, text string) { write(l.t, l.path(name), text) }
	remove := func(l *looker, name string) { must(l.t, os.Remove(l.path(name))) }
	more := func(l *looker, name, text string) { appendTo(l.t, l.path(name), text) }
	type step = func(*looker)
	tests := []struct {
		name  string
		steps []step
	}{
		{"vim", []step{
			func(l *looker) { file(l, ".a.yaml.swp", "b0VIM") },
			func(l *looker) { file(l, "4913", "") },
			func(l *looker) { remove(l, "4913") },
			func(l *looker) { rename(l, "a.yaml", "a.yaml~") },
			func(l *looker) { file(l, "a.yaml", "") },
			func(l *looker) { more(l, "a.yaml", next) },
			func(l *looker) { remove(l, "a.yaml~") },
		}},
		{"vim with backupcopy", []step{
			func(l *looker) { file(l, "a.yaml~", was) },
			func(l *looker) { file(l, "a.yaml", "") },
			func(l *looker) { more(l, "a.yaml", next) },
		}},
		{"emacs", []step{
			func(l *looker) { must(l.t, os.Symlink("me@host.7:1", l.path(".#a.yaml"))) },
			func(l *looker) { file(l, "#a.yaml#", half) },
			func(l *looker) { rename(l, "a.yaml", "a.yaml~") },
			func(l *looker) { file(l, "a.yaml", next) },
			func(l *looker) { remove(l, "#a.yaml#") },
			func(l *looker) { remove(l, ".#a.yaml") },
		}},
		{"truncated and written", []step{
			func(l *looker) { file(l, "a.yaml", "") },
			func(l *looker) { file(l, "a.yaml", half) },
			func(l *looker) { file(l, "a.yaml", next) },
		}},
		{"temporary file with another ending", []step{
			func(l *looker) { file(l, "a.yaml.tmp", half) },
			func(l *looker) { more(l, "a.yaml.tmp", next[len(half):]) },
			func(l *looker) { rename(l, "a.yaml.tmp", "a.yaml") },
		}},
		{"temporary file that looks like a manifest", []step{
			func(l *looker) { file(l, "a.new.yaml", half) },
			func(l *looker) { more(l, "a.new.yaml", next[len(half):]) },
			func(l *looker) { rename(l, "a.new.yaml", "a.yaml") },
		}},
		{"sed -i", []step{
			func(l *looker) { file(l, "sedQX7d2a", next) },
			func(l *looker) { rename(l, "sedQX7d2a", "a.yaml") },
		}},
		{"rsync", []step{
			func(l *looker) { file(l, ".a.yaml.Ab12Cd", half) },
			func(l *looker) { more(l, ".a.yaml.Ab12Cd", next[len(half):]) },
			func(l *looker) { must(l.t, os.Chtimes(l.path(".a.yaml.Ab12Cd"), time.Unix(1, 0), time.Unix(1, 0))) },
			func(l *looker) { rename(l, ".a.yaml.Ab12Cd", "a.yaml") },
		}},
		{"unlinked and made anew", []step{
			func(l *looker) { remove(l, "a.yaml") },
			func(l *looker) { file(l, "a.yaml", "") },
			func(l *looker) { more(l, "a.yaml", next) },
		}},
		{"moved away and back with an edit", []step{
			func(l *looker) { rename(l, "a.yaml", "../a.yaml") },
			func(l *looker) { file(l, "../a.yaml", next) },
			func(l *looker) { rename(l, "../a.yaml", "a.yaml") },
		}},
		{"same size and same time", []step{
			func(l *looker) { must(l.t, os.Chtimes(l.path("a.yaml"), time.Unix(1, 0), time.Unix(1, 0))) },
			func(l *looker) { file(l, "b.tmp", next) },
			func(l *looker) { must(l.t, os.Chtimes(l.path("b.tmp"), time.Unix(1, 0), time.Unix(1, 0))) },
			func(l *looker) { rename(l, "b.tmp", "a.yaml") },
		}},
		{"swapped by a link", []step{
			func(l *looker) { file(l, "..1/a.yaml", was) },
			func(l *looker) { must(l.t, os.Symlink("..1", l.path("..data"))) },
			func(l *looker) { must(l.t, os.Symlink("..data/a.yaml", l.path("tmp"))) },
			func(l *looker) { rename(l, "tmp", "a.yaml") },
			func(l *looker) { file(l, "..2/a.yaml", next) },
			func(l *looker) { must(l.t, os.Symlink("..2", l.path("..tmp"))) },
			func(l *looker) { rename(l, "..tmp", "..data") },
			func(l *looker) { must(l.t, os.RemoveAll(l.path("..1"))) },
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLooker(t)
				file(l, "sub/b.yaml", configMap("b", "1"))
				file(l, "a.yaml", was)
				l.want("b=1@sub/b.yaml x=1@a.yaml")
				seen := []string{"x=1"}
				for i, s := range tt.steps {
					time.Sleep(100 * time.Millisecond)
					s(l)
					words := strings.Fields(l.look())
					if !slices.Contains(words, "b=1@sub/b.yaml") {
						t.Errorf("step %d: the other file's document: %v", i, words)
					}
					x := "none"
					for _, word := range words {
						if value, _, ok := strings.Cut(word, "@a.yaml"); ok && !strings.HasPrefix(word, "!") {
							x = value
						}
					}
					if x != seen[len(seen)-1] {
						seen = append(seen, x)
					}
				}
				if diff := cmp.Diff(seen, []string{"x=1", "x=2"}); diff != "" {
					t.Errorf("what was in force (-got +want):\n%s", diff)
				}
				time.Sleep(time.Minute)
				l.want("b=1@sub/b.yaml x=2@a.yaml")
			})
		})
	}
}

// TestCutOffAnywhere writes a file in two halves, cut at every byte, with a read
// between them. What is cut inside a line is never taken, though much of it is
// good YAML; at the end of a line nobody can tell.
func TestCutOffAnywhere(t *testing.T) {
	next := configMap("x", "12") + "---\n" + configMap("w", "34") + "immutable: true\n"
	for i := range len(next) {
		if i > 0 && next[i-1] == '\n' {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			l := newLooker(t)
			write(t, l.path("a.yaml"), configMap("x", "1")+"---\n"+configMap("w", "1"))
			l.want("w=1@a.yaml x=1@a.yaml")
			write(t, l.path("a.yaml"), next[:i])
			if got := strings.ReplaceAll(l.look(), "*", ""); got != "w=1@a.yaml x=1@a.yaml" && got != "w=1@a.yaml x=1@a.yaml !a.yaml" {
				t.Errorf("cut after %q: %s", next[:i], got)
			}
			appendTo(t, l.path("a.yaml"), next[i:])
			l.want("w=34@a.yaml x=12@a.yaml")
		})
	}
}

// A last line that never gets an end is taken after the settle time.
func TestNoEndOfLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLooker(t)
		text := strings.TrimSpace(configMap("x", "1"))
		write(t, l.path("a.yaml"), text)
		l.want("")
		if got, want := l.scanner.scan().again, 2*time.Second; got != want {
			t.Errorf("the next reading is due after %v, want %v", got, want)
		}
		time.Sleep(time.Second)
		appendTo(t, l.path("a.yaml"), " # more")
		l.want("")
		time.Sleep(2*time.Second - time.Nanosecond)
		l.want("")
		time.Sleep(time.Nanosecond)
		l.want("x=1@a.yaml")
		l.want("x=1@a.yaml") // and it stays
		if got := l.scanner.scan().again; got != 0 {
			t.Errorf("nothing is unfinished, and a reading is due after %v", got)
		}
		write(t, l.path("b.json"), `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b"},"data":{"v":"1"}}`)
		write(t, l.path("c.yaml"), `{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {"v":"1"}}`)
		l.want("b=1@b.json c=1@c.yaml x=1@a.yaml") // it says where it ends
	})
	// What was written long ago is nobody's work in progress.
	l := newLooker(t)
	write(t, l.path("a.yaml"), strings.TrimSpace(configMap("x", "1")))
	must(t, os.Chtimes(l.path("a.yaml"), time.Unix(1, 0), time.Unix(1, 0)))
	l.want("x=1@a.yaml")
}

// TestSuffixes says by name which files are read.
func TestSuffixes(t *testing.T) {
	l := newLooker(t)
	read := []string{"a.yaml", "b.yml", "c.json", "d.pod.yaml", "e f.yaml"}
	for i, name := range read {
		write(t, l.path(name), fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c%d"}}`, i))
	}
	ignored := []string{
		"#a.yaml#", "4913", "a", "a.YAML", "a.conf", "a.yaml,v", "a.yaml-", "a.yaml.1", "a.yaml.bak", "a.yaml.dpkg-dist", "a.yaml.dpkg-new",
		"a.yaml.orig", "a.yaml.rej", "a.yaml.rpmsave", "a.yaml.save", "a.yaml.swp", "a.yaml.tmp", "a.yamlx", "a.yaml~", "sedAbCdEf",
	}
	for _, name := range append([]string{".a.yaml", ".a.yaml.swp", ".hidden/a.yaml", "..data/a.yaml", ".git/a.yaml"}, ignored...) {
		write(t, l.path(name), configMap("wrong", "1"))
	}
	l.look()
	var got []string
	for _, d := range l.state.set.Documents {
		got = append(got, d.File)
	}
	if diff := cmp.Diff(got, read); diff != "" {
		t.Errorf("read (-got +want):\n%s", diff)
	}
	if diff := cmp.Diff(slices.Sorted(slices.Values(l.state.set.Ignored)), ignored); diff != "" {
		t.Errorf("ignored (-got +want):\n%s", diff)
	}
	if len(l.state.set.Faults) != 0 {
		t.Errorf("faults: %v", l.state.set.Faults)
	}
}

// specials makes one of each kind of file that is not regular, and returns
// their paths.
func specials(t *testing.T, dir string) []string {
	t.Helper()
	must(t, syscall.Mkfifo(filepath.Join(dir, "fifo.yaml"), 0o600))
	socket, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "socket.yaml"), Net: "unix"})
	must(t, err)
	t.Cleanup(func() { _ = socket.Close() })
	must(t, os.Symlink("/dev/zero", filepath.Join(dir, "device.yaml")))
	must(t, os.Symlink("fifo.yaml", filepath.Join(dir, "link.yaml")))
	return []string{"device.yaml", "fifo.yaml", "link.yaml", "socket.yaml"}
}

// neverOpens fails if anything but a regular file is opened.
type neverOpens struct {
	osFiles
	t *testing.T
}

func (f neverOpens) ReadRegular(path string) ([]byte, error) {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		f.t.Errorf("%s was opened: %v, %v", path, info.Mode(), err)
	}
	return f.osFiles.ReadRegular(path)
}

func TestSpecialFilesAreNotOpened(t *testing.T) {
	l := newLooker(t)
	l.scanner.fsys = neverOpens{t: t}
	write(t, l.path("a.yaml"), configMap("x", "1"))
	want := "x=1@a.yaml"
	for _, name := range specials(t, l.dir) {
		want += " !" + name
	}
	l.want(want)
	for _, f := range l.state.set.Faults {
		if f.Message != "not a regular file" {
			t.Errorf("%s: %s", f.File, f.Message)
		}
	}
}

// One that takes the place of a regular file after it was looked at is opened,
// but neither waited for nor read.
func TestReadRegular(t *testing.T) {
	dir := t.TempDir()
	for _, name := range append(specials(t, dir), ".") {
		if data, err := (osFiles{}).ReadRegular(filepath.Join(dir, name)); err == nil {
			t.Errorf("%s: read %d bytes", name, len(data))
		}
	}
}

func TestLargeFile(t *testing.T) {
	l := newLooker(t)
	write(t, l.path("a.yaml"), configMap("x", "1"))
	l.want("x=1@a.yaml")
	appendTo(t, l.path("a.yaml"), strings.Repeat("#\n", manifest.MaxFileSize/2))
	l.want("x=1@a.yaml* !a.yaml")
	must(t, os.Truncate(l.path("a.yaml"), 1<<33)) // not read to its end
	l.want("x=1@a.yaml* !a.yaml")
	if got, want := l.state.set.Faults[0].Message, "larger than 10 MiB"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A sick filesystem answers some calls with errors.
type sick struct {
	osFiles
	errs map[string]error // by operation and name: `read a.yaml`
}

func (f *sick) fail(op, path string) error {
	if err := f.errs[op+" "+filepath.Base(path)]; err != nil {
		return &fs.PathError{Op: op, Path: path, Err: err}
	}
	return nil
}

func (f *sick) Stat(path string) (fs.FileInfo, error) {
	if err := f.fail("stat", path); err != nil {
		return nil, err
	}
	return f.osFiles.Stat(path)
}

// ReadDir returns some entries beside its error, as the real one may.
func (f *sick) ReadDir(path string) ([]fs.DirEntry, error) {
	entries, err := f.osFiles.ReadDir(path)
	if sick := f.fail("list", path); sick != nil {
		return entries[:1], sick
	}
	return entries, err
}

func (f *sick) ReadRegular(path string) ([]byte, error) {
	if err := f.fail("read", path); err != nil {
		return nil, err
	}
	return f.osFiles.ReadRegular(path)
}

// TestSickFilesystem holds that an error of the disk or of the network takes
// nothing away, however long it lasts.
func TestSickFilesystem(t *testing.T) {
	const all = "w=1@sub/deep/w.yaml x=1@a.yaml z=1@z.yaml"
	tests := []struct{ name, call, want string }{
		{"a file that cannot be read", "read a.yaml", "w=1@sub/deep/w.yaml x=1@a.yaml* z=1@z.yaml !a.yaml"},
		{"a file that cannot be looked at", "stat a.yaml", "w=1@sub/deep/w.yaml x=1@a.yaml* z=1@z.yaml !a.yaml"},
		{"a nested folder that cannot be looked at", "stat sub", "w=1@sub/deep/w.yaml* x=1@a.yaml z=1@z.yaml !sub"},
		{"a nested folder that cannot be listed", "list sub", "w=1@sub/deep/w.yaml* x=1@a.yaml z=1@z.yaml !sub"},
		{"a nested folder of a nested one", "list deep", "w=1@sub/deep/w.yaml* x=1@a.yaml z=1@z.yaml !sub/deep"},
		{"the folder cannot be looked at", "stat top", "w=1@sub/deep/w.yaml* x=1@a.yaml* z=1@z.yaml* !top"},
		{"the folder cannot be listed", "list top", "w=1@sub/deep/w.yaml* x=1@a.yaml* z=1@z.yaml* !top"},
	}
	for _, tt := range tests {
		for _, errno := range []error{syscall.EIO, syscall.ESTALE, syscall.EACCES, syscall.ENOTCONN, syscall.ETIMEDOUT} {
			t.Run(tt.name+"/"+errno.Error(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l := newLooker(t)
					l.dir = l.path("top")
					l.scanner.dir = l.dir
					disk := &sick{errs: map[string]error{}}
					l.scanner.fsys = disk
					write(t, l.path("a.yaml"), configMap("x", "1"))
					write(t, l.path("z.yaml"), configMap("z", "1"))
					write(t, l.path("sub/deep/w.yaml"), configMap("w", "1"))
					l.want(all)
					disk.errs[tt.call] = errno
					for range 3 {
						l.want(tt.want)
						if f := l.state.set.Faults[0]; !strings.Contains(f.Message, errno.Error()) || f.Reason != manifest.ReasonUnreadable {
							t.Errorf("fault %v: want the reason Unreadable, and %v", f, errno)
						}
						time.Sleep(time.Minute)
					}
					delete(disk.errs, tt.call)
					l.want(all)
				})
			})
		}
	}
}

// A link to a folder that is away for a while, as a mount may be.
func TestDanglingLinkToFolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLooker(t)
		other := filepath.Join(t.TempDir(), "mnt")
		write(t, filepath.Join(other, "a.yaml"), configMap("x", "1"))
		must(t, os.Symlink(other, l.path("linked")))
		l.want("x=1@linked/a.yaml")
		must(t, os.Rename(other, other+".away"))
		for range 3 {
			l.want("x=1@linked/a.yaml* !linked")
			time.Sleep(time.Minute)
		}
		must(t, os.Rename(other+".away", other))
		l.want("x=1@linked/a.yaml")
		must(t, os.Remove(l.path("linked")))
		l.want("x=1@linked/a.yaml")
		time.Sleep(2 * time.Second)
		l.want("")
	})
}

// The end of a disk's trouble is no event, and is seen all the same.
func TestTroubleEnds(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), configMap("x", "1"))
	sets := make(chan Set)
	d := New(Config{
		Dir: dir, Period: time.Hour, Parser: parser, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Publish: func(ctx context.Context, s Set) {
			select {
			case sets <- s:
			case <-ctx.Done():
			}
		},
	})
	disk := &ailing{}
	disk.ill.Store(true)
	d.scanner.fsys = disk
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	if got, want := show(state{set: <-sets}), "!a.yaml"; got != want {
		t.Errorf("while it is ill: %s, want %s", got, want)
	}
	disk.ill.Store(false)
	if got, want := show(state{set: <-sets}), "x=1@a.yaml"; got != want {
		t.Errorf("when it is well: %s, want %s", got, want)
	}
	cancel()
	must(t, <-done)
}

type ailing struct {
	osFiles
	ill atomic.Bool
}

func (f *ailing) ReadRegular(path string) ([]byte, error) {
	if f.ill.Load() {
		return nil, &fs.PathError{Op: "read", Path: path, Err: syscall.EIO}
	}
	return f.osFiles.ReadRegular(path)
}

// One log line for a fault, however often the folder is read, and one when it
// is gone; so too for a folder that does not exist.
func TestFaultsAreLoggedOnce(t *testing.T) {
	var lines bytes.Buffer
	dir := filepath.Join(t.TempDir(), "manifests")
	d := New(Config{Dir: dir, Parser: parser, Log: slog.New(slog.NewTextHandler(&lines, nil)), Publish: func(context.Context, Set) {}})
	defer d.watch.close()
	want := func(what string, begun, ended int) {
		t.Helper()
		for range 5 {
			d.read(t.Context())
		}
		text := lines.String()
		lines.Reset()
		if b, e := strings.Count(text, "level=WARN"), strings.Count(text, "good again, or gone"); b != begun || e != ended {
			t.Errorf("%s: %d lines of faults and %d of their ends, want %d and %d:\n%s", what, b, e, begun, ended, text)
		}
	}
	want("no folder", 1, 0)
	must(t, os.Mkdir(dir, 0o755))
	want("the folder is there", 0, 1)
	write(t, filepath.Join(dir, "a.yaml"), configMap("x", "1"))
	write(t, filepath.Join(dir, "b.yaml"), configMap("x", "2"))
	want("a duplicate", 1, 0)
	write(t, filepath.Join(dir, "a.yaml"), "# moved down\n"+configMap("x", "1"))
	want("the same, at another line", 0, 0)
	write(t, filepath.Join(dir, "a.yaml"), "\t[\n")
	want("a broken file beside it", 1, 0)
	must(t, os.Remove(filepath.Join(dir, "b.yaml")))
	want("one is gone", 0, 1)
	write(t, filepath.Join(dir, "a.yaml"), configMap("x", "3"))
	want("the other is good", 0, 1)
}
