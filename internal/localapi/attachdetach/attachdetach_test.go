package attachdetach

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	driver = "disks.example.com"
	inUse  = corev1.UniqueVolumeName("kubernetes.io/csi/disks.example.com^h")
)

func node(use ...corev1.UniqueVolumeName) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{VolumesInUse: use}}
}

func pod(change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "p"}, Spec: corev1.PodSpec{NodeName: "n1"}}
	p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}}
	if change != nil {
		change(p)
	}
	return p
}

func claim() *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "c"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv"}}
}

func volume() *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
	pv.Spec.CSI, pv.Spec.ClaimRef = &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: "h"}, &corev1.ObjectReference{UID: "c"}
	return pv
}

func csiDriver(attach bool) *storagev1.CSIDriver {
	return &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: driver}, Spec: storagev1.CSIDriverSpec{AttachRequired: &attach}}
}

func attachment(change func(*storagev1.VolumeAttachment)) *storagev1.VolumeAttachment {
	a := attachmentOf(volume(), "n1")
	if change != nil {
		change(a)
	}
	return a
}

func worldOf(objects ...runtime.Object) world {
	w := newWorld(nil, nil, nil, nil, nil, nil)
	for _, object := range objects {
		switch o := object.(type) {
		case *corev1.Pod:
			w.pods = append(w.pods, o)
		case *corev1.Node:
			w.nodes[o.Name] = o
		case *corev1.PersistentVolumeClaim:
			w.claims[o.Namespace+"/"+o.Name] = o
		case *corev1.PersistentVolume:
			w.volumes[o.Name] = o
		case *storagev1.CSIDriver:
			w.drivers[o.Name] = o
		case *storagev1.VolumeAttachment:
			w.attachments[o.Name] = o
		}
	}
	return w
}

func TestDecide(t *testing.T) {
	ended := pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
	ephemeral := pod(func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}
	})
	own := claim()
	own.Name, own.OwnerReferences = "p-data", []metav1.OwnerReference{{UID: "p", Controller: new(true)}}
	foreign := claim()
	foreign.Name = "p-data"
	other := volume()
	other.Spec.ClaimRef.UID = "another"
	for _, tt := range []struct {
		name           string
		objects        []runtime.Object
		attach, detach bool
	}{
		{"wanted", []runtime.Object{pod(nil), node(), claim(), volume(), csiDriver(true)}, true, false},
		{"wanted, of a driver that nothing is known of", []runtime.Object{pod(nil), node(), claim(), volume()}, true, false},
		{"attached", []runtime.Object{pod(nil), node(), claim(), volume(), attachment(nil)}, false, false},
		{"never attached", []runtime.Object{pod(nil), node(), claim(), volume(), csiDriver(false)}, false, false},
		{"no node yet", []runtime.Object{pod(func(p *corev1.Pod) { p.Spec.NodeName = "" }), node(), claim(), volume()}, false, false},
		{"ended", []runtime.Object{ended, node(), claim(), volume()}, false, false},
		{"not bound", []runtime.Object{pod(nil), node(), claim(), other}, false, false},
		{"no claim", []runtime.Object{pod(nil), node(), volume()}, false, false},
		{"the pod's own claim", []runtime.Object{ephemeral, node(), own, volume()}, true, false},
		{"a claim that only has its name", []runtime.Object{ephemeral, node(), foreign, volume()}, false, false},
		{"nobody uses it", []runtime.Object{node(), claim(), volume(), attachment(nil)}, false, true},
		{"nobody wants it, and the node uses it", []runtime.Object{node(inUse), claim(), volume(), attachment(nil)}, false, false},
		{"the node uses another", []runtime.Object{node(inUse + "2"), claim(), volume(), attachment(nil)}, false, true},
		{"its pod has ended, and the node uses it", []runtime.Object{ended, node(inUse), claim(), volume(), attachment(nil)}, false, false},
		{"its pod has ended", []runtime.Object{ended, node(), claim(), volume(), attachment(nil)}, false, true},
		{"its volume is gone", []runtime.Object{node(), attachment(nil)}, false, true},
		{"its volume is gone, and the node uses it", []runtime.Object{node(inUse), attachment(nil)}, false, false},
		{"its node is gone", []runtime.Object{claim(), volume(), attachment(nil)}, false, false},
		{"being deleted", []runtime.Object{node(), claim(), volume(), attachment(func(a *storagev1.VolumeAttachment) { a.DeletionTimestamp = &metav1.Time{} })}, false, false},
		{"being deleted, and wanted again", []runtime.Object{pod(nil), node(), claim(), volume(), attachment(func(a *storagev1.VolumeAttachment) { a.DeletionTimestamp = &metav1.Time{} })}, false, false},
		{"somebody else's, of no volume", []runtime.Object{node(), attachment(func(a *storagev1.VolumeAttachment) { a.Spec.Source.PersistentVolumeName = nil })}, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			attach, detach := decide(worldOf(tt.objects...))
			if got := len(attach) == 1; got != tt.attach || len(attach) > 1 {
				t.Errorf("to attach: %v", attach)
			}
			if got := len(detach) == 1; got != tt.detach || len(detach) > 1 {
				t.Errorf("to detach: %v", detach)
			}
			if tt.attach {
				if diff := cmp.Diff(attach[0], attachment(nil)); diff != "" {
					t.Errorf("(-got +want):\n%s", diff)
				}
			}
		})
	}
}

// start runs a controller on an API that has these objects.
func start(t *testing.T, objects ...runtime.Object) *fake.Clientset {
	t.Helper()
	client := fake.NewClientset(objects...)
	factory := informers.NewSharedInformerFactory(client, 0)
	c := New(Config{Client: client, Informers: factory, Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(t.Context())
	factory.Start(ctx.Done())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
		factory.Shutdown()
	})
	return client
}

// want waits until the API has so many attachments.
func want(t *testing.T, client *fake.Clientset, count int) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		list, err := client.StorageV1().VolumeAttachments().List(t.Context(), metav1.ListOptions{})
		if err == nil && len(list.Items) == count {
			return
		}
		select {
		case <-deadline:
			t.Fatal(fmt.Errorf("%d attachments, want %d (%w)", len(list.Items), count, err))
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// The whole way of a volume: nothing is detached while the node says that it
// uses it, though its pod has been deleted by force.
func TestNeverDetachedBelowAPod(t *testing.T) {
	client := start(t, node(), claim(), volume(), csiDriver(true))
	pods, nodes := client.CoreV1().Pods("ns"), client.CoreV1().Nodes()
	if _, err := pods.Create(t.Context(), pod(nil), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	want(t, client, 1)
	if _, err := nodes.UpdateStatus(t.Context(), node(inUse), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := pods.Delete(t.Context(), "p", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	// Another volume comes and goes meanwhile: the controller has seen all of that.
	second, secondClaim, secondPod := volume(), claim(), pod(nil)
	second.Name, second.Spec.CSI.VolumeHandle, second.Spec.ClaimRef.UID = "pv2", "h2", "c2"
	secondClaim.Name, secondClaim.UID, secondClaim.Spec.VolumeName = "c2", "c2", "pv2"
	secondPod.Name, secondPod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "p2", "c2"
	_, err := client.CoreV1().PersistentVolumes().Create(t.Context(), second, metav1.CreateOptions{})
	_, err2 := client.CoreV1().PersistentVolumeClaims("ns").Create(t.Context(), secondClaim, metav1.CreateOptions{})
	_, err3 := pods.Create(t.Context(), secondPod, metav1.CreateOptions{})
	if err := errors.Join(err, err2, err3); err != nil {
		t.Fatal(err)
	}
	want(t, client, 2)
	if err := pods.Delete(t.Context(), "p2", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	want(t, client, 1)
	if _, err := client.StorageV1().VolumeAttachments().Get(t.Context(), attachment(nil).Name, metav1.GetOptions{}); err != nil {
		t.Fatalf("what the node uses was detached: %v", err)
	}
	if _, err := nodes.UpdateStatus(t.Context(), node(), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	want(t, client, 0)
}
