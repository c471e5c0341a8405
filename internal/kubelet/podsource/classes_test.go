package podsource

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// apiClasses are the API's runtime classes, by name their overhead.
type apiClasses struct {
	mu      sync.Mutex // guards the fields below
	memory  map[string]string
	held    []string
	changes chan types.UID // holders that are told
}

func (c *apiClasses) HoldRuntimeClasses(holder types.UID, names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Equal(c.held, names) {
		select {
		case c.changes <- holder: // it is known now
		default:
		}
	}
	c.held = names
}

func (c *apiClasses) GetRuntimeClass(_ context.Context, name string) (*nodev1.RuntimeClass, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	memory, ok := c.memory[name]
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "runtimeclass"}, name)
	}
	return &nodev1.RuntimeClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Handler: "h",
		Overhead: &nodev1.Overhead{PodFixed: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)}},
	}, nil
}

const classyPod = `apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  runtimeClassName: safe
  containers:
  - {name: c, image: i}
`

const safeClass = `---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: safe}
handler: h
overhead: {podFixed: {memory: 1Mi}}
`

func TestRuntimeClasses(t *testing.T) {
	api := &apiClasses{memory: map[string]string{}, changes: make(chan types.UID, 10)}
	var f *Static
	got := run(t, func(d Deliver) func(context.Context) error {
		f = NewStatic(StaticConfig{Source: "file", Node: "n1", Classes: api, Deliver: d, Log: log(t)})
		return f.Run
	})
	var uid types.UID
	step := func(what, want string) {
		t.Helper()
		pod := next(t, got, "web-n1").pods[0]
		if got := pod.Spec.Overhead.Memory().String(); got != want {
			t.Errorf("%s: overhead %s, want %s", what, got, want)
		}
		if uid != "" && pod.UID != uid {
			t.Errorf("%s: the pod is another: UID %s, want %s", what, pod.UID, uid)
		}
		uid = pod.UID
	}
	change := func(memory string) {
		api.mu.Lock()
		api.memory = map[string]string{}
		if memory != "" {
			api.memory["safe"] = memory
		}
		api.mu.Unlock()
		f.ObjectChanged(f.holder())
	}

	f.ObjectChanged(f.holder()) // says nothing: nobody knows yet what is in force
	f.Update(documents(t, classyPod))
	step("no class", "0")
	if holder := <-api.changes; holder != f.holder() {
		t.Errorf("held for %q", holder)
	}
	change("64Mi")
	step("it comes", "64Mi")
	f.ObjectChanged("p1")
	f.ObjectChanged("source http")
	change("32Mi")
	step("it changes", "32Mi")
	change("")
	step("it is gone, and the pod may run", "32Mi")
	f.Update(documents(t, classyPod+safeClass))
	step("it is in the folder", "1Mi")
	f.Update(documents(t, strings.Replace(classyPod, "  runtimeClassName: safe\n", "", 1)))
	uid = ""
	step("nobody names it", "0")
	api.mu.Lock()
	defer api.mu.Unlock()
	if len(api.held) > 0 {
		t.Errorf("still held: %v", api.held)
	}
}
