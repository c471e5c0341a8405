package node

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestReportPod(t *testing.T) {
	waiting := v1.ContainerStatus{Name: "c", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no such image"}}}
	for name, test := range map[string]struct {
		status          v1.PodStatus
		ending          bool
		reason, message string
	}{
		"runs":                    {v1.PodStatus{Phase: v1.PodRunning}, false, "", ""},
		"waits":                   {v1.PodStatus{Phase: v1.PodPending, ContainerStatuses: []v1.ContainerStatus{waiting}}, false, "ErrImagePull", "container c: no such image"},
		"is being ended":          {v1.PodStatus{Phase: v1.PodRunning}, true, "Terminating", ""},
		"is ended while it waits": {v1.PodStatus{Phase: v1.PodPending, ContainerStatuses: []v1.ContainerStatus{waiting}}, true, "Terminating", ""},
		"has ended":               {v1.PodStatus{Phase: v1.PodFailed, Reason: "Evicted", Message: "no room"}, true, "Evicted", "no room"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := reportPod(&v1.Pod{Status: test.status}, test.ending); got.Reason != test.reason || got.Message != test.message {
				t.Errorf("got %q, %q; want %q, %q", got.Reason, got.Message, test.reason, test.message)
			}
		})
	}
}
