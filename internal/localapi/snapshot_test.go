package localapi

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// What a snapshot holds is there again, with its identity, in a store that was
// built from it, and who watched the former one is told to begin anew.
func TestSnapshot(t *testing.T) {
	ctx := t.Context()
	made := t.TempDir()
	first, err := New(testConfig(made, testLog))
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := first.AdminKubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Snapshot(new(bytes.Buffer)); !errors.Is(err, ErrNoStore) {
		t.Errorf("before it runs: %v, want ErrNoStore", err)
	}
	stop := runServer(t, first)
	client := clientFor(t, first.AdminConfig())
	want := createConfigMap(t, client, "kept")
	var taken bytes.Buffer
	if err := first.Snapshot(&taken); err != nil {
		t.Fatal(err)
	}
	createConfigMap(t, client, "later")
	stop()

	dir := t.TempDir()
	snapshot := filepath.Join(dir, "snapshot")
	if err := os.WriteFile(snapshot, taken.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := BuildStore(ctx, filepath.Join(dir, "etcd"), snapshot, time.Now(), testLog); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(dir, "pki"), os.DirFS(filepath.Join(made, "pki"))); err != nil {
		t.Fatal(err)
	}
	cfg := testConfig(dir, testLog)
	cfg.Listen = []string{first.Address()} // the kubeconfig names it
	second, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer runServer(t, second)()
	admin, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	maps := clientFor(t, admin).CoreV1().ConfigMaps("default")
	got, err := maps.Get(ctx, "kept", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got.UID != want.UID || got.ResourceVersion != want.ResourceVersion {
		t.Errorf("got %s at %s, want %s at %s", got.UID, got.ResourceVersion, want.UID, want.ResourceVersion)
	}
	if _, err := maps.Get(ctx, "later", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("what came after the snapshot: %v, want not found", err)
	}
	w, err := maps.Watch(ctx, metav1.ListOptions{ResourceVersion: want.ResourceVersion})
	if err == nil {
		event := <-w.ResultChan()
		w.Stop()
		err = apierrors.FromObject(event.Object)
	}
	if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		t.Errorf("a watch from before: %v, want that it is too old", err)
	}
	changed, err := changeMap(t, maps, "kept", "again")
	if err != nil {
		t.Fatal(err)
	}
	if version, err := strconv.Atoi(changed.ResourceVersion); err != nil || version <= revisionsAhead {
		t.Errorf("version %s, %v; want one above all that anybody has seen", changed.ResourceVersion, err)
	}
}

// The snapshot of a store that was killed has what was acknowledged, which its
// database had not yet.
func TestSnapshotAfterKill(t *testing.T) {
	dir := t.TempDir()
	cmd, client := serveChild(t, dir)
	want := createConfigMap(t, client, "kept")
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err, ok := errors.AsType[*exec.ExitError](cmd.Wait()); !ok {
		t.Fatal(err)
	}
	var taken bytes.Buffer
	if err := SnapshotStore(t.Context(), filepath.Join(dir, "etcd"), testLog, &taken); err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(taken.Bytes(), []byte(want.UID)) {
		t.Error("it lacks what was acknowledged")
	}
	if err := SnapshotStore(t.Context(), filepath.Join(dir, "nothing"), testLog, &taken); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no store: %v", err)
	}
}

func TestBuildStoreRefusesDamage(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "snapshot", "garbage")
	if err := BuildStore(t.Context(), filepath.Join(dir, "etcd"), filepath.Join(dir, "snapshot"), time.Now(), testLog); !errors.Is(err, ErrDamagedStore) {
		t.Errorf("got %v, want ErrDamagedStore", err)
	}
}

// TestOlderStore starts from a store as each version that must be read wrote
// it. testdata/format-N.tar.gz is the root folder of a node that was stopped.
func TestOlderStore(t *testing.T) {
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "tar", "-C", dir, "-xzf", filepath.Join("testdata", "format-1.tar.gz")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s, err := New(testConfig(dir, testLog))
	if err != nil {
		t.Fatal(err)
	}
	defer runServer(t, s)()
	client := clientFor(t, s.AdminConfig())
	got, err := client.CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{})
	if err != nil || got.UID != goldenUID {
		t.Errorf("got %v, %v; want %s", got.UID, err, goldenUID)
	}
	if secret, err := client.CoreV1().Secrets("default").Get(t.Context(), "kept", metav1.GetOptions{}); err != nil || string(secret.Data["k"]) != "v" {
		t.Errorf("the Secret: %v, %v", secret.Data, err)
	}
	createConfigMap(t, client, "new")
}

// goldenUID is the UID of the ConfigMap default/kept of testdata/format-1.tar.gz.
const goldenUID = "9dfc44e7-814a-44b5-9102-8d9f7ca60b94"

// runServer runs s until stop, and waits until it is ready.
func runServer(t *testing.T, s *Server) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	select {
	case <-s.Ready():
	case err := <-done:
		cancel()
		t.Fatal("ended early: ", err)
	}
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func createConfigMap(t *testing.T, client kubernetes.Interface, name string) *corev1.ConfigMap {
	t.Helper()
	c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"k": "v"}}
	made, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), c, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}
