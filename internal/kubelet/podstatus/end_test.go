package podstatus

import (
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
)

// TestEnd holds that a pod that the node ends is Failed for the node's reason,
// whatever its containers end with, and that this is told when nothing runs.
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
		w.wantCalls("patch web : <nil>") // not ready any more, without a phase
		if _, c := podutil.GetPodCondition(&w.api.get("web").Status, v1.DisruptionTarget); c != nil {
			t.Error("the disruption was told while containers run")
		}

		w.running.Store(false)
		w.Report(p, seen("dead a:0"), nil)
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
		w.Report(p, seen("dead a:0"), nil)
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
