package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/control"
	"github.com/holdfast-dev/holdfast/internal/manifest"
	"github.com/holdfast-dev/holdfast/internal/manifesturl"
)

func loadURL(t *testing.T, sections string) (Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "node.yaml")
	if err := os.WriteFile(path, []byte("apiVersion: holdfast.dev/v1alpha1\nkind: NodeConfiguration\n"+sections), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := LoadConfig(path)
	if err != nil {
		return cfg, err
	}
	return cfg.Complete()
}

func TestManifestURLSection(t *testing.T) {
	cfg, err := loadURL(t, `manifestURL:
  url: https://me:pw@Config.Example/pods?q=1
  headers: {X-Site: [north]}
  bearerTokenFile: later/token
  period: 30s
  timeout: 5s
  maxBytes: 1Mi
`)
	if err != nil {
		t.Fatal(err)
	}
	got := cfg.ManifestURL
	if got.Address() != "https://config.example/pods" || got.Period.Duration != 30*time.Second || got.Timeout.Duration != 5*time.Second ||
		got.MaxBytes.Value() != 1<<20 || !filepath.IsAbs(got.BearerTokenFile) || got.Headers["X-Site"][0] != "north" {
		t.Errorf("got %+v", got)
	}
	if cfg, err := loadURL(t, "manifestURL:\n"); err != nil || cfg.ManifestURL.IsSet() {
		t.Errorf("an empty section: %v, %v", cfg.ManifestURL, err)
	}
}

func TestManifestURLErrors(t *testing.T) {
	for name, test := range map[string]struct{ sections, want string }{
		"a misspelt field":   {"manifestURL:\n  url: https://h\n  header: {}\n", `line 5: unknown field "manifestURL.header" (there are url, headers, `},
		"a text":             {"manifestURL: https://h\n", `line 3: manifestURL holds no fields (it begins with "url:")`},
		"no URL":             {"manifestURL: {period: 1s}\n", "manifestURL.url: it is missing"},
		"a bad URL":          {"manifestURL: {url: pods.example}\n", "manifestURL.url: "},
		"a bad duration":     {"manifestURL: {url: 'https://h', period: soon}\n", `line 3: manifestURL.period: time: invalid duration "soon"`},
		"a bad quantity":     {"manifestURL: {url: 'https://h', maxBytes: many}\n", "line 3: manifestURL.maxBytes: quantit"},
		"upstream's URL":     {"kubelet:\n  staticPodURL: https://h\n", "line 4: kubelet.staticPodURL: write manifestURL.url instead"},
		"upstream's headers": {"kubelet:\n  staticPodURLHeader: {}\n", "kubelet.staticPodURLHeader: write manifestURL.headers instead"},
		"upstream's period":  {"kubelet:\n  httpCheckFrequency: 20s\n", "kubelet.httpCheckFrequency: write manifestURL.period instead"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := loadURL(t, test.sections); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q in it", err, test.want)
			}
		})
	}
}

func TestURLSource(t *testing.T) {
	now := time.Now()
	docs := manifest.New().Parse("", []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: c, image: i}]}\n")).Documents
	docs[0].File = "https://h/pods"
	set := manifesturl.Set{Documents: docs, Known: true, Kept: []manifest.Key{docs[0].Key}}
	got := urlSource("edge-1", manifesturl.State{Set: set, Address: "https://h/pods", Failed: "away", Since: now, LastGood: now})
	want := control.Source{
		Name: "http", Place: "https://h/pods", State: control.SourceFailing, LastGood: now, Message: "away", Since: now,
		Objects: []control.SourceObject{{Kind: "Pod", Namespace: "default", Name: "web", Pod: "web-edge-1", Place: "https://h/pods:1", Kept: true}},
		Faults:  []control.Fault{},
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("got (-), want (+):\n%s", diff)
	}
	for _, test := range []struct {
		state manifesturl.State
		want  control.SourceState
	}{
		{manifesturl.State{Failed: "away"}, control.SourceSilent},
		{manifesturl.State{Set: set, Failed: "away", Restored: true, LastGood: now}, control.SourceRestored},
		{manifesturl.State{Set: set, LastGood: now}, control.SourceGood},
	} {
		if got := urlSource("n", test.state).State; got != test.want {
			t.Errorf("%+v: got %s, want %s", test.state, got, test.want)
		}
	}
}

func TestOfflineURL(t *testing.T) {
	in := stopped(t, Config{NodeName: "edge-1", ManifestDir: "/m", ManifestURL: manifesturl.Source{URL: "https://h/pods?token=secret"}})
	r, err := Offline(in)
	if err != nil || len(r.Sources) != 2 {
		t.Fatalf("got %+v, %v", r, err)
	}
	if s := r.Sources[1]; s.Name != "http" || s.Place != "https://h/pods" || s.State != control.SourceSilent {
		t.Errorf("nothing saved: %+v", s)
	}
	text := `{"version":1,"answered":"2026-01-02T03:04:05Z","documents":[{"file":"https://h/pods","line":3,"written":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"default"},"spec":{}}}]}`
	if err := os.WriteFile(urlState(in), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if r, err = Offline(in); err != nil {
		t.Fatal(err)
	}
	if s := r.Sources[1]; s.State != control.SourceRestored || s.LastGood.IsZero() || len(s.Objects) != 1 || s.Objects[0].Pod != "web-edge-1" {
		t.Errorf("one document saved: %+v", s)
	}
}
