package joined_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet"
	"github.com/holdfast-dev/holdfast/internal/kubelet/checkpoint"
	"github.com/holdfast-dev/holdfast/internal/kubelet/checkpointfile"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
	"github.com/holdfast-dev/holdfast/internal/testenv"
	"github.com/holdfast-dev/holdfast/test/controlplane"
	"github.com/holdfast-dev/holdfast/test/csidriver"
	"github.com/holdfast-dev/holdfast/test/joined"
)

// TestCSI has pods of a real cluster use volumes of CSI drivers: its controllers bind
// claims, and attach and detach.
func TestCSI(t *testing.T) {
	testenv.Need(t, "root")
	n := &offline{joined.Start(t, joined.Config{Options: joined.Options{Checkpoint: &kubelet.Checkpoint{KeyFile: keyFile(t, 1)}}}), t}
	far, near := n.csiDriver("far.example.com", true), n.csiDriver("near.example.com", false)
	t.Run("a volume is attached first and detached last", func(t *testing.T) { n.in(t).attaches(far) })
	// A node may get claims and their volumes, and not list them, which is tried. An API
	// server that begins refuses what it does not know yet: this comes before that.
	checkRights(t, slices.DeleteFunc(n.Requests(""), func(r joined.Request) bool {
		return r.Verb == "list" && strings.Contains(r.URI, "/persistentvolume")
	}))
	t.Run("a volume that is never attached is mounted without the API", func(t *testing.T) { n.in(t).mountsOffline(near) })
	for _, d := range []*csidriver.Driver{far, near} {
		if broken := d.Broken(); len(broken) > 0 {
			t.Errorf("rules were broken: %q", broken)
		}
	}
}

// csiDriver starts a driver with a volume, and a claim for that, and waits until the
// API knows that the node has it.
func (n *offline) csiDriver(name string, attach bool) *csidriver.Driver {
	n.t.Helper()
	d := csidriver.New(csidriver.Config{Name: name, Dir: n.t.TempDir(), Mount: true})
	d.Serve(n.t)
	ctx, claim := n.t.Context(), claimOf(name)
	_, err := n.Admin.StorageV1().CSIDrivers().Create(ctx, &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.CSIDriverSpec{AttachRequired: &attach},
	}, metav1.CreateOptions{})
	n.must(err)
	size := v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}
	once := []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}
	_, err = n.Admin.CoreV1().PersistentVolumes().Create(ctx, &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: claim},
		Spec: v1.PersistentVolumeSpec{
			Capacity: size, AccessModes: once, ClaimRef: &v1.ObjectReference{Namespace: metav1.NamespaceDefault, Name: claim},
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: name, VolumeHandle: "handle"}},
		},
	}, metav1.CreateOptions{})
	n.must(err)
	_, err = n.Admin.CoreV1().PersistentVolumeClaims(metav1.NamespaceDefault).Create(ctx, &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: claim},
		Spec: v1.PersistentVolumeClaimSpec{
			AccessModes: once, StorageClassName: new(""), VolumeName: claim, Resources: v1.VolumeResourceRequirements{Requests: size},
		},
	}, metav1.CreateOptions{})
	n.must(err)
	d.Announce(n.t, filepath.Join(n.Instance.Path("kubelet"), "plugins_registry"))
	n.Eventually("the API knows driver "+name, func(ctx context.Context) (bool, error) {
		node, err := n.Admin.StorageV1().CSINodes().Get(ctx, n.Name, metav1.GetOptions{})
		return err == nil && slices.ContainsFunc(node.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == name }), err
	})
	return d
}

// claimOf names the claim, and the PersistentVolume, of a driver.
func claimOf(driver string) string {
	name, _, _ := strings.Cut(driver, ".")
	return name
}

// csiPod returns a pod with the volume of a driver.
func csiPod(driver string) *v1.Pod {
	p := joined.Pod(claimOf(driver))
	p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "disk", MountPath: "/disk"}}
	p.Spec.Volumes = []v1.Volume{{Name: "disk", VolumeSource: v1.VolumeSource{
		PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claimOf(driver)},
	}}}
	return p
}

// attaches plays the driver's own attacher beside the cluster's controller.
func (n *offline) attaches(far *csidriver.Driver) {
	n.t.Helper()
	attachments := n.Admin.StorageV1().VolumeAttachments()
	name := podvolumes.CSIAttachment("handle", "far.example.com", n.Name)
	patch := func(text string, subresources ...string) {
		n.t.Helper()
		_, err := attachments.Patch(n.t.Context(), name, types.MergePatchType, []byte(text), metav1.PatchOptions{}, subresources...)
		n.must(err)
	}
	pod := n.Create(csiPod("far.example.com"))
	n.Eventually("the cluster wants the volume attached", func(ctx context.Context) (bool, error) {
		_, err := attachments.Get(ctx, name, metav1.GetOptions{})
		return err == nil, err
	})
	patch(`{"metadata":{"finalizers":["far.example.com/attached"]}}`)
	n.Eventually("the node says that it uses the volume", func(ctx context.Context) (bool, error) {
		node, err := n.Admin.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
		return err == nil && slices.Contains(node.Status.VolumesInUse, podvolumes.CSIUniqueName("far.example.com", "handle")), err
	})
	if calls := far.Calls("NodeStageVolume", "NodePublishVolume"); len(calls) > 0 {
		n.t.Errorf("the driver was called before the volume was attached: %v", calls)
	}
	patch(`{"status":{"attached":true,"attachmentMetadata":{"device":"/dev/sdz"}}}`, "status")
	n.AwaitPodReady(pod.Name)
	if calls := far.Calls("NodeStageVolume"); len(calls) != 1 || !strings.Contains(fmt.Sprint(calls[0].Request), "/dev/sdz") {
		n.t.Errorf("the driver is not told what its controller said: %v", calls)
	}

	// The next agent takes up where this one ends.
	n.KillAgent()
	n.Delete(pod.Name)
	n.StartAgent()
	n.Eventually("the cluster wants the volume detached", func(ctx context.Context) (bool, error) {
		attachment, err := attachments.Get(ctx, name, metav1.GetOptions{})
		if err == nil && attachment.DeletionTimestamp == nil {
			err = errors.New("it is attached")
		}
		return err == nil, err
	})
	if left := far.Left(); len(left) > 0 {
		n.t.Errorf("it is to be detached while the driver has it: %q", left)
	}
	patch(`{"metadata":{"finalizers":null}}`)
	n.Eventually("nothing is attached", func(ctx context.Context) (bool, error) {
		_, err := attachments.Get(ctx, name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), err
	})
	n.AwaitGone(pod.Name, pod.UID)
}

// awaitKeptObjects waits until objects are on the disk. It only reads: to list the
// folder takes the file away that the agent writes at that moment, and it tries again.
func (n *offline) awaitKeptObjects(keys ...checkpointfile.Key) {
	n.t.Helper()
	folder := checkpoint.New(checkpoint.Config{Dir: n.dir(), KeyFile: n.Options.Checkpoint.KeyFile})
	n.Eventually("what the pod uses is kept", func(context.Context) (bool, error) {
		var errs []error
		for _, key := range keys {
			_, err := folder.Read(key)
			errs = append(errs, err)
		}
		err := errors.Join(errs...)
		return err == nil, err
	})
}

// mountsOffline boots the node in a place without an uplink: the driver's object is
// among what was kept.
func (n *offline) mountsOffline(near *csidriver.Driver) {
	n.t.Helper()
	pod := n.Run(csiPod("near.example.com"))
	n.awaitKept(pod)
	n.awaitKeptObjects(
		checkpointfile.Key{Kind: checkpointfile.ConfigMap, Namespace: pod.Namespace, Name: "kube-root-ca.crt"},
		checkpointfile.Key{Kind: checkpointfile.Claim, Namespace: pod.Namespace, Name: "near"},
		checkpointfile.Key{Kind: checkpointfile.PersistentVolume, Name: "near"},
		checkpointfile.Key{Kind: checkpointfile.CSIDriver, Name: "near.example.com"},
	)
	n.Reboot()
	n.Stop(controlplane.APIServer)
	near.Forget()
	n.StartAgent()
	n.awaitReport("the pod runs with its volume", readies("near ready"))
	if calls := near.Calls("NodePublishVolume"); len(calls) != 1 {
		n.t.Errorf("the volume was published %d times", len(calls))
	}
	n.Resume(controlplane.APIServer)
	n.AwaitPodReady(pod.Name)
	n.Delete(pod.Name)
	n.AwaitGone(pod.Name, pod.UID)
	if left := near.Left(); len(left) > 0 {
		n.t.Errorf("left with the driver: %q", left)
	}
}
