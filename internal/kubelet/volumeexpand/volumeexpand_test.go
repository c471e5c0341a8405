package volumeexpand

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const storage = v1.ResourceStorage

// A claim goes on from wherever an agent left it, and ends with its new size, with
// the reason to try again, or waiting for another size.
func TestGrow(t *testing.T) {
	const before = "1Gi|NodeResizePending|FileSystemResizePending|Mine"
	tests := []struct {
		name   string
		status v1.ClaimResourceStatus
		grow   error
		tell   bool // the claim can be told
		want   string
		event  string
		err    string
	}{
		{"it grows", v1.PersistentVolumeClaimNodeResizePending, nil, true, "2Gi||Mine", "Normal FileSystemResizeSuccessful volume pv has grown to 2Gi", ""},
		{"an agent died meanwhile", v1.PersistentVolumeClaimNodeResizeInProgress, nil, true, "2Gi||Mine", "Normal FileSystemResizeSuccessful", ""},
		{
			"it fails", v1.PersistentVolumeClaimNodeResizePending, errors.New("no space in the journal"), true,
			"1Gi|NodeResizeInProgress|FileSystemResizePending|Mine|NodeResizeError failed to expand pvc with no space in the journal",
			"Warning VolumeResizeFailed volume pv cannot grow to 2Gi: no space in the journal", `grow volume "data": no space in the journal`,
		},
		{
			"it never can", v1.PersistentVolumeClaimNodeResizePending, fmt.Errorf("the device has 1 GiB: %w", podvolumes.ErrCannotGrow), true,
			"1Gi|NodeResizeInfeasible|FileSystemResizePending|Mine|NodeResizeError failed to expand pvc with the device has 1 GiB: the volume cannot grow so far",
			"Warning VolumeResizeFailed", "the device has 1 GiB",
		},
		{
			"not while a pod has it", v1.PersistentVolumeClaimNodeResizePending, fmt.Errorf("disk in use: %w", podvolumes.ErrGrowsLater), true,
			"1Gi|NodeResizeInProgress|FileSystemResizePending|Mine|NodeResizeError failed to expand pvc with disk in use: the volume cannot grow while it is in use",
			"Warning VolumeResizeFailed volume pv cannot grow to 2Gi: disk in use", "",
		},
		{"an older resizer", "", nil, true, "2Gi||Mine", "Normal FileSystemResizeSuccessful", ""},
		{
			"an older resizer, and it never can", "", fmt.Errorf("too large: %w", podvolumes.ErrCannotGrow), true,
			"1Gi||FileSystemResizePending|Mine|NodeResizeError failed to expand pvc with too large: the volume cannot grow so far",
			"Warning VolumeResizeFailed", "too large",
		},
		{"the claim has changed", v1.PersistentVolumeClaimNodeResizePending, nil, false, before, "", "tell claim ns/c"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			claim := &v1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "claim"},
				Status: v1.PersistentVolumeClaimStatus{
					Capacity: v1.ResourceList{storage: resource.MustParse("1Gi")},
					Conditions: []v1.PersistentVolumeClaimCondition{
						{Type: v1.PersistentVolumeClaimFileSystemResizePending, Status: v1.ConditionTrue},
						{Type: "Mine", Status: v1.ConditionTrue},
					},
				},
			}
			begins := tt.status
			if tt.status != "" {
				claim.Status.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{storage: tt.status}
				begins = v1.PersistentVolumeClaimNodeResizeInProgress
			}
			client := fake.NewClientset(claim)
			get := func() *v1.PersistentVolumeClaim {
				t.Helper()
				now, err := client.CoreV1().PersistentVolumeClaims("ns").Get(t.Context(), "c", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				return now
			}
			pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
			pv.Spec.Capacity = v1.ResourceList{storage: resource.MustParse("2Gi")}
			v := &podvolumes.Volume{Name: "data", Claim: get(), PV: pv, GrowTo: 2 << 30}
			if !tt.tell {
				client.PrependReactor("patch", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, errors.New("the object has been modified")
				})
			}
			events := record.NewFakeRecorder(10)
			grown := 0
			e := New(Config{
				Grow: func(_ context.Context, got *podvolumes.Volume) error {
					grown++
					if status := get().Status.AllocatedResourceStatuses[storage]; got != v || status != begins {
						t.Errorf("grows with the status %s", status)
					}
					return tt.grow
				},
				Claims: client.CoreV1(), Events: events, Log: slog.New(slog.DiscardHandler),
			})
			err := e.Grow(t.Context(), v)
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) || err != nil && tt.grow != nil && !errors.Is(err, tt.grow) {
				t.Errorf("err = %v, want %q", err, tt.err)
			}
			if want := tt.tell; (grown == 1) != want {
				t.Errorf("grown %d times", grown)
			}
			if got := said(get()); got != tt.want {
				t.Errorf("the claim says %s, want %s", got, tt.want)
			}
			event := ""
			select {
			case event = <-events.Events:
			default:
			}
			if !strings.HasPrefix(event, tt.event) || (event == "") != (tt.event == "") {
				t.Errorf("event %q, want %q", event, tt.event)
			}
		})
	}
}

// said is what a claim says, for people.
func said(claim *v1.PersistentVolumeClaim) string {
	size := claim.Status.Capacity[storage]
	out := []string{size.String(), string(claim.Status.AllocatedResourceStatuses[storage])}
	for _, c := range claim.Status.Conditions {
		out = append(out, strings.TrimSpace(string(c.Type)+" "+c.Message))
	}
	return strings.Join(out, "|")
}

// The patch is for the version of the claim that was looked at, and for nothing
// that did not change.
func TestPatch(t *testing.T) {
	claim := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c", ResourceVersion: "7", Labels: map[string]string{"a": "b"}}}
	claim.Status.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{storage: v1.PersistentVolumeClaimNodeResizePending}
	got, err := patchOf(claim, begun(claim))
	if want := `{"metadata":{"resourceVersion":"7"},"status":{"allocatedResourceStatuses":{"storage":"NodeResizeInProgress"}}}`; err != nil || string(got) != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
}
