package podstatus

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// fakeAPI keeps pods as the API does, as far as this package uses it: patches
// of the status and deletions, both with a UID as precondition.
type fakeAPI struct {
	t *testing.T

	mu      sync.Mutex
	version int
	pods    map[string]*v1.Pod
	log     []string // what was called, and how it went
	fail    error    // of every call
	delay   time.Duration
	flying  int
	most    int // calls in flight at once
}

func newFakeAPI(t *testing.T, pods ...*v1.Pod) *fakeAPI {
	f := &fakeAPI{t: t, pods: map[string]*v1.Pod{}, version: 100}
	for _, p := range pods {
		f.put(p)
	}
	return f
}

// put stores a pod and returns it as the API has it.
func (f *fakeAPI) put(p *v1.Pod) *v1.Pod {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.putLocked(p.DeepCopy())
}

func (f *fakeAPI) putLocked(p *v1.Pod) *v1.Pod {
	f.version++
	p.ResourceVersion = strconv.Itoa(f.version)
	f.pods[p.Namespace+"/"+p.Name] = p
	return p.DeepCopy()
}

func (f *fakeAPI) get(name string) *v1.Pod {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pods["default/"+name]
}

func (f *fakeAPI) set(fail error, delay time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail, f.delay = fail, delay
}

func (f *fakeAPI) take() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	log := f.log
	f.log = nil
	return log
}

func (f *fakeAPI) Pods(namespace string) typedv1.PodInterface {
	return &fakePods{fakeAPI: f, namespace: namespace}
}

type fakePods struct {
	typedv1.PodInterface // nil: every other method panics
	*fakeAPI
	namespace string
}

// begin waits out the API's delay and finds the pod.
func (f *fakePods) begin(ctx context.Context, name string, uid types.UID) (*v1.Pod, error) {
	f.mu.Lock()
	delay := f.delay
	f.flying++
	f.most = max(f.most, f.flying)
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.flying--
		f.mu.Unlock()
	}()
	if delay > 0 {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(delay):
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.pods[f.namespace+"/"+name]
	switch {
	case f.fail != nil:
		return nil, f.fail
	case p == nil:
		return nil, apierrors.NewNotFound(v1.Resource("pods"), name)
	case p.UID != uid:
		return nil, apierrors.NewConflict(v1.Resource("pods"), name, fmt.Errorf("UID is %s", p.UID))
	}
	return p, nil
}

func (f *fakePods) Patch(ctx context.Context, name string, kind types.PatchType, data []byte, _ metav1.PatchOptions, subresources ...string) (*v1.Pod, error) {
	if kind != types.StrategicMergePatchType || len(subresources) != 1 || subresources[0] != "status" {
		f.t.Errorf("patch of kind %s of %v", kind, subresources)
	}
	var patch struct {
		Metadata struct{ UID types.UID }
		Status   struct{ Phase string }
	}
	if err := json.Unmarshal(data, &patch); err != nil || patch.Metadata.UID == "" {
		f.t.Errorf("patch without a UID: %s, %v", data, err)
	}
	p, err := f.begin(ctx, name, patch.Metadata.UID)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log = append(f.log, fmt.Sprintf("patch %s %s: %v", name, patch.Status.Phase, err))
	if err != nil {
		return nil, err
	}
	old, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	merged, err := strategicpatch.StrategicMergePatch(old, data, v1.Pod{})
	if err != nil {
		return nil, err
	}
	var patched v1.Pod
	if err := json.Unmarshal(merged, &patched); err != nil {
		return nil, err
	}
	return f.putLocked(&patched), nil
}

func (f *fakePods) Delete(ctx context.Context, name string, options metav1.DeleteOptions) error {
	if options.Preconditions == nil || options.GracePeriodSeconds == nil || *options.GracePeriodSeconds != 0 {
		f.t.Errorf("deletion with options %+v", options)
		return nil
	}
	_, err := f.begin(ctx, name, *options.Preconditions.UID)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log = append(f.log, fmt.Sprintf("delete %s: %v", name, err))
	if err == nil {
		delete(f.pods, f.namespace+"/"+name)
	}
	return err
}
