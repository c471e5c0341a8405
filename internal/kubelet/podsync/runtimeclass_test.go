package podsync

import (
	"slices"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestRuntimeClass(t *testing.T) {
	tests := map[string]struct {
		class   *string
		classes map[string]string // name → handler
		want    string            // the handler
		event   []string          // parts of the one of a failure, then nothing runs
	}{
		"none":          {want: ""},
		"empty":         {class: new("")},
		"handler":       {class: new("safe"), classes: map[string]string{"safe": "gvisor"}, want: "gvisor"},
		"missing class": {class: new("safe"), event: []string{`runtimeclass.node.k8s.io "safe" not found`}},
		"missing handler": {
			class: new("safe"), classes: map[string]string{"safe": "kata"},
			event: []string{`no runtime for "kata" is configured`},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(c *Config) { c.MountNotice = time.Millisecond })
			w.fake.AddHandler("gvisor")
			w.classes = test.classes
			w.pod.Spec.RuntimeClassName = test.class
			err := w.sync()
			if len(test.event) > 0 {
				got := w.eventsSoFar()
				if err == nil || len(got) != 1 || !strings.HasPrefix(got[0], "Warning FailedCreatePodSandBox Failed to create pod sandbox: ") ||
					slices.ContainsFunc(test.event, func(part string) bool { return !strings.Contains(got[0], part) }) {
					t.Errorf("got %v and events %q, want %q", err, got, test.event)
				}
				// What was missing comes, and the pod with it.
				w.mu.Lock()
				w.classes = map[string]string{"safe": "gvisor"}
				w.mu.Unlock()
				test.want, err = "gvisor", w.sync()
			}
			if err != nil {
				t.Fatal(err)
			}
			w.wantRunning("main")
			if got := w.inspect().ReadySandbox().GetRuntimeHandler(); got != test.want {
				t.Errorf("handler: got %q, want %q", got, test.want)
			}
		})
	}
}

// A class that comes a moment after its pod is no trouble, and the pod's
// sandbox goes on though the class vanishes.
func TestRuntimeClassIsLate(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.MountNotice = time.Minute })
	w.fake.AddHandler("gvisor")
	w.pod.Spec.RuntimeClassName = new("safe")
	w.asked = func() {
		w.classes = map[string]string{"safe": "gvisor"} // for the next time
	}
	w.mustSync()
	w.wantRunning("main")
	if got := w.eventsSoFar(); slices.ContainsFunc(got, func(e string) bool { return strings.HasPrefix(e, "Warning") }) {
		t.Errorf("got events %q", got)
	}
	box := w.inspect().ReadySandbox()
	w.mu.Lock()
	w.classes, w.asked = nil, nil
	w.mu.Unlock()
	w.mustSync()
	if got := w.inspect().ReadySandbox(); got.GetId() != box.GetId() || got.GetState() != runtimeapi.PodSandboxState_SANDBOX_READY {
		t.Errorf("sandbox: got %v, want %v", got, box)
	}
}
