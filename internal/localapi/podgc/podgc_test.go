package podgc

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func testPod(name string, age int64, phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), CreationTimestamp: metav1.Unix(1000-age, 0)},
		Spec:       corev1.PodSpec{NodeName: "node1"},
		Status:     corev1.PodStatus{Phase: phase},
	}
}

func names(pods []*corev1.Pod) []string {
	var out []string
	for _, p := range pods {
		out = append(out, p.Name)
	}
	return out
}

func TestSurplus(t *testing.T) {
	evicted := testPod("evicted", 1, corev1.PodFailed)
	evicted.Status.Reason = "Evicted"
	going := testPod("going", 9, corev1.PodFailed)
	going.DeletionTimestamp = &metav1.Time{}
	pods := []*corev1.Pod{
		testPod("young", 2, corev1.PodSucceeded), testPod("old", 8, corev1.PodFailed), testPod("running", 9, corev1.PodRunning),
		testPod("pending", 9, corev1.PodPending), evicted, going,
	}
	for _, tc := range []struct {
		keep int
		want []string
	}{
		{3, nil},
		{2, []string{"evicted"}},
		{1, []string{"evicted", "old"}},
	} {
		if diff := cmp.Diff(tc.want, names(surplus(pods, tc.keep))); diff != "" {
			t.Errorf("keep %d: -want +got\n%s", tc.keep, diff)
		}
	}
}

// A pod goes once its node was missing in two looks running.
func TestOrphans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := testPod("lost", 1, corev1.PodRunning)
		lost.Spec.NodeName = "node0"
		waiting := testPod("waiting", 1, corev1.PodPending)
		waiting.Spec.NodeName = ""
		client := fake.NewClientset(
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}},
			lost, waiting, testPod("fine", 1, corev1.PodRunning),
		)
		f := informers.NewSharedInformerFactory(client, 0)
		c := New(Config{Client: client, Informers: f, Log: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		f.Start(ctx.Done())
		done := make(chan error)
		go func() { done <- c.Run(ctx) }()

		left := func() []string {
			synctest.Wait()
			list, err := client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var out []string
			for _, p := range list.Items {
				out = append(out, p.Name)
			}
			return out
		}
		time.Sleep(period / 2) // the first look was at the start
		if diff := cmp.Diff([]string{"fine", "lost", "waiting"}, left()); diff != "" {
			t.Error("after one look: -want +got\n" + diff)
		}
		time.Sleep(period)
		if diff := cmp.Diff([]string{"fine", "waiting"}, left()); diff != "" {
			t.Error("after two: -want +got\n" + diff)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		f.Shutdown()
	})
}

// A pod that went by itself is no failure.
func TestDeleteGone(t *testing.T) {
	client := fake.NewClientset()
	c := New(Config{Client: client, Informers: informers.NewSharedInformerFactory(client, 0), Log: slog.New(slog.DiscardHandler)})
	err := client.CoreV1().Pods("default").Delete(t.Context(), "gone", metav1.DeleteOptions{})
	if !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	if err := c.delete(t.Context(), testPod("gone", 1, corev1.PodFailed), "test"); err != nil {
		t.Error(err)
	}
}
