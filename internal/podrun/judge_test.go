package podrun

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func ended(name string, code int32, reason string, at int64) v1.ContainerStatus {
	return v1.ContainerStatus{Name: name, State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
		ExitCode: code, Reason: reason, FinishedAt: metav1.NewTime(time.Unix(at, 0)),
	}}}
}

func waiting(name, reason, message string) v1.ContainerStatus {
	return v1.ContainerStatus{Name: name, Image: "img", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason, Message: message}}}
}

func TestJudge(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	unschedulable := func(message string) []v1.PodCondition {
		return []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonUnschedulable, Message: message}}
	}
	claim := v1.PodSpec{Volumes: []v1.Volume{{VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}}}
	for name, test := range map[string]struct {
		spec   v1.PodSpec
		status v1.PodStatus
		want   verdict
	}{
		"it runs": {status: v1.PodStatus{Phase: v1.PodRunning}},
		"all is well": {
			status: v1.PodStatus{Phase: v1.PodSucceeded, ContainerStatuses: []v1.ContainerStatus{ended("app", 0, "Completed", 1)}},
			want:   verdict{decided: true, ended: true},
		},
		"its exit code": {
			status: v1.PodStatus{Phase: v1.PodFailed, ContainerStatuses: []v1.ContainerStatus{ended("app", 3, "Error", 1)}},
			want:   verdict{true, true, 3, "container app ended with exit code 3"},
		},
		"killed for its memory": {
			status: v1.PodStatus{Phase: v1.PodFailed, ContainerStatuses: []v1.ContainerStatus{ended("app", 137, "OOMKilled", 1)}},
			want:   verdict{true, true, 137, "container app ended with exit code 137, OOMKilled"},
		},
		"the first of several that failed": {
			status: v1.PodStatus{Phase: v1.PodFailed, ContainerStatuses: []v1.ContainerStatus{ended("a", 143, "Error", 9), ended("b", 4, "Error", 7), ended("c", 0, "Completed", 5)}},
			want:   verdict{true, true, 4, "container b ended with exit code 4"},
		},
		"an init container": {
			status: v1.PodStatus{Phase: v1.PodFailed, InitContainerStatuses: []v1.ContainerStatus{ended("init", 5, "Error", 1)}, ContainerStatuses: []v1.ContainerStatus{waiting("app", "PodInitializing", "")}},
			want:   verdict{true, true, 5, "container init ended with exit code 5"},
		},
		"a sidecar decides nothing": {
			spec:   v1.PodSpec{InitContainers: []v1.Container{{Name: "side", RestartPolicy: &always}}},
			status: v1.PodStatus{Phase: v1.PodFailed, InitContainerStatuses: []v1.ContainerStatus{ended("side", 143, "Error", 1)}, ContainerStatuses: []v1.ContainerStatus{ended("app", 6, "Error", 2)}},
			want:   verdict{true, true, 6, "container app ended with exit code 6"},
		},
		"its time was over": {
			status: v1.PodStatus{Phase: v1.PodFailed, Reason: "DeadlineExceeded", Message: "too long", ContainerStatuses: []v1.ContainerStatus{ended("app", 137, "Error", 1)}},
			want:   verdict{true, true, CodeTimeout, "DeadlineExceeded: too long"},
		},
		"put out": {
			status: v1.PodStatus{Phase: v1.PodFailed, Reason: "Evicted", Message: "disk"},
			want:   verdict{true, true, CodeRefused, "Evicted: disk"},
		},
		"no place": {
			status: v1.PodStatus{Phase: v1.PodPending, Conditions: unschedulable("no cpu")},
			want:   verdict{decided: true, code: CodeRefused, message: "the node cannot take it: no cpu"},
		},
		"a claim is being bound": {spec: claim, status: v1.PodStatus{Phase: v1.PodPending, Conditions: unschedulable("pod has unbound immediate PersistentVolumeClaims")}},
		"no image": {
			status: v1.PodStatus{Phase: v1.PodPending, ContainerStatuses: []v1.ContainerStatus{waiting("app", "ErrImagePull", "refused")}},
			want:   verdict{decided: true, code: CodeImage, message: "container app: image img: ErrImagePull: refused"},
		},
		"no image of an init container": {
			status: v1.PodStatus{Phase: v1.PodPending, InitContainerStatuses: []v1.ContainerStatus{waiting("init", "ErrImageNeverPull", "")}},
			want:   verdict{decided: true, code: CodeImage, message: "container init: image img: ErrImageNeverPull"},
		},
		"no Secret": {
			status: v1.PodStatus{Phase: v1.PodPending, ContainerStatuses: []v1.ContainerStatus{waiting("app", "CreateContainerConfigError", "secret not found")}},
			want:   verdict{decided: true, code: CodeStart, message: "container app: CreateContainerConfigError: secret not found"},
		},
		"no program": {
			status: v1.PodStatus{Phase: v1.PodFailed, ContainerStatuses: []v1.ContainerStatus{ended("app", 128, "StartError", 1)}},
			want:   verdict{true, true, CodeStart, "could not be started: StartError"},
		},
		"it crashes and is tried again": {
			status: v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{waiting("app", "CrashLoopBackOff", "")}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := judge(&v1.Pod{Spec: test.spec, Status: test.status})
			if diff := cmp.Diff(got, test.want, cmp.AllowUnexported(verdict{})); diff != "" {
				t.Errorf("got - want +\n%s", diff)
			}
		})
	}
}

func TestFatalEvents(t *testing.T) {
	for _, test := range []struct {
		reason, message string
		want            bool
	}{
		{"FailedMount", `MountVolume.SetUp failed for volume "v" : ConfigMap default/x: not found`, true},
		{"FailedMount", "the device is busy", false},
		{"Unhealthy", "page not found", false},
	} {
		e := &v1.Event{Type: v1.EventTypeWarning, Reason: test.reason, Message: test.message}
		if got := fatal(e) != nil; got != test.want {
			t.Errorf("%s %q: got %v, want %v", test.reason, test.message, got, test.want)
		}
	}
}
