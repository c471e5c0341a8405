package manifesturl

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/runtest"
	"github.com/holdfast-dev/holdfast/internal/manifest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var parser = manifest.New()

func pod(name, image string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  containers:\n  - name: c\n    image: %q\n", name, image)
}

func podJSON(name, image string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q},"spec":{"containers":[{"name":"c","image":%q}]}}`, name, image)
}

const emptyPods = "apiVersion: v1\nkind: PodList\nitems: []\n"

var twoPods = pod("a", "1") + "---\n" + pod("b", "1")

// A site is a server whose answer can be exchanged.
type site struct {
	*httptest.Server
	handler atomic.Pointer[http.HandlerFunc]
	asked   atomic.Int32 // requests that an answer was begun for
}

func newSite(t *testing.T, start func(http.Handler) *httptest.Server) *site {
	t.Helper()
	s := &site{}
	s.serve(text(""))
	s.Server = start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		(*s.handler.Load())(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *site) serve(h http.HandlerFunc) { s.handler.Store(&h) }

func text(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) }
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// raw answers with these bytes and hangs up.
func raw(answer string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		_, _ = conn.Write([]byte(answer))
		_ = conn.Close()
	}
}

// A follower is a URL that runs, and what it publishes.
type follower struct {
	t    *testing.T
	url  *URL
	stop func()

	mu   sync.Mutex
	sets []Set
	news chan struct{}
}

// follow asks again after milliseconds.
func follow(t *testing.T, source Source, change ...func(*Config)) *follower {
	t.Helper()
	if source.Period.Duration == 0 {
		source.Period = metav1.Duration{Duration: 2 * time.Millisecond}
	}
	f := &follower{t: t, news: make(chan struct{}, 1)}
	cfg := Config{
		Source: source, Node: "n1", Parser: parser, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Publish: func(_ context.Context, s Set) {
			f.mu.Lock()
			f.sets = append(f.sets, s)
			f.mu.Unlock()
			select {
			case f.news <- struct{}{}:
			default:
			}
		},
	}
	for _, c := range change {
		c(&cfg)
	}
	url, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	f.url = url
	f.stop = runtest.Start(t, url.Run)
	return f
}

func withState(file string) func(*Config) { return func(c *Config) { c.StateFile = file } }

// say writes a set in short: "a=1 b=2* !Syntax" is pod a with image 1, pod b kept,
// and a fault.
func say(s Set) string {
	var words []string
	for _, d := range s.Documents {
		image, _, _ := strings.Cut(string(d.Written)[strings.Index(string(d.Written), `"image":"`)+9:], `"`)
		word := d.Key.Name + "=" + image
		for _, k := range s.Kept {
			if k == d.Key {
				word += "*"
			}
		}
		words = append(words, word)
	}
	for _, f := range s.Faults {
		words = append(words, "!"+string(f.Reason))
	}
	if !s.Known {
		words = append(words, "?")
	}
	return strings.Join(words, " ")
}

// want waits until the last set is this one.
func (f *follower) want(want string) Set {
	f.t.Helper()
	for {
		f.mu.Lock()
		var last Set
		got := "nothing"
		if n := len(f.sets); n > 0 {
			last = f.sets[n-1]
			got = say(last)
		}
		f.mu.Unlock()
		if got == want {
			return last
		}
		select {
		case <-f.news:
		case <-time.After(time.Minute):
			f.t.Fatalf("got  %s\nwant %s\n%v", got, want, last.Faults)
		}
	}
}

// lost names a set that lacks one of the documents.
func (f *follower) lost(names ...string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.sets {
		for _, name := range names {
			if !strings.Contains(" "+say(s), " "+name+"=") {
				return say(s)
			}
		}
	}
	return ""
}

// bad are answers that remove nothing, with a part of what is told of them.
func bad() map[string]struct {
	handler http.HandlerFunc
	want    string
} {
	type answer = struct {
		handler http.HandlerFunc
		want    string
	}
	head := "HTTP/1.1 200 OK\r\nContent-Type: application/yaml\r\n"
	return map[string]answer{
		"no bytes":                      {text(""), "the answer is empty"},
		"white space":                   {text(" \n\t\n"), "the answer is empty"},
		"comments":                      {text("# nothing\n---\n# here\n"), "the answer names no pod"},
		"shorter than its length":       {raw(head + "Content-Length: 400\r\n\r\n" + pod("a", "1")), "the answer is cut off"},
		"a chunk missing":               {raw(head + "Transfer-Encoding: chunked\r\n\r\n5\r\nkind:\r\n"), "the answer is cut off"},
		"YAML without a length":         {raw("HTTP/1.0 200 OK\r\n\r\n" + pod("a", "1")), "the answer has no length"},
		"no answer":                     {raw(""), "EOF"},
		"no HTTP, at length":            {raw(strings.Repeat("x", 3000) + "\r\n"), "..."},
		"no HTTP":                       {raw("220 mail.example ESMTP\r\n"), "malformed HTTP"},
		"YAML cut inside a pod":         {text(twoPods[:len(twoPods)-30]), "default/b"},
		"YAML cut inside a word":        {text(twoPods[:len(twoPods)-3]), "the file is cut off"},
		"YAML cut after a key":          {text(pod("a", "1") + "---\napiVersion: v1\nkind: Pod\nmetadata:\n"), "metadata.name"},
		"YAML cut after another name":   {text(pod("a", "1") + "---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: bb"), "default/bb"},
		"JSON cut":                      {text(`{"apiVersion":"v1","kind":"PodList","items":[` + podJSON("a", "1") + `,{"apiV`), "JSON"},
		"garbage":                       {text("\x00\x01\x02 \xff"), "YAML"},
		"text":                          {text("it works!"), "an object is wanted"},
		"a web page":                    {text("<!DOCTYPE html><html><body>please log in</body></html>"), "a web page"},
		"a status":                      {text(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","code":404}`), "Status"},
		"an empty list of other things": {text("apiVersion: v1\nkind: ConfigMapList\nitems: []\n"), "the answer names no pod"},
		"a list without items":          {text("apiVersion: v1\nkind: List\n"), "items"},
		"a list of null":                {text("apiVersion: v1\nkind: List\nitems:\n"), "items"},
		"only another kind":             {text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n"), "pods only"},
		"304 that nobody asked for": {func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("If-None-Match") != "" {
				http.Error(w, "a conditional request, though nothing had an ETag", http.StatusBadRequest)
				return
			}
			w.WriteHeader(http.StatusNotModified)
		}, "304"},
		"204":               {status(http.StatusNoContent), "204"},
		"206":               {status(http.StatusPartialContent), "206"},
		"401":               {status(http.StatusUnauthorized), "401 Unauthorized; see headers"},
		"404":               {status(http.StatusNotFound), "404"},
		"500":               {status(http.StatusInternalServerError), "500"},
		"503":               {status(http.StatusServiceUnavailable), "503"},
		"a redirect round":  {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/", http.StatusFound) }, "more than 5 redirects"},
		"a redirect to nil": {status(http.StatusFound), "without saying where to"},
		"too large":         {text("# " + strings.Repeat("x", 5000) + "\n" + twoPods), "larger than 4096 bytes"},
		"too large packed":  {packed("# "+strings.Repeat("x", 5000)+"\n"+twoPods, 0), "larger than 4096 bytes"},
		"packed and cut":    {packed(twoPods, 10), "cut off"},
		"too slow":          {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "no whole answer in time"},
		"too slow halfway": {func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write([]byte(pod("a", "1")))
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}, "no whole answer in time"},
	}
}

// TestNothingRemoves is the table of what a server may say without meaning that
// the pods go: then the same bytes again, and over a restart.
func TestNothingRemoves(t *testing.T) {
	for name, test := range bad() {
		for _, restart := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", restart"}[restart], func(t *testing.T) {
				t.Parallel()
				s := newSite(t, httptest.NewServer)
				file := filepath.Join(t.TempDir(), "state.json")
				source := Source{URL: s.URL, MaxBytes: bytesOf(4096), Timeout: metav1.Duration{Duration: time.Second}}
				s.serve(text(twoPods))
				f := follow(t, source, withState(file), withChecks)
				f.want("a=1 b=1")
				s.serve(test.handler)
				f.faulty(test.want)
				if restart {
					f.stop()
					f = follow(t, source, withState(file), withChecks)
					f.faulty(test.want)
				}
				if got := f.url.State(); got.Failed == "" || got.LastGood.IsZero() || got.Restored != (restart && got.Faults[0].Line == 0) {
					t.Errorf("state: %+v", got)
				}
				s.serve(text(twoPods))
				f.want("a=1 b=1")
				if set := f.lost("a", "b"); set != "" {
					t.Errorf("published %q", set)
				}
				if got := f.url.State(); got.Failed != "" || got.Restored || len(got.Faults) != 0 {
					t.Errorf("state: %+v", got)
				}
			})
		}
	}
}

// faulty waits for a set with a fault of which want is a part.
func (f *follower) faulty(want string) {
	f.t.Helper()
	for {
		f.mu.Lock()
		var last Set
		if n := len(f.sets); n > 0 {
			last = f.sets[n-1]
		}
		f.mu.Unlock()
		for _, fault := range last.Faults {
			if strings.Contains(fault.String(), want) && !fault.Since.IsZero() && strings.HasPrefix(fault.File, f.url.address) {
				return
			}
		}
		select {
		case <-f.news:
		case <-time.After(time.Minute):
			f.t.Fatalf("no fault %q in %v", want, last.Faults)
		}
	}
}

// TestAnswers is what takes effect.
func TestAnswers(t *testing.T) {
	list := func(items ...string) string {
		return `{"apiVersion":"v1","kind":"List","items":[` + strings.Join(items, ",") + `]}`
	}
	for name, test := range map[string]struct{ answer, want string }{
		"one pod":                {pod("a", "2"), "a=2"},
		"one pod in JSON":        {podJSON("a", "2"), "a=2"},
		"a list":                 {list(podJSON("a", "2"), podJSON("c", "1")), "a=2 c=1"},
		"a list of pods":         {strings.TrimSuffix(emptyPods, " []\n") + "\n- metadata: {name: a}\n  spec: {containers: [{name: c, image: '2'}]}\n", "a=2"},
		"several documents":      {twoPods + "---\n" + pod("c", "1"), "a=1 b=1 c=1"},
		"an empty list":          {list(), ""},
		"an empty list, YAML":    {emptyPods, ""},
		"one bad":                {list(podJSON("a", ""), podJSON("c", "1")), "a=1* c=1 !Invalid"},
		"one bad and new":        {list(podJSON("x", ""), podJSON("a", "1")), "a=1 !Invalid"},
		"one of another kind":    {list(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"}}`, podJSON("a", "1")), "a=1 !Refused"},
		"one that has no name":   {list(`{"apiVersion":"v1","kind":"Pod","metadata":{}}`, podJSON("a", "1")), "a=1 b=1* !Invalid"},
		"an unsupported kind":    {list(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"}}`, podJSON("a", "1")), "a=1 !UnsupportedKind"},
		"a name twice":           {list(podJSON("a", "2"), podJSON("a", "3")), "a=2 !Duplicate"},
		"a name twice, in force": {list(podJSON("a", "2"), podJSON("a", "1")), "a=1 !Duplicate"},
		"a bad one last":         {pod("a", "1") + "---\n" + pod("c", ""), "a=1 b=1* !Invalid"},
		"a bad one first":        {pod("c", "") + "---\n" + pod("a", "1"), "a=1 !Invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, httptest.NewServer)
			s.serve(text(twoPods))
			f := follow(t, Source{URL: s.URL}, withChecks)
			f.want("a=1 b=1")
			s.serve(text(test.answer))
			f.want(test.want)
			s.serve(text(twoPods))
			f.want("a=1 b=1")
		})
	}
}

// withChecks refuses what is no pod, as the node does.
func withChecks(c *Config) {
	c.Check = func(d manifest.Document) []manifest.Fault {
		if d.Key.Kind == "Pod" {
			return nil
		}
		return []manifest.Fault{d.Fault(manifest.ReasonRefused, "kind", "pods only", "")}
	}
}

// TestNeverAnswered: nothing is known on no word, and the first good one counts.
func TestNeverAnswered(t *testing.T) {
	s := newSite(t, httptest.NewServer)
	s.serve(status(http.StatusBadGateway))
	file := filepath.Join(t.TempDir(), "state.json")
	f := follow(t, Source{URL: s.URL + "/pods?token=secret"}, withState(file))
	set := f.want("!Unreadable ?")
	if got, want := set.Faults[0].String(), s.URL+"/pods: has never answered: the server answers 502 Bad Gateway; what ran stays"; got != want {
		t.Errorf("fault:\ngot  %s\nwant %s", got, want)
	}
	s.serve(text("nonsense"))
	f.want("!Syntax ?")
	if _, err := os.Stat(file); err == nil {
		t.Error("a state file, though nothing is known")
	}
	s.serve(text(emptyPods))
	f.want("")
	f.stop()
	s.Close()
	// That there is nothing is known after a restart, too.
	f = follow(t, Source{URL: s.URL + "/pods?token=secret"}, withState(file))
	f.want("!Unreadable")
}

// TestOneGoodOfABadFirstAnswer: a bad pod costs only itself, at first sight too.
func TestOneGoodOfABadFirstAnswer(t *testing.T) {
	s := newSite(t, httptest.NewServer)
	s.serve(text(pod("a", "1") + "---\n" + pod("b", "")))
	follow(t, Source{URL: s.URL}).want("a=1 !Invalid")
}

func TestRestart(t *testing.T) {
	s := newSite(t, httptest.NewServer)
	s.serve(text(twoPods))
	file := filepath.Join(t.TempDir(), "state.json")
	f := follow(t, Source{URL: s.URL}, withState(file))
	f.want("a=1 b=1")
	f.stop()
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("state file: %v, %v", info, err)
	}
	s.Close() // no network
	f = follow(t, Source{URL: s.URL}, withState(file))
	f.want("a=1* b=1* !Unreadable")
	if got := f.url.State(); !got.Restored || got.Failed == "" || got.LastGood.IsZero() || got.Address != s.URL {
		t.Errorf("state: %+v", got)
	}
	f.stop()
	if got, err := Saved(file, parser); err != nil || len(got.Documents) != 2 || got.Address != s.URL || got.LastGood.IsZero() || !got.Known {
		t.Errorf("saved: %+v, %v", got, err)
	}
	if got, err := Saved(file+".none", parser); err != nil || got.Known {
		t.Errorf("nothing saved: %+v, %v", got, err)
	}

	// News that came while nobody looked: what went is never published.
	other := newSite(t, httptest.NewServer)
	other.serve(text(pod("b", "1")))
	f = follow(t, Source{URL: other.URL}, withState(file))
	f.want("b=1")
	if n := len(f.sets); n != 1 {
		t.Errorf("%d sets", n)
	}
}

// Another URL leaves the pods of the former one alone until it answers: their
// File, and with it their UID, is the former address.
func TestAnotherURL(t *testing.T) {
	s := newSite(t, httptest.NewServer)
	s.serve(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("ETag", "v1")
		_, _ = w.Write([]byte(pod("a", "1")))
	})
	file := filepath.Join(t.TempDir(), "state.json")
	f := follow(t, Source{URL: s.URL + "/old"}, withState(file))
	f.want("a=1")
	f.stop()
	s.serve(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("If-None-Match") != "" {
			t.Error("asked the other URL for changes since an answer of this one")
		}
		w.WriteHeader(http.StatusNotFound)
	})
	f = follow(t, Source{URL: s.URL + "/new"}, withState(file))
	if got, want := f.want("a=1* !Unreadable").Documents[0].File, s.URL+"/old"; got != want {
		t.Errorf("file: got %s, want %s", got, want)
	}
	s.serve(text(pod("a", "1")))
	if got, want := f.want("a=1").Documents[0].File, s.URL+"/new"; got != want {
		t.Errorf("file: got %s, want %s", got, want)
	}
}

func TestStateFileErrors(t *testing.T) {
	for name, content := range map[string]string{
		"damaged":        "{",
		"no version":     "{}",
		"no pod":         `{"version":1,"documents":[{"file":"u","line":1,"written":{"kind":"Pod"}}]}`,
		"a wrong number": `{"version":1,"documents":[{"file":"u","line":1,"written":{"apiVersion":"v1","kind":"Pod","metadata":{"name":7}}}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, httptest.NewServer)
			s.serve(status(500))
			file := filepath.Join(t.TempDir(), "state.json")
			must(t, os.WriteFile(file, []byte(content), 0o600))
			if _, err := Saved(file, parser); err == nil {
				t.Error("Saved: no error")
			}
			f := follow(t, Source{URL: s.URL}, withState(file))
			f.want("!Unreadable ?")
			s.serve(text(twoPods))
			f.want("a=1 b=1")
		})
	}
}

func TestNewerStateFileIsLeftAlone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state.json")
	content := `{"version":2,"documents":"of another kind"}`
	must(t, os.WriteFile(file, []byte(`{"version":2}`), 0o600))
	u, err := New(Config{Source: Source{URL: "http://localhost:1"}, StateFile: file, Parser: parser, Log: slog.New(slog.DiscardHandler)})
	must(t, err)
	if err := u.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "start the release that wrote it") {
		t.Errorf("got %v", err)
	}
	must(t, os.WriteFile(file, []byte(content), 0o600))
	if err := u.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "start the release that wrote it") {
		t.Errorf("got %v", err)
	}
	if got, _ := os.ReadFile(file); string(got) != content {
		t.Errorf("the file is now %s", got)
	}
}

func TestMetrics(t *testing.T) {
	s := newSite(t, httptest.NewServer)
	s.serve(text(twoPods))
	reg := prometheus.NewRegistry()
	f := follow(t, Source{URL: s.URL}, func(c *Config) { c.Metrics = reg })
	f.want("a=1 b=1")
	s.serve(status(500))
	f.want("a=1* b=1* !Unreadable")
	f.stop()
	want := `# HELP holdfast_manifest_url_documents Documents of the manifest URL that are in force.
# TYPE holdfast_manifest_url_documents gauge
holdfast_manifest_url_documents 2
# HELP holdfast_manifest_url_documents_kept Documents in force that the last answer of the manifest URL did not have in good order.
# TYPE holdfast_manifest_url_documents_kept gauge
holdfast_manifest_url_documents_kept 2
# HELP holdfast_manifest_url_errors Faults of the manifest URL now, by reason.
# TYPE holdfast_manifest_url_errors gauge
holdfast_manifest_url_errors{reason="Unreadable"} 1
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "holdfast_manifest_url_documents", "holdfast_manifest_url_documents_kept", "holdfast_manifest_url_errors"); err != nil {
		t.Error(err)
	}
	for _, result := range []string{"answered", "failed"} {
		if testutil.ToFloat64(f.url.metrics.requests.WithLabelValues(result)) == 0 {
			t.Errorf("no request %s", result)
		}
	}
	if testutil.ToFloat64(f.url.metrics.last) == 0 {
		t.Error("no time of the last answer")
	}
}

// A fault is logged when it begins and when it ends, and no more.
func TestLogOnce(t *testing.T) {
	s := newSite(t, httptest.NewServer)
	s.serve(text(twoPods))
	var log lines
	f := follow(t, Source{URL: s.URL}, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	f.want("a=1 b=1")
	s.serve(raw("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"))
	f.want("a=1* b=1* !Unreadable")
	for asked := s.asked.Load(); s.asked.Load() < asked+5; {
		time.Sleep(time.Millisecond)
	}
	s.serve(text(twoPods))
	f.want("a=1 b=1")
	f.stop()
	if got := log.String(); strings.Count(got, "is not good; what ran stays") != 1 || strings.Count(got, "is good again") != 1 {
		t.Errorf("log:\n%s", got)
	}
}

type lines struct {
	mu sync.Mutex
	strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Builder.Write(p)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
