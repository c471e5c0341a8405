package claimexpand

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func storage(size string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
}

// claimOf is a bound claim that wants and has so much.
func claimOf(want, has string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "claim"},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "pv", Resources: corev1.VolumeResourceRequirements{Requests: storage(want)}},
		Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: storage(has)},
	}
}

func told(c *corev1.PersistentVolumeClaim, size string, status corev1.ClaimResourceStatus) *corev1.PersistentVolumeClaim {
	c.Status.AllocatedResources = storage(size)
	c.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{corev1.ResourceStorage: status}
	return c
}

func local(capacity string) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
	pv.Spec.Capacity = storage(capacity)
	pv.Spec.Local = &corev1.LocalVolumeSource{Path: "/dev/sdb"}
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: "c", UID: "claim"}
	return pv
}

func TestExpansion(t *testing.T) {
	other := local("1Gi")
	other.Spec.ClaimRef.UID = "other"
	csi := local("1Gi")
	csi.Spec.Local, csi.Spec.CSI = nil, &corev1.CSIPersistentVolumeSource{}
	lost := claimOf("2Gi", "1Gi")
	lost.Status.Phase = corev1.ClaimLost
	tests := []struct {
		name  string
		claim *corev1.PersistentVolumeClaim
		pv    *corev1.PersistentVolume
		want  string
	}{
		{"as large as wanted", claimOf("1Gi", "1Gi"), local("1Gi"), ""},
		{"larger than wanted", claimOf("1Gi", "2Gi"), local("2Gi"), ""},
		{"wants more", claimOf("2Gi", "1Gi"), local("1Gi"), "2Gi"},
		{"wants more, and the volume was told", claimOf("2Gi", "1Gi"), local("2Gi"), "2Gi"},
		{"the node was told", told(claimOf("2Gi", "1Gi"), "2Gi", corev1.PersistentVolumeClaimNodeResizePending), local("2Gi"), ""},
		{"the node was told of less", told(claimOf("3Gi", "1Gi"), "2Gi", corev1.PersistentVolumeClaimNodeResizePending), local("2Gi"), "3Gi"},
		{"the node is at work", told(claimOf("3Gi", "1Gi"), "2Gi", corev1.PersistentVolumeClaimNodeResizeInProgress), local("2Gi"), ""},
		{"the node cannot", told(claimOf("2Gi", "1Gi"), "2Gi", corev1.PersistentVolumeClaimNodeResizeInfeasible), local("2Gi"), ""},
		{"the node could not, and less is wanted", told(claimOf("1536Mi", "1Gi"), "2Gi", corev1.PersistentVolumeClaimNodeResizeInfeasible), local("2Gi"), "1536Mi"},
		{"another's volume", claimOf("2Gi", "1Gi"), other, ""},
		{"a driver's volume", claimOf("2Gi", "1Gi"), csi, ""},
		{"not bound", lost, local("1Gi"), ""},
	}
	for _, tt := range tests {
		size, ok := expansion(tt.claim, tt.pv)
		if want := tt.want != ""; ok != want || ok && size.Cmp(resource.MustParse(tt.want)) != 0 {
			t.Errorf("%s: %s, %v, want %q", tt.name, size.String(), ok, tt.want)
		}
	}
}

// The volume has its new capacity before the claim says that it is the node's
// turn, and what was said of an earlier try is gone.
func TestExpand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		claim := told(claimOf("1536Mi", "1Gi"), "2Gi", corev1.PersistentVolumeClaimNodeResizeInfeasible)
		claim.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: corev1.PersistentVolumeClaimNodeResizeError, Status: corev1.ConditionTrue}, {Type: "Mine", Status: corev1.ConditionTrue}}
		client := fake.NewClientset(claim, local("2Gi"))
		factory := informers.NewSharedInformerFactory(client, 0)
		c := New(Config{Client: client, Informers: factory, Log: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		factory.Start(ctx.Done())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		time.Sleep(time.Second) // informers look only so often whether they are in step
		synctest.Wait()

		pv, err := client.CoreV1().PersistentVolumes().Get(ctx, "pv", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := pv.Spec.Capacity[corev1.ResourceStorage]; got.String() != "1536Mi" {
			t.Errorf("the volume's capacity is %s", got.String())
		}
		got, err := client.CoreV1().PersistentVolumeClaims("ns").Get(ctx, "c", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		want := told(claimOf("1536Mi", "1Gi"), "1536Mi", corev1.PersistentVolumeClaimNodeResizePending)
		want.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: "Mine", Status: corev1.ConditionTrue}, {
			Type: corev1.PersistentVolumeClaimFileSystemResizePending, Status: corev1.ConditionTrue,
			Message: "the node grows the filesystem when a pod uses the volume",
		}}
		if diff := cmp.Diff(got.Status, want.Status, cmpopts.IgnoreTypes(metav1.Time{})); diff != "" {
			t.Errorf("status: got -, want +:\n%s", diff)
		}
		var changes []string
		for _, action := range client.Actions() {
			if verb := action.GetVerb(); verb != "list" && verb != "watch" && verb != "get" {
				changes = append(changes, verb+" "+action.GetResource().Resource)
			}
		}
		if diff := cmp.Diff(slices.Compact(changes), []string{"patch persistentvolumes", "update persistentvolumeclaims"}); diff != "" {
			t.Errorf("changes: got -, want +:\n%s", diff)
		}
		cancel()
		factory.Shutdown()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	})
}
