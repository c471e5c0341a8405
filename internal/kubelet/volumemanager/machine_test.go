package volumemanager_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/mount-utils"

	"github.com/holdfast-dev/holdfast/internal/kubelet/objects"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
	"github.com/holdfast-dev/holdfast/internal/kubelet/volumemanager"
	"github.com/holdfast-dev/holdfast/internal/kubelet/volumeplugin"
	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// node is the manager on this machine's disk, with an API server in memory.
type node struct {
	*volumemanager.Manager
	t    *testing.T
	dir  string
	api  *fake.Clientset
	stop func()
}

func newNode(t *testing.T) *node {
	testenv.Need(t, "root")
	return newNodeIn(t, t.TempDir())
}

// newNodeIn is a node whose folder is there already. What it mounts is
// unmounted when the test ends.
func newNodeIn(t *testing.T, dir string) *node {
	n := &node{t: t, dir: dir, api: fake.NewClientset()}
	t.Cleanup(func() {
		for _, point := range n.mounts() {
			_ = unix.Unmount(point, unix.MNT_DETACH)
		}
	})
	n.start()
	t.Cleanup(func() { n.stop() })
	return n
}

func (n *node) start() {
	log := slog.New(slog.DiscardHandler)
	store := objects.New(objects.Config{Client: n.api, Log: log})
	host := volumeplugin.New(volumeplugin.Config{Dir: n.dir, Log: log})
	n.Manager = volumemanager.New(volumemanager.Config{Log: log, Mounts: host, SubPaths: host, Folders: host, Holder: store, Objects: store})
	store.Subscribe(n.Poke)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- store.Run(ctx) }()
	go func() { done <- n.Run(ctx) }()
	n.stop = func() {
		n.stop = func() {}
		cancel()
		for range 2 {
			if err := <-done; err != nil {
				n.t.Error(err)
			}
		}
	}
}

// mounts returns what is mounted below the node's folder, last first.
func (n *node) mounts() []string {
	n.t.Helper()
	infos, err := mount.ParseMountInfo("/proc/self/mountinfo")
	if err != nil {
		n.t.Fatal(err)
	}
	var points []string
	for _, info := range infos {
		if strings.HasPrefix(info.MountPoint, n.dir+"/") {
			points = append([]string{info.MountPoint}, points...)
		}
	}
	return points
}

// putClaim makes a claim bound to a local PersistentVolume of the same name.
func (n *node) putClaim(name, path string) {
	n.t.Helper()
	claim := &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), ResourceVersion: "1"},
		Spec:       v1.PersistentVolumeClaimSpec{VolumeName: name}, Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound},
	}
	pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("pv-" + name), ResourceVersion: "1"}}
	pv.Spec.Local, pv.Spec.ClaimRef = &v1.LocalVolumeSource{Path: path}, &v1.ObjectReference{Namespace: "ns", Name: name, UID: claim.UID}
	if _, err := n.api.CoreV1().PersistentVolumes().Create(n.t.Context(), pv, metav1.CreateOptions{}); err != nil {
		n.t.Fatal(err)
	}
	if _, err := n.api.CoreV1().PersistentVolumeClaims("ns").Create(n.t.Context(), claim, metav1.CreateOptions{}); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) unmount(uid types.UID) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), time.Minute)
	defer cancel()
	if err := n.Unmount(ctx, uid); err != nil {
		n.t.Fatal(err)
	}
}

// sweep has everything of pods that are gone removed, and waits for it.
func (n *node) sweep() {
	n.t.Helper()
	n.until("every pod's folder is gone", func() error {
		if err := n.Sweep(n.t.Context(), func(types.UID) bool { return false }); err != nil {
			return err
		}
		left, err := os.ReadDir(filepath.Join(n.dir, "pods"))
		if len(left) > 0 {
			err = fmt.Errorf("left: %v", left)
		}
		return err
	})
	if left := n.mounts(); len(left) != 0 {
		n.t.Errorf("left mounted: %v", left)
	}
}

// until waits until check returns nil.
func (n *node) until(what string, check func() error) {
	n.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			n.t.Fatalf("not so within a minute: %s: %v; faults: %v", what, err, n.Faults())
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (n *node) mount(pod *v1.Pod) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), 2*time.Minute)
	defer cancel()
	if err := n.WaitForMount(ctx, pod); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) put(name, value string) {
	n.t.Helper()
	cm := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), ResourceVersion: value}, Data: map[string]string{"key": value}}
	secret := &v1.Secret{ObjectMeta: cm.ObjectMeta, Data: map[string][]byte{"key": []byte(value)}}
	if _, err := n.api.CoreV1().ConfigMaps("ns").Update(n.t.Context(), cm, metav1.UpdateOptions{}); err != nil {
		if _, err := n.api.CoreV1().ConfigMaps("ns").Create(n.t.Context(), cm, metav1.CreateOptions{}); err != nil {
			n.t.Fatal(err)
		}
	}
	if _, err := n.api.CoreV1().Secrets("ns").Update(n.t.Context(), secret, metav1.UpdateOptions{}); err != nil {
		if _, err := n.api.CoreV1().Secrets("ns").Create(n.t.Context(), secret, metav1.CreateOptions{}); err != nil {
			n.t.Fatal(err)
		}
	}
}

// eventually waits until a file holds want.
func (n *node) eventually(path, want string) {
	n.t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		data, err := os.ReadFile(path)
		if string(data) == want {
			return
		}
		if time.Now().After(deadline) {
			n.t.Fatalf("%s holds %q, %v, want %q", path, data, err, want)
		}
		time.Sleep(time.Millisecond)
	}
}

// claimed is a pod with one volume by a claim.
func claimed(uid types.UID, claim string) *v1.Pod {
	source := v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: string(uid), UID: uid}, Spec: v1.PodSpec{Volumes: []v1.Volume{{Name: "data", VolumeSource: source}}}}
}

// fourVolumes is a pod with a volume of each usual kind.
func fourVolumes(uid types.UID) *v1.Pod {
	object := v1.LocalObjectReference{Name: "settings"}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: string(uid), UID: uid},
		Spec: v1.PodSpec{Volumes: []v1.Volume{
			{Name: "disk", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
			{Name: "memory", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}},
			{Name: "config", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: object}}},
			{Name: "secret", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "settings"}}},
		}},
	}
}

func TestOnThisMachine(t *testing.T) {
	n := newNode(t)
	n.put("settings", "1")
	pod := fourVolumes("a")
	n.mount(pod)
	paths := n.Paths("a")
	n.eventually(filepath.Join(paths["config"], "key"), "1")
	n.eventually(filepath.Join(paths["secret"], "key"), "1")
	for _, volume := range []string{"disk", "memory"} {
		if err := os.WriteFile(filepath.Join(paths[volume], "mine"), []byte(volume), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	part, err := n.SubPath(t.Context(), podvolumes.SubPath{PodUID: "a", Container: "app", Volume: "disk", Path: "mine"})
	if err != nil {
		t.Fatal(err)
	}
	before := n.mounts()
	if len(before) != 3 { // memory, secret and the part
		t.Fatalf("mounts: %v", before)
	}

	// The agent restarts; meanwhile the objects change, and a pod ends.
	n.stop()
	n.put("settings", "2")
	orphan := filepath.Join(n.dir, "pods/orphan/volumes/kubernetes.io~secret/s")
	if err := os.MkdirAll(orphan, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", orphan, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	n.start()
	n.mount(pod)
	n.eventually(filepath.Join(paths["secret"], "key"), "2")
	n.eventually(filepath.Join(paths["disk"], "mine"), "disk")
	n.eventually(filepath.Join(paths["memory"], "mine"), "memory")
	n.eventually(part, "disk")
	if err := n.Sweep(t.Context(), func(uid types.UID) bool { return uid == "a" }); err != nil {
		t.Fatal(err)
	}
	if err := n.Unmount(t.Context(), "orphan"); err != nil { // waits for the sweep
		t.Fatal(err)
	}
	if after := n.mounts(); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("mounts: %v, were %v", after, before)
	}
	if err := n.Unmount(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if left := n.mounts(); len(left) != 0 {
		t.Errorf("left mounted: %v", left)
	}
	if left, err := os.ReadDir(filepath.Join(n.dir, "pods/a/volumes/kubernetes.io~secret")); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestUpdateOnThisMachine(t *testing.T) {
	n := newNode(t)
	n.put("settings", "0")
	pod := fourVolumes("a")
	n.mount(pod)
	for _, value := range []string{"1", "2", "3"} {
		n.put("settings", value)
		n.eventually(filepath.Join(n.Paths("a")["config"], "key"), value)
		n.eventually(filepath.Join(n.Paths("a")["secret"], "key"), value)
	}
	if err := n.Unmount(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
}

// BenchmarkMount mounts and unmounts what a full node has: 110 pods of 4 volumes.
func BenchmarkMount(b *testing.B) {
	testenv.Need(b, "root")
	dir := b.TempDir()
	api := fake.NewClientset()
	log := slog.New(slog.DiscardHandler)
	meta := metav1.ObjectMeta{Namespace: "ns", Name: "settings", UID: "1", ResourceVersion: "1"}
	if _, err := api.CoreV1().ConfigMaps("ns").Create(b.Context(), &v1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"key": "1"}}, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	if _, err := api.CoreV1().Secrets("ns").Create(b.Context(), &v1.Secret{ObjectMeta: meta, Data: map[string][]byte{"key": {1}}}, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	store := objects.New(objects.Config{Client: api, Log: log})
	host := volumeplugin.New(volumeplugin.Config{Dir: dir, Log: log})
	m := volumemanager.New(volumemanager.Config{Log: log, Mounts: host, SubPaths: host, Folders: host, Holder: store, Objects: store})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- store.Run(ctx) }()
	go func() { done <- m.Run(ctx) }()
	each := func(do func(uid types.UID) error) {
		errs := make(chan error)
		for i := range 110 {
			go func() { errs <- do(types.UID(fmt.Sprint("pod-", i))) }()
		}
		for range 110 {
			if err := <-errs; err != nil {
				b.Error(err)
			}
		}
	}
	for b.Loop() {
		each(func(uid types.UID) error { return m.WaitForMount(ctx, fourVolumes(uid)) })
		each(func(uid types.UID) error { return m.Unmount(ctx, uid) })
	}
	cancel()
	for range 2 {
		if err := <-done; err != nil {
			b.Error(err)
		}
	}
}
