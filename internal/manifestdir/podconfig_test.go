package manifestdir

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/holdfast-dev/holdfast/internal/kubelet/desired"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podsource"
	"github.com/holdfast-dev/holdfast/internal/kubelet/staticpod"
	"github.com/holdfast-dev/holdfast/internal/manifest"
)

// TestPodConfiguration runs the whole pod configuration against a simple model:
// a real folder, a URL and an API, merged, and a consumer that starts and ends
// pods. Files are edited, renamed, copied, broken and half-written, the folder
// and the disk fail, sources fall silent, and the agent dies, at random. Then:
//
//   - A pod whose document was continuously written well, or stood in a file
//     that nobody could read any more, was never ended.
//   - In the end what runs is what is written.
func TestPodConfiguration(t *testing.T) {
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newPodWorld(t, seed)
				for range 60 {
					if w.step(); t.Failed() {
						break
					}
				}
				if !t.Failed() {
					w.heal()
					w.wantWritten()
				}
				w.stop()
				if t.Failed() {
					t.Logf("what happened:\n%s", strings.Join(w.log, "\n"))
				}
			})
		})
	}
}

const (
	seeds = uint64(60)

	sharedName = "p0"  // may stand in the folder and at the URL
	fixedName  = "uid" // its document has a UID, so that an edit keeps the pod
	url        = "https://pods.example/edge"
)

var (
	filePaths = []string{"a.yaml", "b.yaml", "c.yaml", "sub/d.yaml", "sub/e.yaml"}
	fileNames = []string{sharedName, "p1", "p2", "p3", fixedName}
	urlNames  = []string{sharedName, "u1", "u2"}
)

// contents are the versions of pods, by name.
type contents map[string]int

func (c contents) text() string {
	var docs []string
	for _, name := range slices.Sorted(maps.Keys(c)) {
		uid := ""
		if name == fixedName {
			uid = ", uid: given"
		}
		docs = append(docs, fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s%s}\nspec:\n  containers:\n  - name: c\n    image: demo:v%d\n", name, uid, c[name]))
	}
	return "#\n" + strings.Join(docs, "---\n")
}

// A podWorld is what is written, what of it was seen, and what runs.
type podWorld struct {
	t       *testing.T
	rnd     *rand.Rand
	top     string
	log     []string
	version int

	files map[string]contents  // that are there; nil contents: broken
	seen  map[string]contents  // the last that could be read
	gone  map[string]time.Time // files that were missed, and since when
	away  bool                 // the folder is
	sick  map[string]bool      // files that cannot be read, and `sub`

	urlDocs, urlSaid contents // written, and last delivered
	urlDown          bool
	apiPods, apiSaid map[types.UID]*corev1.Pod // likewise
	apiDown          bool

	agent   *podAgent
	inForce map[types.UID]origin // of the folder, when it was last read
	running map[types.UID]string // name=version
	held    map[types.UID]string // pods that a document holds, and why
}

// An origin is where a document stands.
type origin struct{ name, file string }

// A podAgent is one run of the agent.
type podAgent struct {
	dir     *Dir
	fromDir *podsource.Static
	fromURL *podsource.Static
	stop    func()

	mu    sync.Mutex // guards the fields below
	pods  *desired.Pods
	taken sets.Set[string]
}

func newPodWorld(t *testing.T, seed uint64) *podWorld {
	w := &podWorld{
		t: t, rnd: rand.New(rand.NewPCG(seed, 2)), top: t.TempDir(),
		files: map[string]contents{}, seen: map[string]contents{}, gone: map[string]time.Time{}, inForce: map[types.UID]origin{}, sick: map[string]bool{},
		urlDocs: contents{}, apiPods: map[types.UID]*corev1.Pod{}, apiSaid: map[types.UID]*corev1.Pod{},
		running: map[types.UID]string{}, held: map[types.UID]string{},
	}
	must(t, os.MkdirAll(w.path("sub"), 0o755))
	w.start()
	w.read()
	return w
}

func (w *podWorld) path(name string) string { return filepath.Join(w.top, "manifests", name) }

func (w *podWorld) note(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf(format, args...))
}

func (w *podWorld) chance(oneIn int) bool { return w.rnd.IntN(oneIn) == 0 }

func pick[T any](w *podWorld, from []T) T { return from[w.rnd.IntN(len(from))] }

// start starts an agent, whose sources answer if they can.
func (w *podWorld) start() {
	a := &podAgent{pods: desired.New("file", "http", "api"), taken: sets.New[string]()}
	log := slog.New(slog.DiscardHandler)
	deliver := func(_ context.Context, d desired.Delivery) { w.deliver(a, d) }
	a.fromDir = podsource.NewStatic(podsource.StaticConfig{Source: "file", Node: "n1", Deliver: deliver, Log: log})
	a.fromURL = podsource.NewStatic(podsource.StaticConfig{Source: "http", Node: "n1", Deliver: deliver, Log: log})
	a.dir = New(Config{
		Dir: filepath.Join(w.top, "manifests"), Recursive: true, Parser: parser, Check: a.fromDir.Check, Log: log,
		StateFile: filepath.Join(w.top, "state.json"),
		Publish: func(_ context.Context, s Set) {
			if s.Known {
				a.fromDir.Update(s.Documents)
			}
		},
	})
	a.dir.scanner.fsys = &modelDisk{world: w}
	a.dir.watch.begin = func() (*fsnotify.Watcher, error) { return nil, errors.New("the test says when to read") }
	ctx, cancel := context.WithCancel(w.t.Context())
	var wg sync.WaitGroup
	for _, s := range []*podsource.Static{a.fromDir, a.fromURL} {
		wg.Go(func() { _ = s.Run(ctx) })
	}
	a.stop = func() {
		cancel()
		wg.Wait()
		a.dir.watch.close()
	}
	w.agent = a
	must(w.t, a.dir.restore())
	// A URL's last good copy is on the disk; of the API that is the checkpoint.
	if w.urlSaid != nil {
		a.fromURL.Update(w.urlDocuments(w.urlSaid))
	}
	if w.apiDown {
		w.deliver(a, desired.Delivery{Source: "api", Kind: desired.Restored, Pods: slices.Collect(maps.Values(w.apiSaid))})
	}
	w.answer()
}

func (w *podWorld) stop() { w.agent.stop() }

// modelDisk fails as the world says.
type modelDisk struct {
	osFiles
	world *podWorld
}

func (d *modelDisk) Stat(path string) (os.FileInfo, error) {
	if d.world.sick["sub"] && path == d.world.path("sub") {
		return nil, &os.PathError{Op: "stat", Path: path, Err: syscall.ESTALE}
	}
	return d.osFiles.Stat(path)
}

func (d *modelDisk) ReadRegular(path string) ([]byte, error) {
	if name, err := filepath.Rel(d.world.path(""), path); err != nil || d.world.sick[name] {
		return nil, &os.PathError{Op: "read", Path: path, Err: syscall.EIO}
	}
	return d.osFiles.ReadRegular(path)
}

// answer lets the sources that are not down say what is written.
func (w *podWorld) answer() {
	if !w.urlDown {
		w.urlSaid = maps.Clone(w.urlDocs)
		w.agent.fromURL.Update(w.urlDocuments(w.urlSaid))
	}
	if !w.apiDown {
		w.apiSaid = maps.Clone(w.apiPods)
		w.deliver(w.agent, desired.Delivery{Source: "api", Pods: slices.Collect(maps.Values(w.apiSaid))})
	}
	synctest.Wait()
}

func (w *podWorld) urlDocuments(c contents) []manifest.Document {
	docs := parser.Parse("pods.yaml", []byte(c.text())).Documents
	for i := range docs {
		docs[i].File = url
	}
	return docs
}

// deliver is the consumer: it starts what is new and ends what is gone, and,
// once all sources were seen, what nobody wants.
func (w *podWorld) deliver(a *podAgent, d desired.Delivery) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, u := range a.pods.Merge(d, time.Now()) {
		if u.Op != desired.OpRestore {
			a.taken.Insert(u.Source)
		}
		for _, p := range u.Pods {
			if u.Op == desired.OpRemove {
				w.end(p.UID, "REMOVE of "+u.Source)
				continue
			}
			w.running[p.UID] = label(p)
		}
	}
	if !a.pods.SeenAllSources(a.taken) {
		return
	}
	wanted := map[types.UID]bool{}
	for _, p := range a.pods.All() {
		wanted[p.UID] = true
	}
	for uid := range w.running {
		if !wanted[uid] {
			w.end(uid, "nobody wants it")
		}
	}
}

func label(p *corev1.Pod) string {
	_, version, _ := strings.Cut(p.Spec.Containers[0].Image, ":v")
	return strings.TrimSuffix(p.Name, "-n1") + "=" + version
}

func (w *podWorld) end(uid types.UID, why string) {
	if _, ok := w.running[uid]; !ok {
		return
	}
	w.note("    end %s: %s", w.running[uid], why)
	if held, ok := w.held[uid]; ok {
		w.t.Errorf("%s was ended, though %s", w.running[uid], held)
	}
	delete(w.running, uid)
}

// step does one thing, lets the agent look, and checks what became of it.
func (w *podWorld) step() {
	w.act()
	if !w.chance(4) {
		w.read()
	}
	time.Sleep(time.Duration(w.rnd.IntN(1500)) * time.Millisecond)
	for uid, why := range w.held {
		if _, ok := w.running[uid]; !ok {
			w.t.Errorf("%s does not run, though %s", uid, why)
		}
	}
}

// read lets the agent read the folder, and works out which pods must outlive it.
func (w *podWorld) read() {
	stay := map[types.UID]string{}
	w.look()
	for uid, from := range w.inForce {
		if _, ok := w.running[uid]; !ok || from.name == sharedName && w.held[uid] == "" {
			continue
		}
		if why := w.holds(from.name, w.running[uid], from.file); why != "" {
			stay[uid] = why
		}
	}
	maps.DeleteFunc(w.held, func(uid types.UID, why string) bool { return strings.HasPrefix(why, "file ") && stay[uid] == "" })
	maps.Copy(w.held, stay)
	w.agent.dir.read(w.t.Context())
	synctest.Wait()
	// What is in force from now on is held from now on.
	clear(w.inForce)
	for key, e := range w.agent.dir.state.inForce {
		uid := w.uidOf(e)
		w.inForce[uid] = origin{key.Name, e.document.File}
		if _, ok := w.running[uid]; ok && e.gone.IsZero() && key.Name != sharedName {
			w.held[uid] = "file " + e.document.File + " says so"
		}
	}
}

// look takes what can be read of the files now. A file that is missed says what
// it said for the settle time.
func (w *podWorld) look() {
	if w.away {
		clear(w.gone)
		return
	}
	for _, name := range filePaths {
		said, there := w.files[name]
		if there || w.lost(name) {
			delete(w.gone, name)
		}
		switch {
		case w.lost(name):
		case there && said != nil && !w.sick[name]:
			w.seen[name] = maps.Clone(said)
		case there:
		case w.gone[name].IsZero():
			w.gone[name] = time.Now()
		case time.Since(w.gone[name]) >= 2*time.Second:
			delete(w.seen, name)
		}
	}
}

// lost reports whether the file's folder cannot be looked at.
func (w *podWorld) lost(name string) bool { return w.sick["sub"] && strings.HasPrefix(name, "sub/") }

// holds says which document keeps a pod that is in force from a file; "" if none
// does, so that it may go.
func (w *podWorld) holds(name, running, from string) string {
	same := func(c contents) bool {
		version, ok := c[name]
		return ok && (name == fixedName || fmt.Sprintf("%s=%d", name, version) == running)
	}
	_, missed := w.gone[from]
	if _, says := w.seen[from][name]; says && !missed {
		if same(w.seen[from]) {
			return "file " + from + " says so, or nobody can tell"
		}
		return "" // it says something else
	}
	elsewhere := false
	for _, other := range filePaths {
		if w.away || w.lost(other) || w.sick[other] || w.files[other] == nil {
			continue
		}
		if same(w.files[other]) {
			return "file " + other + " says the same"
		}
		_, says := w.files[other][name]
		elsewhere = elsewhere || says
	}
	if missed && same(w.seen[from]) && !elsewhere {
		return "file " + from + " may be back in a moment"
	}
	return ""
}

func (w *podWorld) uidOf(e entry) types.UID {
	pod, err := staticpod.New(e.document.Object.(*corev1.Pod), e.document.Written, "n1", staticpod.SourceFile)
	must(w.t, err)
	return pod.UID
}

// some returns random contents.
func (w *podWorld) some(names []string) contents {
	c := contents{}
	for range w.rnd.IntN(3) {
		c[pick(w, names)] = w.rnd.IntN(3)
	}
	return c
}

// heal ends every trouble, and lets the agent see it.
func (w *podWorld) heal() {
	w.note("heal")
	if w.away {
		w.moveFolder()
	}
	clear(w.sick)
	for _, name := range filePaths {
		if c, there := w.files[name]; there && c == nil {
			w.write(name, w.some(fileNames))
		}
	}
	w.urlDown, w.apiDown = false, false
	clear(w.held)
	w.answer()
	for range 6 {
		w.read()
		time.Sleep(time.Second)
	}
}

// wantWritten checks that what runs is what is written. Of documents of one name
// any one may count, but only one.
func (w *podWorld) wantWritten() {
	written := map[string][]string{}
	add := func(c contents) {
		for name, version := range c {
			written[name] = append(written[name], fmt.Sprintf("%s=%d", name, version))
		}
	}
	for _, c := range w.files {
		add(c)
	}
	add(w.urlDocs)
	for _, p := range w.apiPods {
		written[p.Name] = []string{label(p)}
	}
	var want []string
	got := slices.Sorted(maps.Values(w.running))
	for name, versions := range written {
		i := slices.IndexFunc(got, func(s string) bool { return strings.HasPrefix(s, name+"=") })
		if i >= 0 && slices.Contains(versions, got[i]) {
			versions = got[i : i+1]
		}
		want = append(want, versions[0])
	}
	slices.Sort(want)
	if diff := cmp.Diff(got, want); diff != "" {
		w.t.Errorf("what runs in the end (-got +want):\n%s", diff)
	}
}
