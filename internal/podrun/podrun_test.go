package podrun

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"

	"github.com/holdfast-dev/holdfast/internal/manifest"
)

const twoDocuments = `
apiVersion: v1
kind: Pod
metadata: {name: p}
spec: {containers: [{name: app, image: i}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: c}
---
apiVersion: v1
kind: Namespace
metadata: {name: space}
`

// A rig is a Runner and the API that it works with.
type rig struct {
	runner  *Runner
	client  *fake.Clientset
	objects *dynamicfake.FakeDynamicClient
	out     *paper
}

func newRig(t *testing.T, text string) *rig {
	t.Helper()
	reading := manifest.New().Parse("f.yaml", []byte(text))
	if len(reading.Faults) > 0 {
		t.Fatal(reading.Faults)
	}
	r := &rig{client: fake.NewClientset(), objects: dynamicfake.NewSimpleDynamicClient(scheme.Scheme), out: &paper{}}
	runner, err := New(Config{
		Client: r.client, Objects: r.objects, Documents: reading.Documents, Logs: t.TempDir(), Out: r.out, Say: func(s string) { t.Log(s) },
	})
	if err != nil {
		t.Fatal(err)
	}
	r.runner = runner
	return r
}

// becomes makes pods have a status from the start.
func (r *rig) becomes(status v1.PodStatus) {
	r.client.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		pod := a.(clienttesting.CreateAction).GetObject().(*v1.Pod)
		pod.Status, pod.UID = status, "u"
		return false, nil, nil
	})
}

// changes returns what was written, in order.
func (r *rig) changes() []string {
	var all []string
	for _, a := range slices.Concat(r.client.Actions(), r.objects.Actions()) {
		if verb := a.GetVerb(); verb == "create" || verb == "delete" {
			all = append(all, verb+" "+a.GetResource().Resource)
		}
	}
	return all
}

func code(err error) int {
	f, ok := errors.AsType[*Failure](err)
	if !ok {
		return -1
	}
	return f.Code
}

func TestRunRemovesWhatItMade(t *testing.T) {
	all := []string{"create pods", "delete pods", "create namespaces", "create configmaps", "delete configmaps", "delete namespaces"}
	for name, test := range map[string]struct {
		status v1.PodStatus
		want   int
	}{
		"it succeeds":   {v1.PodStatus{Phase: v1.PodSucceeded}, -1},
		"it fails":      {v1.PodStatus{Phase: v1.PodFailed, ContainerStatuses: []v1.ContainerStatus{ended("app", 3, "Error", 1)}}, 3},
		"no image":      {v1.PodStatus{Phase: v1.PodPending, ContainerStatuses: []v1.ContainerStatus{waiting("app", "ErrImagePull", "")}}, CodeImage},
		"it is put out": {v1.PodStatus{Phase: v1.PodFailed, Reason: "Evicted"}, CodeRefused},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, twoDocuments)
			r.becomes(test.status)
			err := r.runner.Run(t.Context())
			if got := code(err); got != test.want {
				t.Errorf("got code %d (%v), want %d", got, err, test.want)
			}
			if diff := cmp.Diff(r.changes(), all); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestInterruptedRunRemovesWhatItMade(t *testing.T) {
	r := newRig(t, twoDocuments)
	r.becomes(v1.PodStatus{Phase: v1.PodRunning})
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("Ctrl-C")
	r.runner.cfg.Made = func(string, string) { cancel(why) }
	if err := r.runner.Run(ctx); !errors.Is(err, why) {
		t.Errorf("got %v, want %v", err, why)
	}
	if _, err := r.client.CoreV1().Pods("default").Get(t.Context(), "p", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the pod is there: %v", err)
	}
}

func TestRunDoesNotTouchWhatWasThere(t *testing.T) {
	for name, test := range map[string]struct {
		there string // resource that is there already
		want  []string
	}{
		"a ConfigMap": {"configmaps", []string{"create namespaces", "create configmaps", "delete namespaces"}},
		"the pod":     {"pods", []string{"create pods", "create namespaces", "create configmaps", "delete configmaps", "delete namespaces"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, twoDocuments)
			exists := func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewAlreadyExists(schema.GroupResource{Resource: test.there}, "x")
			}
			r.client.PrependReactor("create", test.there, exists)
			r.objects.PrependReactor("create", test.there, exists)
			err := r.runner.Run(t.Context())
			if code(err) != CodeInvalid || !strings.Contains(fmt.Sprint(err), "is there already") {
				t.Errorf("got %v, want that it is there already", err)
			}
			if diff := cmp.Diff(r.changes(), test.want); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestExactlyOnePod(t *testing.T) {
	parse := func(text string) []manifest.Document { return manifest.New().Parse("f.yaml", []byte(text)).Documents }
	pod, _, _ := strings.Cut(twoDocuments, "---")
	for _, docs := range [][]manifest.Document{nil, parse(pod + "---" + strings.ReplaceAll(pod, "name: p", "name: q"))} {
		if _, err := New(Config{Documents: docs, Say: func(string) {}}); code(err) != CodeInvalid {
			t.Errorf("%d documents: got %v, want code %d", len(docs), err, CodeInvalid)
		}
	}
}
