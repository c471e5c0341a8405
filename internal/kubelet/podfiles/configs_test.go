package podfiles

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write what was got as what is wanted")

// TestConfigs compares what the runtime is given for the pods in testdata with
// what is beside them. A reviewer reads the difference.
func TestConfigs(t *testing.T) {
	pods, err := filepath.Glob("testdata/configs/*.pod.yaml")
	if err != nil || len(pods) == 0 {
		t.Fatalf("no pods: %v", err)
	}
	for _, file := range pods {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".pod.yaml"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var pod v1.Pod
			if err := yaml.UnmarshalStrict(text, &pod); err != nil {
				t.Fatal(err)
			}
			before := pod.DeepCopy()
			got := configs(t, &pod)
			if diff := cmp.Diff(&pod, before); diff != "" {
				t.Errorf("the pod was changed:\n%s", diff)
			}
			golden := strings.TrimSuffix(file, ".pod.yaml") + ".cri.json"
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(got), string(want)); diff != "" {
				t.Errorf("got -, want +:\n%s", diff)
			}
		})
	}
}

// configs returns a pod's sandbox and containers, one after the other.
func configs(t *testing.T, pod *v1.Pod) []byte {
	t.Helper()
	node := testNode()
	node.CgroupV2 = pod.Name == "guaranteed"
	node.SeccompFolder = "/var/lib/holdfast/seccomp"
	sandbox, _, err := node.Sandbox(pod, 1, "/kubepods/pod"+string(pod.UID), nil)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	out.Write(stable(t, sandbox))
	for _, c := range Containers(pod) {
		env, err := node.Env(pod, c, EnvSources{PodIPs: []string{"10.88.0.7"}})
		if err != nil {
			t.Fatal(err)
		}
		own := env[:len(env)-8] // without those of the API server
		var mounts []*runtimeapi.Mount
		for i := range c.VolumeMounts {
			mounts = append(mounts, VolumeMount(pod, &c.VolumeMounts[i], "/volumes/"+c.VolumeMounts[i].Name, false))
		}
		config, err := node.Container(ContainerInput{
			Pod: pod, Container: c, Attempt: 2, ImageRef: "sha256:1", ImageUser: ImageUser{UID: new(int64(65532))}, Env: own, Mounts: mounts,
		})
		if err != nil {
			t.Fatal(err)
		}
		out.Write(stable(t, config))
	}
	return out.Bytes()
}

// stable encodes a message the same way every time, which protojson alone does
// not promise.
func stable(t *testing.T, m proto.Message) []byte {
	t.Helper()
	raw, err := protojson.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var value any
	if err := json.Unmarshal(raw, &value); err != nil {
		t.Fatal(err)
	}
	raw, err = json.MarshalIndent(value, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return append(raw, '\n')
}

func TestRunAsNonRoot(t *testing.T) {
	tests := map[string]struct {
		user  *int64
		image ImageUser
		want  string
	}{
		"image's number":     {image: ImageUser{UID: new(int64(7))}},
		"pod's number":       {user: new(int64(7)), image: ImageUser{UID: new(int64(0))}},
		"pod says root":      {user: new(int64(0)), image: ImageUser{UID: new(int64(7))}, want: "container's runAsUser breaks non-root policy"},
		"image is root":      {image: ImageUser{UID: new(int64(0))}, want: "container has runAsNonRoot and image will run as root"},
		"image says nothing": {want: "container has runAsNonRoot and image will run as root"},
		"image has a name":   {image: ImageUser{Name: "app"}, want: "container has runAsNonRoot and image has non-numeric user (app)"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod := testPod(func(p *v1.Pod) {
				p.Spec.SecurityContext = &v1.PodSecurityContext{RunAsNonRoot: new(true), RunAsUser: test.user}
			})
			_, err := testNode().Container(ContainerInput{Pod: pod, Container: &pod.Spec.Containers[0], ImageUser: test.image})
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.HasPrefix(err.Error(), test.want)) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestTargetedProcesses(t *testing.T) {
	pod := testPod()
	config, err := testNode().Container(ContainerInput{Pod: pod, Container: &pod.Spec.Containers[0], TargetID: "c1"})
	if err != nil {
		t.Fatal(err)
	}
	got := config.GetLinux().GetSecurityContext().GetNamespaceOptions()
	if got.GetPid() != runtimeapi.NamespaceMode_TARGET || got.GetTargetId() != "c1" {
		t.Errorf("got %v, want the processes of c1", got)
	}
}

// TestSingleProcessOOMKill holds which containers end as a whole.
func TestSingleProcessOOMKill(t *testing.T) {
	for _, test := range []struct {
		name       string
		v2, single bool
		want       string
	}{{"cgroup v2", true, false, "1"}, {"not wanted", true, true, ""}, {"cgroup v1", false, false, ""}} {
		t.Run(test.name, func(t *testing.T) {
			node := testNode()
			node.CgroupV2, node.SingleProcessOOMKill = test.v2, test.single
			got := node.Resources(&v1.Pod{}, &v1.Container{}).GetUnified()["memory.oom.group"]
			if got != test.want {
				t.Errorf("memory.oom.group %q, want %q", got, test.want)
			}
		})
	}
}
