package podstatus

import (
	"fmt"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
)

// TestPhaseOfAnEnd holds which phase, reason, Ready and DisruptionTarget a pod has
// that the node ends.
func TestPhaseOfAnEnd(t *testing.T) {
	deadline := func(p *v1.Pod) { p.Spec.ActiveDeadlineSeconds = new(int64(0)) }
	two := func(p *v1.Pod) { p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: "b"}) }
	shutdown := &End{Reason: "Terminated", Message: "the node goes down", Disrupted: true}
	tests := []struct {
		name string
		pod  *v1.Pod
		end  *End
		seen []string // one after the other; after the last it has ended
		want string
	}{
		{"it serves until it has ended", pod(v1.RestartPolicyAlways, "a"), shutdown, []string{"a:running"}, "Failed Terminated True: the node goes down"},
		{"it was killed", pod(v1.RestartPolicyAlways, "a"), shutdown, []string{"a:running", "dead a:137"}, "Failed Terminated False: the node goes down"},
		{"it ended well", pod(v1.RestartPolicyAlways, "a"), shutdown, []string{"a:running", "dead a:0"}, "Succeeded  False: the node goes down"},
		{"one of two ended well", pod(v1.RestartPolicyNever, "a", two), shutdown, []string{"a:running b:running", "dead a:0 b:1"}, "Failed Terminated False: the node goes down"},
		{"it never started", pod(v1.RestartPolicyAlways, "a"), shutdown, []string{""}, "Failed Terminated False: the node goes down"},
		{"a static pod that ended well", pod(v1.RestartPolicyAlways, "a", static), shutdown, []string{"a:running", "dead a:0"}, "Failed Terminated False: the node goes down"},
		{"its deadline was over", pod(v1.RestartPolicyAlways, "a", deadline), shutdown, []string{"a:running", "dead a:137"}, "Failed DeadlineExceeded False: the node goes down"},
		{"it made room", pod(v1.RestartPolicyAlways, "a"), &End{Reason: "Preempting", Message: "room", Disrupted: true}, []string{"dead a:1"}, "Failed Preempting False: Pod was preempted by Kubelet to accommodate a critical pod."},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := Input{Pod: tt.pod, Now: now, End: tt.end}
			in.Previous = Compute(Input{Pod: tt.pod, Now: now, Observed: seen(tt.seen[0])})
			for i, state := range tt.seen {
				in.Observed, in.Ended = seen(state), i == len(tt.seen)-1
				in.Previous = Compute(in)
			}
			s := in.Previous
			_, ready := podutil.GetPodCondition(&s, v1.PodReady)
			_, disrupted := podutil.GetPodCondition(&s, v1.DisruptionTarget)
			if got := fmt.Sprintf("%s %s %s: %s", s.Phase, s.Reason, ready.Status, disrupted.Message); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// TestEnd holds that a pod that the node ends is Failed for the node's reason,
// and that this is told when nothing runs.
func TestEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, pod(v1.RestartPolicyAlways, "a"))
		defer func() { w.stop() }()
		p := w.api.get("web")
		w.Observe(p)
		w.Report(p, seen("a:running"), nil)
		w.wantCalls("patch web Running: <nil>")

		w.End(p.UID, "Evicted", "The node was low on resource: memory. ", true)
		w.terminating.Store(true)
		if s := w.Report(p, seen("a:running"), nil); s.Phase != v1.PodFailed || s.Reason != "Evicted" {
			t.Errorf("phase %s, reason %s; want Failed, Evicted", s.Phase, s.Reason)
		}
		w.wantCalls() // it serves until it has ended
		if _, c := podutil.GetPodCondition(&w.api.get("web").Status, v1.DisruptionTarget); c != nil {
			t.Error("the disruption was told while containers run")
		}

		w.running.Store(false)
		w.Report(p, seen("dead a:137"), nil)
		w.wantCalls("patch web Failed: <nil>")
		w.SetTerminated(p)
		synctest.Wait()
		s := w.api.get("web").Status
		if s.Reason != "Evicted" || s.Message != "The node was low on resource: memory. " {
			t.Errorf("reason %q, message %q", s.Reason, s.Message)
		}
		if _, c := podutil.GetPodCondition(&s, v1.DisruptionTarget); c == nil || c.Status != v1.ConditionTrue ||
			c.Reason != v1.PodReasonTerminationByKubelet || c.Message != s.Message || c.LastTransitionTime.IsZero() {
			t.Errorf("condition DisruptionTarget: %+v", c)
		}
	})
}

// TestEndByFault holds that no disruption is told of a pod whose own fault it
// is, and that another's condition stays.
func TestEndByFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		theirs := v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: "EvictionByEvictionAPI"}
		was := pod(v1.RestartPolicyAlways, "a")
		was.Status.Conditions = []v1.PodCondition{theirs}
		w := newWorld(t, was)
		defer func() { w.stop() }()
		p := w.api.get("web")
		w.Observe(p)
		w.Report(p, seen("a:running"), nil)
		w.End(p.UID, "Evicted", "too much", false)
		w.terminating.Store(true)
		w.running.Store(false)
		w.Report(p, seen("dead a:137"), nil)
		w.SetTerminated(p)
		synctest.Wait()
		s := w.api.get("web").Status
		if s.Phase != v1.PodFailed || s.Reason != "Evicted" {
			t.Errorf("phase %s, reason %s; want Failed, Evicted", s.Phase, s.Reason)
		}
		if _, c := podutil.GetPodCondition(&s, v1.DisruptionTarget); c == nil || c.Reason != theirs.Reason {
			t.Errorf("condition DisruptionTarget: %+v, want the other's", c)
		}
	})
}

// TestEndOfAPodThatHasEnded holds that an end that comes too late changes
// nothing.
func TestEndOfAPodThatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, pod(v1.RestartPolicyNever, "a"))
		defer func() { w.stop() }()
		p := w.api.get("web")
		w.Observe(p)
		w.Report(p, seen("dead a:0"), nil)
		w.End(p.UID, "Evicted", "", true)
		if s := w.Report(p, seen("dead a:0"), nil); s.Phase != v1.PodSucceeded || s.Reason != "" {
			t.Errorf("phase %s, reason %q; want Succeeded", s.Phase, s.Reason)
		}
	})
}

// TestEndOfAStaticPod holds that a static pod that the node ended is Failed as
// long as this agent runs, and starts anew with the next one, whether its mirror
// is seen early or late.
func TestEndOfAStaticPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mirror := pod(v1.RestartPolicyAlways, "a")
		mirror.UID = "m"
		p := pod(v1.RestartPolicyAlways, "a")
		static(p)
		w := newWorld(t, mirror)
		w.ObserveMirror(p, w.api.get("web"))
		w.Report(p, seen("a:running"), nil)
		w.End(p.UID, "Evicted", "low", true)
		w.terminating.Store(true)
		w.running.Store(false)
		w.Report(p, seen("dead a:0"), nil)
		w.SetTerminated(p)
		synctest.Wait()
		if s := w.api.get("web").Status; s.Phase != v1.PodFailed || s.Reason != "Evicted" || len(s.Conditions) != 6 {
			t.Errorf("phase %s, reason %q, conditions %v", s.Phase, s.Reason, s.Conditions)
		}
		w.stop()

		next := newWorld(t, w.api.get("web"))
		defer func() { next.stop() }()
		next.ObserveMirror(p, next.api.get("web"))
		if s := next.Report(p, seen("dead a:0"), nil); s.Phase != v1.PodRunning || s.Reason != "" {
			t.Errorf("after a restart: phase %s, reason %q; want Running", s.Phase, s.Reason)
		}
		synctest.Wait()
		s := next.api.get("web").Status
		if _, c := podutil.GetPodCondition(&s, v1.DisruptionTarget); s.Phase != v1.PodRunning || c != nil {
			t.Errorf("the mirror: phase %s, condition DisruptionTarget %v", s.Phase, c)
		}
	})
}

// TestRejectedStaticPod holds that a static pod that was not admitted is not
// Failed for good: the next agent may have room for it.
func TestRejectedStaticPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mirror := pod(v1.RestartPolicyAlways, "a")
		mirror.UID = "m"
		p := pod(v1.RestartPolicyAlways, "a")
		static(p)
		w := newWorld(t, mirror)
		w.ObserveMirror(p, w.api.get("web"))
		w.running.Store(false)
		w.Reject(p, "OutOfcpu", "Node didn't have enough resource: cpu")
		synctest.Wait()
		if s := w.api.get("web").Status; s.Phase != v1.PodFailed || s.Reason != "OutOfcpu" {
			t.Errorf("phase %s, reason %q; want Failed, OutOfcpu", s.Phase, s.Reason)
		}
		w.stop()

		next := newWorld(t, w.api.get("web"))
		defer func() { next.stop() }()
		next.ObserveMirror(p, next.api.get("web"))
		if s := next.Report(p, seen("a:running"), nil); s.Phase != v1.PodRunning || s.Reason != "" {
			t.Errorf("after a restart: phase %s, reason %q; want Running", s.Phase, s.Reason)
		}
	})
}
