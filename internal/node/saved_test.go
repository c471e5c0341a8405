package node

import (
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/instance"
)

// TestSaved holds the format of state/node.json.
func TestSaved(t *testing.T) {
	in := &instance.Instance{Root: t.TempDir(), ID: "abc123", Subnet: netip.MustParsePrefix("10.77.0.0/24")}
	if got, err := loadSaved(in); err != nil || !cmp.Equal(got, Config{}) {
		t.Errorf("nothing saved: got %+v, %v", got, err)
	}
	if err := os.MkdirAll(in.Path("state"), 0o700); err != nil {
		t.Fatal(err)
	}
	want := Config{
		RootDir: "/srv/node", ManifestDir: "/srv/pods", NodeName: "edge-1", APIPort: new(16443), KubeletPort: new(0),
		ContainerRuntimeEndpoint: "unix:///run/x.sock",
	}
	if err := save(in, want); err != nil {
		t.Fatal(err)
	}
	got, err := loadSaved(in)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Error(diff)
	}
	const golden = `{
  "version": 1,
  "rootDir": "/srv/node",
  "manifestDir": "/srv/pods",
  "nodeName": "edge-1",
  "apiPort": 16443,
  "kubeletPort": 0,
  "containerRuntimeEndpoint": "unix:///run/x.sock"
}
`
	path := filepath.Join(in.Root, "state", "node.json")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(data), golden); diff != "" {
		t.Error(diff)
	}
	for name, test := range map[string]struct {
		text, want string
		newer      bool
	}{
		"damaged": {text: "{", want: "is damaged"},
		"newer":   {text: `{"version": 2}`, want: "reads up to 1", newer: true},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := loadSaved(in)
			if err == nil || !strings.Contains(err.Error(), test.want) || errors.Is(err, instance.ErrNewer) != test.newer {
				t.Errorf("got %v, want %q in it", err, test.want)
			}
		})
	}
}

// TestOlderFolder reads a root folder as the first version left it.
func TestOlderFolder(t *testing.T) {
	dir := t.TempDir()
	archive := filepath.Join("..", "localapi", "testdata", "format-1.tar.gz")
	if out, err := exec.CommandContext(t.Context(), "tar", "-C", dir, "-xzf", archive).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	in, err := instance.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if in.ID != "c80677" || in.Subnet != netip.MustParsePrefix("10.77.1.0/24") {
		t.Errorf("got %s, %s", in.ID, in.Subnet)
	}
	last, err := loadSaved(in)
	if err != nil || last.NodeName != "edge-1" || *last.APIPort != 43925 {
		t.Errorf("got %+v, %v", last, err)
	}
}
