package manifestdir

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/holdfast-dev/holdfast/internal/manifest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A running folder, and what it publishes.
type running struct {
	t    *testing.T
	dir  string
	sets chan Set
	stop func()
	last Set
}

// start watches dir with a period that never comes, so that only events and the
// check for replaced folders count.
func start(t *testing.T, dir string, change ...func(*Config)) *running {
	t.Helper()
	r := &running{t: t, dir: dir, sets: make(chan Set)}
	cfg := Config{
		Dir: dir, Recursive: true, Period: time.Hour, Settle: 50 * time.Millisecond, Parser: parser,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Publish: func(ctx context.Context, s Set) {
			select {
			case r.sets <- s:
			case <-ctx.Done():
			}
		},
	}
	for _, c := range change {
		c(&cfg)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	d := New(cfg)
	go func() { done <- d.Run(ctx) }()
	r.stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		r.stop = func() {}
	}
	t.Cleanup(func() { r.stop() })
	return r
}

// want waits until the published set shows this, as fold_test's show.
func (r *running) want(want string) {
	r.t.Helper()
	limit := time.After(2 * time.Minute)
	for {
		got := show(state{set: r.last})
		if got == want && r.last.Known {
			return
		}
		select {
		case r.last = <-r.sets:
		case <-limit:
			r.t.Fatalf("got  %s\nwant %s\n%v", got, want, r.last.Faults)
		}
	}
}

func configMap(name, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {v: %q}\n", name, value)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestEdits(t *testing.T) {
	dir := t.TempDir()
	r := start(t, dir)
	r.want("")
	a := filepath.Join(dir, "a.yaml")
	write(t, a, configMap("x", "1"))
	r.want("x=1@a.yaml")
	write(t, a, configMap("x", "2"))
	r.want("x=2@a.yaml")
	write(t, a, "\tnonsense: [")
	r.want("x=2@a.yaml* !a.yaml")
	write(t, a, "")
	r.want("x=2@a.yaml* !a.yaml")
	write(t, filepath.Join(dir, "new"), configMap("x", "3"))
	must(t, os.Rename(filepath.Join(dir, "new"), a))
	r.want("x=3@a.yaml")
	write(t, filepath.Join(dir, "sub", "deep", "b.json"), `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"w"},"data":{"v":"1"}}`)
	r.want("w=1@sub/deep/b.json x=3@a.yaml")
	must(t, os.Rename(a, filepath.Join(dir, "sub", "c.yaml")))
	r.want("w=1@sub/deep/b.json x=3@sub/c.yaml")
	must(t, os.RemoveAll(filepath.Join(dir, "sub")))
	r.want("")
}

func TestOtherFiles(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a.yaml.bak", "a.yaml~", ".a.yaml", "a.txt", "#a.yaml#", ".sub/a.yaml"} {
		write(t, filepath.Join(dir, name), configMap("x", "wrong"))
	}
	must(t, syscall.Mkfifo(filepath.Join(dir, "pipe.yaml"), 0o600))
	must(t, os.Symlink("nowhere.yaml", filepath.Join(dir, "link.yaml")))
	must(t, os.Symlink(".", filepath.Join(dir, "loop")))
	write(t, filepath.Join(dir, "a.yaml"), configMap("x", "1"))
	r := start(t, dir)
	r.want("x=1@a.yaml !link.yaml !pipe.yaml")
	if want := []string{"#a.yaml#", "a.txt", "a.yaml.bak", "a.yaml~"}; !slices.Equal(r.last.Ignored, want) {
		t.Errorf("ignored: got %v, want %v", r.last.Ignored, want)
	}
}

func TestNotRecursive(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "sub", "a.yaml"), configMap("x", "1"))
	write(t, filepath.Join(dir, "b.yaml"), configMap("b", "1"))
	r := start(t, dir, func(c *Config) { c.Recursive = false })
	r.want("b=1@b.yaml")
	if want := []string{"sub/"}; !slices.Equal(r.last.Ignored, want) {
		t.Errorf("ignored: got %v, want %v", r.last.Ignored, want)
	}
}

// A folder that is replaced, linked or away: no period helps here.
func TestFolderReplaced(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "manifests")
	r := start(t, dir)
	r.last = <-r.sets
	if r.last.Known || len(r.last.Faults) != 1 {
		t.Fatalf("a folder that is not there: known %v, faults %v", r.last.Known, r.last.Faults)
	}
	write(t, filepath.Join(dir, "a.yaml"), configMap("x", "1"))
	r.want("x=1@a.yaml")

	must(t, os.Rename(dir, filepath.Join(top, "old")))
	r.want("x=1@a.yaml* !manifests")
	write(t, filepath.Join(top, "new", "a.yaml"), configMap("x", "2"))
	must(t, os.Rename(filepath.Join(top, "new"), dir))
	r.want("x=2@a.yaml")
	write(t, filepath.Join(dir, "a.yaml"), configMap("x", "3"))
	r.want("x=3@a.yaml")

	// The folder becomes a link, and the link is pointed elsewhere.
	write(t, filepath.Join(top, "v1", "a.yaml"), configMap("x", "4"))
	write(t, filepath.Join(top, "v2", "a.yaml"), configMap("x", "5"))
	must(t, os.RemoveAll(dir))
	must(t, os.Symlink("v1", dir))
	r.want("x=4@a.yaml")
	must(t, os.Symlink("v2", dir+".tmp"))
	must(t, os.Rename(dir+".tmp", dir))
	r.want("x=5@a.yaml")
	write(t, filepath.Join(top, "v2", "a.yaml"), configMap("x", "6"))
	r.want("x=6@a.yaml")
}

// A volume made from a ConfigMap swaps `..data`.
func TestDataSwap(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "..1", "a.yaml"), configMap("x", "1"))
	write(t, filepath.Join(dir, "..2", "a.yaml"), configMap("x", "2"))
	must(t, os.Symlink("..1", filepath.Join(dir, "..data")))
	must(t, os.Symlink("..data/a.yaml", filepath.Join(dir, "a.yaml")))
	r := start(t, dir)
	r.want("x=1@a.yaml")
	must(t, os.Symlink("..2", filepath.Join(dir, "..tmp")))
	must(t, os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")))
	r.want("x=2@a.yaml")
	must(t, os.RemoveAll(filepath.Join(dir, "..2")))
	r.want("x=2@a.yaml* !a.yaml")
}

func TestLinkToFileElsewhere(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	write(t, filepath.Join(other, "a.yaml"), configMap("x", "1"))
	must(t, os.Symlink(filepath.Join(other, "a.yaml"), filepath.Join(dir, "b.yaml")))
	r := start(t, dir)
	r.want("x=1@b.yaml")
	write(t, filepath.Join(other, "a.yaml"), configMap("x", "2"))
	r.want("x=2@b.yaml")
	write(t, filepath.Join(other, "tmp"), configMap("x", "3"))
	must(t, os.Rename(filepath.Join(other, "tmp"), filepath.Join(other, "a.yaml")))
	r.want("x=3@b.yaml")
}

// A chain of links, a link to a folder among it: each may be changed.
func TestLinkChain(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	write(t, filepath.Join(other, "v1", "a.yaml"), configMap("x", "1"))
	write(t, filepath.Join(other, "v2", "a.yaml"), configMap("x", "2"))
	write(t, filepath.Join(other, "v3", "b.yaml"), configMap("x", "3"))
	link := func(target, name string) {
		t.Helper()
		must(t, os.Symlink(target, name+".new"))
		must(t, os.Rename(name+".new", name))
	}
	link("v1", filepath.Join(other, "current"))
	link("current/a.yaml", filepath.Join(other, "second.yaml"))
	link(filepath.Join(other, "second.yaml"), filepath.Join(dir, "a.yaml"))
	link(filepath.Join(other, "current"), filepath.Join(dir, "nested"))
	r := start(t, dir)
	r.want("x=1@a.yaml !nested/a.yaml:duplicate")
	link("v2", filepath.Join(other, "current"))
	r.want("x=2@a.yaml !nested/a.yaml:duplicate")
	link("v3/b.yaml", filepath.Join(other, "second.yaml"))
	r.want("x=3@a.yaml !nested/a.yaml:duplicate")
	link("v3", filepath.Join(other, "current"))
	r.want("x=3@a.yaml !nested/b.yaml:duplicate")
	must(t, os.Remove(filepath.Join(dir, "a.yaml")))
	r.want("x=3@nested/b.yaml")
	// The link to the folder is pointed at another, and that is replaced.
	link(filepath.Join(other, "v1"), filepath.Join(dir, "nested"))
	r.want("x=1@nested/a.yaml")
	must(t, os.Rename(filepath.Join(other, "v1"), filepath.Join(other, "v0")))
	must(t, os.Rename(filepath.Join(other, "v2"), filepath.Join(other, "v1")))
	r.want("x=2@nested/a.yaml")
}

// TestRemovedWhileDown reads the first set of a restart: what went meanwhile is
// not in it, not even for the settle time.
func TestRemovedWhileDown(t *testing.T) {
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "manifests.json")
	withState := func(c *Config) { c.StateFile = file }
	write(t, filepath.Join(dir, "a.yaml"), configMap("a", "1"))
	write(t, filepath.Join(dir, "b.yaml"), configMap("b", "1"))
	r := start(t, dir, withState)
	r.want("a=1@a.yaml b=1@b.yaml")
	r.stop()
	must(t, os.Remove(filepath.Join(dir, "b.yaml")))
	r = start(t, dir, withState)
	if got, want := show(state{set: <-r.sets}), "a=1@a.yaml"; got != want {
		t.Errorf("the first set is %q, want %q", got, want)
	}
}

func TestRestart(t *testing.T) {
	dir, stateDir := t.TempDir(), t.TempDir()
	file := filepath.Join(stateDir, "manifests.json")
	withState := func(c *Config) { c.StateFile = file }
	a := filepath.Join(dir, "a.yaml")
	write(t, a, configMap("x", "<1>")+"---\n"+configMap("z", "1"))
	write(t, filepath.Join(dir, "b.yaml"), configMap("b", "1"))
	r := start(t, dir, withState)
	r.want("b=1@b.yaml x=<1>@a.yaml z=1@a.yaml")
	r.stop()
	info, err := os.Stat(file)
	must(t, err)
	if got, want := info.Mode(), os.FileMode(0o600); got != want {
		t.Errorf("mode of the state file: got %v, want %v", got, want)
	}

	// Broken, and deleted, while nobody looked.
	write(t, a, "\t[")
	must(t, os.Remove(filepath.Join(dir, "b.yaml")))
	r = start(t, dir, withState)
	r.want("x=<1>@a.yaml* z=1@a.yaml* !a.yaml")
	r.stop()

	// The folder is away at start.
	must(t, os.Rename(dir, dir+"-away"))
	r = start(t, dir, withState)
	r.want("x=<1>@a.yaml* z=1@a.yaml* !" + filepath.Base(dir))
	must(t, os.Rename(dir+"-away", dir))
	r.want("x=<1>@a.yaml* z=1@a.yaml* !a.yaml")
	r.stop()

	// Repaired, and the state file is nonsense.
	write(t, a, configMap("x", "2"))
	for _, text := range []string{`{"version":0}`, "{", ""} {
		write(t, file, text)
		r = start(t, dir, withState)
		r.want("x=2@a.yaml")
		r.stop()
		var s stateFile
		data, err := os.ReadFile(file)
		must(t, err)
		must(t, json.Unmarshal(data, &s))
		if s.Version != stateVersion || len(s.Documents) != 1 {
			t.Errorf("saved version %d with %d documents, want %d with 1", s.Version, len(s.Documents), stateVersion)
		}
	}
}

func TestNewerStateFileIsLeftAlone(t *testing.T) {
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "manifests.json")
	const newer = `{"version":99,"documents":"of another shape"}`
	write(t, file, newer)
	d := New(Config{
		Dir: dir, StateFile: file, Parser: manifest.New(), Log: slog.New(slog.DiscardHandler),
		Publish: func(context.Context, Set) { t.Error("a set was published") },
	})
	if err := d.Run(t.Context()); !errors.Is(err, errNewer) || !strings.Contains(err.Error(), file) {
		t.Errorf("Run: %v, want errNewer that names the file", err)
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != newer {
		t.Errorf("the file now holds %q, %v", data, err)
	}
}

func TestUnreadable(t *testing.T) {
	if os.Geteuid() == 0 {
		// Root reads everything: a folder in the place of a file does as well.
		dir := t.TempDir()
		a := filepath.Join(dir, "a.yaml")
		write(t, a, configMap("x", "1"))
		r := start(t, dir)
		r.want("x=1@a.yaml")
		must(t, os.Remove(a))
		must(t, syscall.Mkfifo(a, 0o600))
		r.want("x=1@a.yaml* !a.yaml")
		return
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "sub", "a.yaml"), configMap("x", "1"))
	write(t, filepath.Join(dir, "b.yaml"), configMap("b", "1"))
	r := start(t, dir)
	r.want("b=1@b.yaml x=1@sub/a.yaml")
	must(t, os.Chmod(filepath.Join(dir, "b.yaml"), 0))
	must(t, os.Chmod(filepath.Join(dir, "sub"), 0))
	r.want("b=1@b.yaml* x=1@sub/a.yaml* !b.yaml !sub")
	must(t, os.Chmod(filepath.Join(dir, "sub"), 0o755)) // so that it can be removed
}

// A nested folder that cannot be listed keeps what its files said.
func TestLostFolder(t *testing.T) {
	s, _ := fold(state{}, read(t, map[string]string{"sub/a": "x=1", "subway": "w=1"}), time.Unix(0, 0), time.Second)
	lost := read(t, nil)
	lost.lost = []string{"sub"}
	for range 2 {
		s, _ = fold(s, lost, time.Unix(100, 0), time.Second)
		s, _ = fold(s, lost, time.Unix(200, 0), time.Second)
	}
	if got, want := show(s), "x=1@sub/a*"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestMetrics(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), configMap("x", "1")+"---\n\t[\n")
	write(t, filepath.Join(dir, "b.yaml"), configMap("x", "1"))
	reg := prometheus.NewRegistry()
	r := start(t, dir, func(c *Config) { c.Metrics = reg })
	r.want("x=1@a.yaml !a.yaml !b.yaml:duplicate")
	r.stop()
	want := `# HELP holdfast_manifest_documents Documents of the manifest folder that are in force.
# TYPE holdfast_manifest_documents gauge
holdfast_manifest_documents 1
# HELP holdfast_manifest_errors Faults in the manifest folder now, by file and reason.
# TYPE holdfast_manifest_errors gauge
holdfast_manifest_errors{file="a.yaml",reason="Syntax"} 1
holdfast_manifest_errors{file="b.yaml",reason="Duplicate"} 1
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "holdfast_manifest_documents", "holdfast_manifest_errors"); err != nil {
		t.Error(err)
	}
}

// FuzzLoad checks that no state file makes a start fail but one of a newer
// release, and that what is read of it is written the same again.
func FuzzLoad(f *testing.F) {
	doc := `{"file":"a.yaml","line":3,"written":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","namespace":"default"}}}`
	f.Add([]byte(`{"version":1,"documents":[` + doc + `]}`))
	f.Add([]byte(`{"version":1,"documents":[` + doc + `,{"written":null},{"file":"b","written":{"kind":"Pod"}}]}`))
	f.Add([]byte(`{"version":1,"documents":[` + doc + `,` + doc))
	f.Add([]byte(`{"version":2}`))
	f.Add([]byte(`{"version":1,"documents":[{"file":"../x","line":-1,"written":[]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		file := filepath.Join(t.TempDir(), "state.json")
		must(t, os.WriteFile(file, data, 0o600))
		d := New(Config{Dir: t.TempDir(), StateFile: file, Parser: parser, Log: slog.New(slog.DiscardHandler)})
		if err := d.restore(); err != nil {
			if !errors.Is(err, errNewer) {
				t.Fatalf("restore: %v", err)
			}
			return
		}
		first := d.state.set.Documents
		d.saved = nil
		d.save()
		if !d.state.set.Known {
			return
		}
		docs, err := load(file, parser)
		if err != nil {
			t.Fatalf("load what was saved: %v", err)
		}
		again := state{inForce: map[manifest.Key]entry{}}
		for _, doc := range docs {
			again.inForce[doc.Key] = entry{document: doc}
		}
		if got := again.makeSet(nil).Documents; !slices.EqualFunc(got, first, manifest.Document.Equal) {
			t.Errorf("saved %v, read before %v", got, first)
		}
	})
}
