package podstatus

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
)

// TestRestartAllContainers follows a pod that starts again as a whole: one
// container ends as its rule says, all are taken away, and all come again.
func TestRestartAllContainers(t *testing.T) {
	p := pod(v1.RestartPolicyNever, "source beside", withInit("init"))
	p.Spec.Containers[0].RestartPolicy = new(v1.ContainerRestartPolicyNever)
	p.Spec.Containers[0].RestartPolicyRules = []v1.ContainerRestartRule{{
		Action:    v1.ContainerRestartRuleActionRestartAllContainers,
		ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
	}}
	run := func(name string, state observed.State, code int32) observed.ContainerStatus {
		return observed.ContainerStatus{ID: name + "1", Name: name, State: state, ExitCode: code}
	}
	again := func(name string, state observed.State) observed.ContainerStatus {
		return observed.ContainerStatus{ID: name + "2", Name: name, State: state, RestartCount: 1}
	}
	steps := []struct {
		name       string
		containers []observed.ContainerStatus
		want       string // phase, whether it restarts, whether it is initialised
		counts     []int32
		waiting    string // the reason of beside
		last       string // why beside ended last
	}{
		{
			"all run",
			[]observed.ContainerStatus{run("init", observed.Exited, 0), run("source", observed.Running, 0), run("beside", observed.Running, 0)},
			"Running False True",
			[]int32{0, 0, 0},
			"", "",
		},
		{
			"another code than the rule's changes nothing",
			[]observed.ContainerStatus{run("init", observed.Exited, 0), run("source", observed.Running, 0), run("beside", observed.Exited, 42)},
			"Running False True",
			[]int32{0, 0, 0},
			"", "",
		},
		{
			"one ends as its rule says",
			[]observed.ContainerStatus{run("init", observed.Exited, 0), run("source", observed.Exited, 42), run("beside", observed.Running, 0)},
			"Running True True",
			[]int32{0, 0, 0},
			"", "",
		},
		{
			"the others are gone",
			[]observed.ContainerStatus{run("source", observed.Exited, 42)},
			"Running True True",
			[]int32{1, 1, 0},
			"RestartingAllContainers", "RestartingAllContainers",
		},
		{
			"all are gone", nil,
			"Running False True",
			[]int32{1, 1, 1},
			"PodInitializing", "RestartingAllContainers",
		},
		{
			"the first runs again",
			[]observed.ContainerStatus{again("init", observed.Running)},
			"Pending False True",
			[]int32{1, 1, 1},
			"PodInitializing", "RestartingAllContainers",
		},
		{
			"all run again",
			[]observed.ContainerStatus{again("init", observed.Exited), again("source", observed.Running), again("beside", observed.Running)},
			"Running False True",
			[]int32{1, 1, 1},
			"", "RestartingAllContainers",
		},
	}
	var last v1.PodStatus
	for _, step := range steps {
		last = Compute(Input{Pod: p, Observed: &observed.Status{Containers: step.containers}, Previous: last, Runtime: "containerd", Now: now})
		conditions := map[v1.PodConditionType]v1.ConditionStatus{}
		for _, c := range last.Conditions {
			conditions[c.Type] = c.Status
		}
		got := string(last.Phase) + " " + string(conditions[v1.AllContainersRestarting]) + " " + string(conditions[v1.PodInitialized])
		if got != step.want {
			t.Errorf("%s: got %s, want %s", step.name, got, step.want)
		}
		beside, source := last.ContainerStatuses[0], last.ContainerStatuses[1]
		counts := []int32{last.InitContainerStatuses[0].RestartCount, beside.RestartCount, source.RestartCount}
		if diff := cmp.Diff(counts, step.counts); diff != "" {
			t.Errorf("%s: restarts of init, beside, source: got -, want +:\n%s", step.name, diff)
		}
		waiting, ended := "", ""
		if w := beside.State.Waiting; w != nil {
			waiting = w.Reason
		}
		if l := beside.LastTerminationState.Terminated; l != nil {
			ended = l.Reason
		}
		if waiting != step.waiting || ended != step.last {
			t.Errorf("%s: beside waits with %q and ended with %q, want %q and %q", step.name, waiting, ended, step.waiting, step.last)
		}
	}
}
