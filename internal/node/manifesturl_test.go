package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
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
