package imagedir

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/holdfast-dev/holdfast/internal/manifest"
	"github.com/holdfast-dev/holdfast/internal/ociimage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeRuntime keeps images in memory.
type fakeRuntime struct {
	mu      sync.Mutex
	fail    error
	ids     map[string]string
	pinned  map[string]bool
	imports int
}

func (f *fakeRuntime) Image(_ context.Context, ref string) (id string, pinned bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ids[ref], f.pinned[ref], f.fail
}

func (f *fakeRuntime) Import(_ context.Context, archive io.Reader, images []ociimage.Named) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil {
		return f.fail
	}
	if _, err := io.Copy(io.Discard, archive); err != nil {
		return err
	}
	f.imports++
	for _, img := range images {
		f.ids[img.Ref], f.pinned[img.Ref] = img.IDs[0], true
	}
	return nil
}

func (f *fakeRuntime) Pin(_ context.Context, ref string, pinned bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pinned[ref] = pinned
	return f.fail
}

func (f *fakeRuntime) do(what func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	what()
}

// A world is a folder, a runtime and what the stage said.
type world struct {
	t       *testing.T
	dir     string
	state   string
	runtime *fakeRuntime
	unused  Unused
	d       *Dir
	stop    func()

	mu     sync.Mutex
	faults []string
	came   []string
}

func newWorld(t *testing.T) *world {
	root := t.TempDir()
	w := &world{t: t, dir: filepath.Join(root, "images"), state: filepath.Join(root, "images.json"), runtime: &fakeRuntime{ids: map[string]string{}, pinned: map[string]bool{}}}
	if err := os.Mkdir(w.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return w
}

// run starts the stage, as a new process would.
func (w *world) run() {
	cfg := Config{
		Dir: w.dir, StateFile: w.state, Unused: w.unused, Log: slog.New(slog.NewTextHandler(w.t.Output(), nil)),
		Report: func(faults []manifest.Fault) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.faults = nil
			for _, f := range faults {
				w.faults = append(w.faults, f.String())
			}
		},
		Imported: func(refs []string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.came = append(w.came, refs...)
		},
	}
	if w.unused == (Unused{}) {
		cfg.Runtime = w.runtime
	}
	w.d = New(cfg)
	// Time stands still in a bubble while the kernel is waited for.
	w.d.watch.open = func() (*fsnotify.Watcher, error) { return nil, errors.New("none in a bubble") }
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.d.Run(ctx) }()
	synctest.Wait() // it has looked once
	w.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Errorf("Run: %v", err)
		}
	}
}

// archive is an image archive; content makes another image of it.
func (w *world) archive(content string, refs ...string) []byte {
	w.t.Helper()
	var buf bytes.Buffer
	_, err := ociimage.Build(&buf, ociimage.Image{Refs: refs, Files: map[string]ociimage.File{"/f": {Mode: 0o644, Content: []byte(content)}}})
	if err != nil {
		w.t.Fatal(err)
	}
	return buf.Bytes()
}

// put writes a file whose time of change is the bubble's.
func (w *world) put(name string, data []byte) {
	w.t.Helper()
	path := filepath.Join(w.dir, name)
	err := os.WriteFile(path, data, 0o644)
	if err == nil {
		err = os.Chtimes(path, time.Now(), time.Now())
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) remove(name string) {
	w.t.Helper()
	if err := os.Remove(filepath.Join(w.dir, name)); err != nil {
		w.t.Fatal(err)
	}
}

// pass lets time pass.
func (w *world) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// is compares the files' states.
func (w *world) is(want ...string) {
	w.t.Helper()
	var got []string
	for _, a := range w.d.Archives() {
		got = append(got, strings.TrimSpace(a.File+" "+string(a.State)+" "+strings.Join(a.Images, " ")))
	}
	if diff := cmp.Diff(got, want); diff != "" {
		w.t.Errorf("archives: got -, want +:\n%s", diff)
	}
}

// wrong compares the faults, by a part of each.
func (w *world) wrong(want ...string) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.faults) != len(want) {
		w.t.Errorf("got faults %q, want %q", w.faults, want)
		return
	}
	for i := range want {
		if !strings.Contains(w.faults[i], want[i]) {
			w.t.Errorf("got fault %q, want %q in it", w.faults[i], want[i])
		}
	}
}

// pins compares the names of the pinned images.
func (w *world) pins(want ...string) {
	w.t.Helper()
	w.runtime.mu.Lock()
	defer w.runtime.mu.Unlock()
	var got []string
	for _, ref := range slices.Sorted(maps.Keys(w.runtime.pinned)) {
		if w.runtime.pinned[ref] {
			got = append(got, ref)
		}
	}
	if !slices.Equal(got, want) {
		w.t.Errorf("pinned: got %q, want %q", got, want)
	}
}

func (w *world) imports(want int) {
	w.t.Helper()
	w.runtime.mu.Lock()
	defer w.runtime.mu.Unlock()
	if w.runtime.imports != want {
		w.t.Errorf("got %d imports, want %d", w.runtime.imports, want)
	}
}

// soon is enough for anything that is seen at the next look.
const soon = period + settle + time.Second

func TestDir(t *testing.T) {
	const a, b = "reg.example/a:1", "reg.example/b:1"
	for name, test := range map[string]func(w *world){
		"there at start, restart, gone": func(w *world) {
			w.put("a.tar", w.archive("1", a, b))
			w.pass(settle)
			w.run()
			w.pass(0)
			w.is("a.tar imported " + a + " " + b)
			w.pins(a, b)
			w.wrong()
			w.stop()
			w.run()
			w.pass(soon)
			w.imports(1)
			if diff := cmp.Diff(w.came, []string{a, b}); diff != "" {
				w.t.Errorf("came: got -, want +:\n%s", diff)
			}
			w.remove("a.tar")
			w.pass(soon)
			w.is()
			w.pins()
			w.wrong()
			w.runtime.do(func() {
				if len(w.runtime.ids) != 2 {
					w.t.Errorf("images are gone: %v", w.runtime.ids)
				}
			})
		},
		"removed while nobody looked": func(w *world) {
			w.put("a.tar", w.archive("1", a))
			w.run()
			w.pass(soon)
			w.pins(a)
			w.stop()
			w.remove("a.tar")
			w.run()
			w.pass(soon)
			w.pins()
		},
		"copied slowly": func(w *world) {
			data := w.archive("1", a)
			w.run()
			w.put("a.tar", data[:2000])
			w.pass(period + time.Second)
			w.is("a.tar waiting")
			w.wrong()
			w.put("a.tar", data)
			w.pass(soon)
			w.is("a.tar imported " + a)
		},
		"cut, and replaced": func(w *world) {
			w.put("a.tar", w.archive("1", a)[:2000])
			w.run()
			w.pass(soon + patience)
			w.is("a.tar wrong")
			w.wrong("images/a.tar: the archive is incomplete")
			w.put("a.tar", w.archive("1", a))
			w.pass(soon)
			w.is("a.tar imported " + a)
			w.wrong()
		},
		"a good one becomes bad": func(w *world) {
			w.put("a.tar", w.archive("1", a))
			w.run()
			w.pass(soon)
			w.put("a.tar", []byte(strings.Repeat("no archive ", 200)))
			w.pass(soon)
			w.is("a.tar wrong " + a)
			w.pins(a)
			w.wrong("it is no tar file")
			w.remove("a.tar")
			w.pass(soon)
			w.wrong()
			w.pins()
		},
		"another version, another name": func(w *world) {
			w.put("a.tar", w.archive("1", a))
			w.run()
			w.pass(soon)
			w.put("a.tar", w.archive("2", b))
			w.pass(soon)
			w.is("a.tar imported " + b)
			w.pins(b)
		},
		"two of one name": func(w *world) {
			w.put("a.tar", w.archive("1", a))
			w.put("b.tar", w.archive("2", a))
			w.put("same.tar", w.archive("1", a))
			w.run()
			w.pass(soon)
			w.is("a.tar imported "+a, "b.tar wrong", "same.tar imported "+a)
			w.wrong("images/b.tar: it names " + a + ", which a.tar names too")
			w.remove("a.tar")
			w.remove("same.tar")
			w.pass(soon)
			w.is("b.tar imported " + a)
			w.pins(a)
			w.wrong()
		},
		"removed from the runtime, and unpinned": func(w *world) {
			w.put("a.tar", w.archive("1", a))
			w.put("b.tar", w.archive("1", b))
			w.run()
			w.pass(soon)
			w.runtime.do(func() {
				delete(w.runtime.ids, a)
				delete(w.runtime.pinned, a)
				w.runtime.pinned[b] = false
			})
			w.pass(checkPeriod + soon)
			w.pins(a, b)
			w.imports(3)
		},
		"pulled since": func(w *world) {
			w.put("a.tar", w.archive("1", a))
			w.run()
			w.pass(soon)
			w.runtime.do(func() { w.runtime.ids[a] = "newer" })
			w.pass(checkPeriod + soon)
			w.imports(1)
		},
		"the runtime is down": func(w *world) {
			w.put("a.tar", w.archive("1", a))
			w.runtime.fail = errors.New("no answer")
			w.run()
			w.pass(soon)
			w.is("a.tar wrong")
			w.wrong("the runtime did not take it: no answer; it is tried again")
			w.runtime.do(func() { w.runtime.fail = nil })
			w.pass(maxRetry)
			w.is("a.tar imported " + a)
			w.wrong()
		},
		"what is no archive": func(w *world) {
			w.put("README.md", []byte("hello"))
			w.put(".a.tar.swp", []byte("half"))
			w.put("b.tar.zst", []byte("x"))
			if err := os.Symlink("nowhere.tar", filepath.Join(w.dir, "link.tar")); err != nil {
				w.t.Fatal(err)
			}
			w.run()
			w.pass(soon)
			w.is("b.tar.zst wrong", "link.tar wrong")
			w.wrong("decompress it", "link.tar: no such file")
			w.remove("link.tar")
			w.pass(soon)
			w.wrong("decompress it")
		},
		"the folder is gone and back": func(w *world) {
			w.put("a.tar", w.archive("1", a))
			w.run()
			w.pass(soon)
			if err := os.Rename(w.dir, w.dir+".away"); err != nil {
				w.t.Fatal(err)
			}
			w.pass(soon)
			w.wrong("no such file or directory; put it back")
			w.pins(a)
			if err := os.Rename(w.dir+".away", w.dir); err != nil {
				w.t.Fatal(err)
			}
			w.pass(soon)
			w.wrong()
			w.imports(1)
		},
		"no folder": func(w *world) {
			if err := os.Remove(w.dir); err != nil {
				w.t.Fatal(err)
			}
			w.run()
			w.pass(soon)
			w.wrong()
		},
		"another's runtime": func(w *world) {
			w.unused = Unused{"this node's runtime is another's", "ctr images import"}
			w.put("a.tar", w.archive("1", a))
			w.run()
			w.pass(soon)
			w.is("a.tar wrong")
			w.wrong("images/a.tar: this node's runtime is another's; ctr images import " + w.dir + "/a.tar")
			w.remove("a.tar")
			w.pass(soon)
			w.wrong()
		},
		"a broken state file": func(w *world) {
			if err := os.WriteFile(w.state, []byte("{"), 0o600); err != nil {
				w.t.Fatal(err)
			}
			w.put("a.tar", w.archive("1", a))
			w.run()
			w.pass(soon)
			w.imports(1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t) // outside the bubble: its folder is removed after it
			synctest.Test(t, func(t *testing.T) {
				w.t = t
				test(w)
				w.stop()
			})
		})
	}
}

func TestNewerStateFileIsLeftAlone(t *testing.T) {
	w := newWorld(t)
	const newer = `{"version":2}`
	if err := os.WriteFile(w.state, []byte(newer), 0o600); err != nil {
		t.Fatal(err)
	}
	d := New(Config{Dir: w.dir, StateFile: w.state, Runtime: w.runtime, Log: slog.New(slog.DiscardHandler)})
	if err := d.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "has version 2, and this release reads 1") {
		t.Errorf("got %v", err)
	}
	if data, err := os.ReadFile(w.state); err != nil || string(data) != newer {
		t.Errorf("got %q, %v", data, err)
	}
}

// TestEvents sees a file by the kernel's events, in real time.
func TestEvents(t *testing.T) {
	w := newWorld(t)
	came := make(chan []string, 1)
	d := New(Config{
		Dir: w.dir, StateFile: w.state, Runtime: w.runtime, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Report: func([]manifest.Fault) {}, Imported: func(refs []string) { came <- refs },
	})
	d.period = time.Hour // else the events would not be missed
	// A file that is moved here with an old time is taken at once.
	move := func(name, ref string) {
		tmp := filepath.Join(filepath.Dir(w.dir), name)
		err := os.WriteFile(tmp, w.archive("1", ref), 0o644)
		if err == nil {
			err = os.Chtimes(tmp, time.Time{}, time.Now().Add(-time.Hour))
		}
		if err == nil {
			err = os.Rename(tmp, filepath.Join(w.dir, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	move("a.tar", "reg.example/a:1")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	if got := <-came; !slices.Equal(got, []string{"reg.example/a:1"}) {
		t.Errorf("at start: got %q", got)
	}
	move("b.tar", "reg.example/b:1")
	if got := <-came; !slices.Equal(got, []string{"reg.example/b:1"}) {
		t.Errorf("by an event: got %q", got)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
