package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// class is a RuntimeClass; its overhead is 200m CPU and 140Mi where it has one.
func class(name, handler string, overhead bool) string {
	text := fmt.Sprintf("---\napiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: %s}\nhandler: %s\n", name, handler)
	if overhead {
		text += "overhead: {podFixed: {cpu: 200m, memory: 140Mi}}\n"
	}
	return text
}

// classyPod is a guaranteed pod of a class: 100m CPU, 100Mi.
func classyPod(name, class string) string {
	return demoPod(name, "serve", "    resources:\n      limits: {cpu: 100m, memory: 100Mi}\n  runtimeClassName: "+class+"\n")
}

// With the overhead of its class a pod may use 300m and 240Mi.
const withOverhead, quotaWithOverhead = "251658240", "30000"

// TestRuntimeClasses runs pods in a second handler of the private containerd,
// which is the bundled runc under another name.
func TestRuntimeClasses(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	path := filepath.Join(t.TempDir(), "node.yaml")
	text := "apiVersion: holdfast.dev/v1alpha1\nkind: NodeConfiguration\nruntimeHandlers:\n- {name: other, binary: " + filepath.Join(testenv.RuntimeDir(t), "runc") + "}\n"
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	n.flags = []string{"--config", path}
	n.up()

	step(t, "a pod and its class in the folder", func(t *testing.T) {
		n.t = t
		n.write("web.yaml", classyPod("web", "heavy")+class("heavy", "other", true))
		pod := n.running("web-edge-1")
		if got := pod.Spec.Overhead.Memory().String(); got != "140Mi" {
			t.Errorf("the mirror's overhead: %s", got)
		}
		wantLimits(t, "pod"+pod.Annotations["kubernetes.io/config.hash"], withOverhead, quotaWithOverhead)
		if err := wants(n.kubectl("get", "node", "edge-1", "-o", "jsonpath={.status.runtimeHandlers}"), `"name":"other"`); err != nil {
			t.Error(err)
		}
		if err := wants(n.kubectl("describe", "node", "edge-1"), "web-edge-1", "300m (", "240Mi ("); err != nil {
			t.Errorf("what is allocated: %v", err)
		}
		if events := n.kubectl("get", "events"); strings.Contains(events, "FailedCreatePodSandBox") {
			t.Errorf("the class came with the pod, and yet:\n%s", events)
		}
	})
	step(t, "a pod of the API, resized", func(t *testing.T) {
		n.t = t
		n.kubectlIn(classyPod("api", "heavy"), "apply", "-f", "-")
		pod := n.running("api")
		wantLimits(t, "pod"+string(pod.UID), withOverhead, quotaWithOverhead)
		n.resize("api", "150m", "110Mi")
		n.resized("api", "150m", "110Mi")
		wantLimits(t, "pod"+string(pod.UID), "262144000", "35000")
	})
	step(t, "classes that are not there, or not any more", func(t *testing.T) {
		n.t = t
		n.kubectlIn(class("brief", "runc", false), "apply", "-f", "-")
		n.kubectlIn(classyPod("brief", "brief"), "apply", "-f", "-")
		before := containers(n.running("brief"))
		n.kubectl("delete", "runtimeclass", "brief")
		for _, name := range []string{"none", "brief"} {
			out, err := n.tryKubectl(classyPod("late", name), "apply", "-f", "-")
			if err == nil || !strings.Contains(out, fmt.Sprintf("pod rejected: RuntimeClass %q not found", name)) {
				t.Errorf("a pod of class %s: %v\n%s", name, err, out)
			}
		}
		if got := containers(n.pod("brief")); got != before {
			t.Errorf("the pod that runs: got %s, want %s", got, before)
		}
	})
	step(t, "a handler that is not there", func(t *testing.T) {
		n.t = t
		n.kubectlIn(class("absent", "phantom", false), "apply", "-f", "-")
		n.kubectlIn(classyPod("waits", "absent"), "apply", "-f", "-")
		n.eventually("the event", func() error {
			return wants(n.kubectl("get", "events", "--field-selector", "involvedObject.name=waits"), "FailedCreatePodSandBox", "phantom", "runtimeHandlers")
		})
		if got := n.pod("waits").Status.Phase; got != "Pending" {
			t.Errorf("phase %s", got)
		}
	})
	step(t, "a static pod whose class comes later", func(t *testing.T) {
		n.t = t
		n.write("later.yaml", classyPod("later", "coming"))
		n.eventually("status says what it waits for", func() error {
			out, _ := n.try("status") // its exit code says that something is wrong
			return wants(out, "later-edge-1", `RuntimeClass "coming" not found`)
		})
		n.kubectlIn(class("coming", "other", true), "apply", "-f", "-")
		pod := n.running("later-edge-1")
		n.eventually("its limits", func() error {
			if m, q := limits(t, "pod"+pod.Annotations["kubernetes.io/config.hash"]); m != withOverhead || q != quotaWithOverhead {
				return fmt.Errorf("memory %s, quota %s", m, q)
			}
			return nil
		})
	})
}
