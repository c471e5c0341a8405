package node

import (
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-dev/holdfast/internal/control"
	"github.com/holdfast-dev/holdfast/internal/instance"
)

// stopped returns an instance that was started with cfg and runs no more.
func stopped(t *testing.T, cfg Config) *instance.Instance {
	t.Helper()
	in := &instance.Instance{Root: t.TempDir(), ID: "abc123", Subnet: netip.MustParsePrefix("10.77.0.0/24")}
	if err := os.MkdirAll(in.Path("state"), 0o700); err != nil {
		t.Fatal(err)
	}
	cfg.RootDir = in.Root
	if err := save(in, cfg); err != nil {
		t.Fatal(err)
	}
	return in
}

func TestOffline(t *testing.T) {
	for name, test := range map[string]struct {
		cfg               Config
		node, dir, reason string
	}{
		"private containerd": {Config{NodeName: "edge-1", ManifestDir: "/srv/pods"}, "edge-1", "/srv/pods", "none of its pods"},
		"the user's own":     {Config{NodeName: "edge-1", ContainerRuntimeEndpoint: "unix:///x"}, "edge-1", "manifests", "may still run on unix:///x"},
		"never ready":        {Config{}, "abc123", "manifests", "none of its pods"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Offline(stopped(t, test.cfg))
			if err != nil {
				t.Fatal(err)
			}
			if r.PID != 0 || r.Ready || r.Node != test.node || !strings.HasSuffix(r.ManifestDir, test.dir) {
				t.Errorf("got %+v", r)
			}
			if len(r.Faults) != 1 || !strings.Contains(r.Faults[0].Message, test.reason) {
				t.Errorf("faults: got %+v, want %q", r.Faults, test.reason)
			}
		})
	}
}

func TestDifferences(t *testing.T) {
	in := stopped(t, Config{NodeName: "a", ManifestDir: "/m", APIPort: new(1), KubeletPort: new(2)})
	for name, test := range map[string]struct {
		cfg  Config
		want []string
	}{
		"same":      {Config{NodeName: "a", ManifestDir: "/m", APIPort: new(1), KubeletPort: new(2)}, nil},
		"any ports": {Config{NodeName: "a", ManifestDir: "/m", APIPort: new(0), KubeletPort: new(0)}, nil},
		"others": {
			Config{NodeName: "b", ManifestDir: "/n", APIPort: new(3), KubeletPort: new(2), ContainerRuntimeEndpoint: "unix:///x"},
			[]string{`manifestDir "/m", not "/n"`, `nodeName "a", not "b"`, `containerRuntimeEndpoint "", not "unix:///x"`, "apiPort 1, not 3"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Differences(in, test.cfg)
			if diff := cmp.Diff(got, test.want); diff != "" || err != nil {
				t.Errorf("%v (-got +want):\n%s", err, diff)
			}
		})
	}
}

// TestDifferencesOfTheKubelet holds that the section is the same after it was
// saved, and not after a change of one field.
func TestDifferencesOfTheKubelet(t *testing.T) {
	settings := func() Config {
		return Config{NodeName: "a", Kubelet: KubeletSettings{
			ImageMaximumGCAge: metav1.Duration{Duration: time.Hour}, ContainerLogMaxSize: "1Mi", ContainerLogMaxFiles: new(int32(3)),
			ContainerLogMonitorInterval: &metav1.Duration{Duration: 5 * time.Second},
		}}
	}
	in := stopped(t, settings())
	if got, err := Differences(in, settings()); got != nil || err != nil {
		t.Errorf("the same: %q, %v", got, err)
	}
	changed := settings()
	*changed.Kubelet.ContainerLogMaxFiles = 4
	if got, err := Differences(in, changed); len(got) != 1 || !strings.Contains(got[0], "kubelet") || err != nil {
		t.Errorf("changed: %q, %v", got, err)
	}
}

func TestObstacle(t *testing.T) {
	parts := []control.Part{{Name: "containerd", State: control.Running}, {Name: "kubelet", State: control.Starting}}
	for name, test := range map[string]struct {
		report control.Report
		want   string
	}{
		"the node's own fault": {control.Report{Node: "a", Parts: parts, Faults: []control.Fault{{Object: "Pod x", Message: "no"}, {Object: "Node a", Message: "no network"}}}, "no network"},
		"a part":               {control.Report{Node: "a", Parts: parts, Faults: []control.Fault{{Object: "Pod x", Message: "no"}}}, "kubelet is starting"},
		"nothing known":        {control.Report{Node: "a", Parts: parts[:1]}, "all parts run"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := obstacle(test.report); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
