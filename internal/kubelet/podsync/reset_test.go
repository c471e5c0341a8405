package podsync

import (
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/cri/crifake"
)

// TestRestartsAll holds that a pod whose status says that all its containers
// start again loses them, the cause last, and then starts from the beginning in
// the same sandbox.
func TestRestartsAll(t *testing.T) {
	w := newWorld(t, nil)
	w.pod.Spec.RestartPolicy = v1.RestartPolicyNever
	w.pod.Spec.InitContainers = []v1.Container{{Name: "init", Image: image}}
	w.pod.Spec.Containers = []v1.Container{
		{Name: "source", Image: image, RestartPolicy: new(v1.ContainerRestartPolicyNever), RestartPolicyRules: []v1.ContainerRestartRule{{
			Action:    v1.ContainerRestartRuleActionRestartAllContainers,
			ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
		}}},
		{Name: "beside", Image: image},
	}
	w.mustSync()
	w.exit("init", 0)
	w.mustSync()
	w.wantRunning("beside source")
	sandbox := w.inspect().Sandboxes[0].GetId()

	w.exit("source", 42)
	w.eventsSoFar()
	names := map[string]string{}
	for _, c := range w.inspect().Containers {
		names[c.ID] = c.Name
	}
	did := w.watchContainerEnds(names)
	w.conditions = []v1.PodCondition{{Type: v1.AllContainersRestarting, Status: v1.ConditionTrue}}
	w.mustSync()
	want := []string{"stop beside", "remove beside", "remove init", "remove source"}
	if diff := cmp.Diff(did(), want); diff != "" {
		t.Errorf("calls: got -, want +:\n%s", diff)
	}
	w.wantEvents("Normal Killing killing")
	if left := w.inspect().Containers; len(left) > 0 {
		t.Errorf("%d containers are left, want none", len(left))
	}

	w.conditions[0].Status = v1.ConditionFalse
	w.mustSync()
	w.wantRunning("init")
	w.exit("init", 0)
	w.mustSync()
	w.wantRunning("beside source")
	for name := range strings.FieldsSeq("init source beside") {
		if c := w.newest(name); c.RestartCount != 1 || c.SandboxID != sandbox {
			t.Errorf("%s: restarted %d times in sandbox %s, want once in %s", name, c.RestartCount, c.SandboxID, sandbox)
		}
	}
}

// exit ends the newest container called name.
func (w *world) exit(name string, code int32) {
	w.t.Helper()
	if err := w.fake.Exit(w.newest(name).ID, code); err != nil {
		w.t.Fatal(err)
	}
}

// watchContainerEnds returns what the runtime was asked to stop and to remove
// since, by the names of the containers.
func (w *world) watchContainerEnds(names map[string]string) func() []string {
	var mu sync.Mutex
	var did []string
	note := func(what, id string) bool {
		mu.Lock()
		defer mu.Unlock()
		did = append(did, what+" "+names[id])
		return false
	}
	w.fake.Inject(crifake.Fault{Op: "StopContainer", Match: func(req any) bool {
		return note("stop", req.(*runtimeapi.StopContainerRequest).GetContainerId())
	}})
	w.fake.Inject(crifake.Fault{Op: "RemoveContainer", Match: func(req any) bool {
		return note("remove", req.(*runtimeapi.RemoveContainerRequest).GetContainerId())
	}})
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return did
	}
}
