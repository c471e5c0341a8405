package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-dev/holdfast/internal/runtimehost"
)

func TestLoadConfig(t *testing.T) {
	const head = "apiVersion: holdfast.dev/v1alpha1\nkind: NodeConfiguration\n"
	for name, test := range map[string]struct{ text, wantErr string }{
		"everything":         {text: head + "rootDir: /srv/node\nmanifestDir: /srv/pods\nnodeName: edge-1\napiPort: 0\nkubeletPort: 10260\nbindAddress: [192.0.2.1, \"::\"]\napiNames: [edge]\ncontainerRuntimeEndpoint: unix:///run/x.sock\nplegThreshold: 5m\n"},
		"a misspelt field":   {text: head + "rootdirectory: /srv\n", wantErr: `line 3: unknown field "rootdirectory"`},
		"another case":       {text: head + "rootdir: /srv\n", wantErr: `line 3: unknown field "rootdir"`},
		"a field twice":      {text: head + "apiPort: 1\napiPort: 2\n", wantErr: `line 4: field "apiPort" is written twice`},
		"two documents":      {text: head + "---\nrootDir: /srv\n", wantErr: "more than one document"},
		"a list":             {text: "- a\n", wantErr: "it holds no fields"},
		"no text":            {text: "\xff\xfe", wantErr: "node.yaml"},
		"another kind":       {text: "apiVersion: v1\nkind: Pod\n", wantErr: `want "holdfast.dev/v1alpha1" and "NodeConfiguration"`},
		"nothing":            {text: "", wantErr: "it holds no fields"},
		"no YAML":            {text: head + "apiPort: [", wantErr: "node.yaml"},
		"text for a time":    {text: head + "plegThreshold: often\n", wantErr: `line 3: plegThreshold: "often" is no length of time`},
		"a number for one":   {text: head + "plegThreshold: 3\n", wantErr: `line 3: plegThreshold: "3" is no length of time`},
		"a misspelt handler": {text: head + "runtimeHandlers: [{name: crun, bin: /usr/bin/crun}]\n", wantErr: `unknown field "bin"`},
		"text for a number":  {text: head + "apiPort: ten\n", wantErr: "apiPort: want int, not string"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "node.yaml")
			if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			cfg, err := LoadConfig(path)
			if test.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantErr) {
					t.Errorf("got %v, want %q in it", err, test.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if cfg.RootDir != "/srv/node" || *cfg.APIPort != 0 || *cfg.KubeletPort != 10260 || cfg.plegThreshold() != 5*time.Minute {
				t.Errorf("got %+v", cfg)
			}
		})
	}
}

func TestPodCIDR(t *testing.T) {
	for name, test := range map[string]struct {
		cfg  Config
		want string
	}{
		"good":          {cfg: Config{PodCIDR: "10.99.0.0/22"}},
		"no subnet":     {cfg: Config{PodCIDR: "10.99.0.0"}, want: `podCIDR "10.99.0.0": it is no subnet`},
		"IPv6":          {cfg: Config{PodCIDR: "fd00::/64"}, want: "not an IPv4 subnet"},
		"an address":    {cfg: Config{PodCIDR: "10.99.0.7/24"}, want: "write 10.99.0.0/24"},
		"for services":  {cfg: Config{PodCIDR: "10.96.8.0/24"}, want: "services"},
		"other runtime": {cfg: Config{PodCIDR: "10.99.0.0/22", ContainerRuntimeEndpoint: "unix:///run/x.sock"}, want: "no meaning with containerRuntimeEndpoint"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := test.cfg.Complete()
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q in it", err, test.want)
			}
		})
	}
}

func TestValidateNamesEveryProblem(t *testing.T) {
	cfg, err := Config{RootDir: "/srv", NodeName: "Edge 1", APIPort: new(70000), KubeletPort: new(-1), ContainerRuntimeEndpoint: "/run/x.sock", PLEGThreshold: &metav1.Duration{Duration: time.Second}, RuntimeHandlers: []runtimehost.Handler{{Name: "crun", Binary: "crun"}}}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	err = cfg.validate()
	for _, want := range []string{`rootDir "/srv"`, `nodeName "Edge 1"`, "apiPort: 70000", "kubeletPort: -1", "plegThreshold: 1s is too short: at least 10s", "want a unix socket", `runtimeHandlers[0]: binary: "crun" is no absolute path`, "runtimeHandlers: they are for the private containerd"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in: %v", want, err)
		}
	}
}
