package localapi

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientv1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// smallDisk mounts a small filesystem for a server's store. It returns the
// server's folder.
func smallDisk(t *testing.T, size string) (dir string) {
	t.Helper()
	testenv.Need(t, "root")
	dir = t.TempDir()
	data := filepath.Join(dir, "etcd")
	if err := os.MkdirAll(data, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", data, "tmpfs", 0, "size="+size); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(data, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill takes room on the disk until only free bytes are left; 0: until the
// disk is full to the last page.
func fill(t *testing.T, dir string, free uint64) {
	t.Helper()
	f, err := os.CreateTemp(dir, "filler")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	page := make([]byte, 4096)
	for freeBytes(dir) > free {
		if _, err := f.Write(page); errors.Is(err, unix.ENOSPC) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

func unfill(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "filler*"))
	if err != nil || len(files) == 0 {
		t.Fatal("nothing fills the disk: ", err)
	}
	for _, f := range files {
		if err := os.Remove(f); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFullDiskIsNoDamage(t *testing.T) {
	for _, size := range []string{"3m", "18m"} {
		t.Run(size, func(t *testing.T) { testFullDisk(t, size) })
	}
}

func testFullDisk(t *testing.T, size string) {
	s, err := New(testConfig(smallDisk(t, size), testLog))
	if err != nil {
		t.Fatal(err)
	}
	err = s.Run(t.Context())
	if !errors.Is(err, ErrDiskFull) || errors.Is(err, ErrDamagedStore) || !strings.Contains(err.Error(), "free some space") {
		t.Errorf("got %v, want that the disk is full", err)
	}
}

// A disk that fills while the API serves makes it refuse what it has no room
// for, and nothing else; with room again it goes on by itself.
func TestDiskFills(t *testing.T) {
	dir := smallDisk(t, "160m")
	data := filepath.Join(dir, "etcd")
	s := start(t, func(c *Config) { *c = testConfig(dir, testLog) })
	maps := clientFor(t, s.AdminConfig()).CoreV1().ConfigMaps("default")
	for _, name := range []string{"changed", "deleted", "deleted-last"} {
		createMap(t, maps, name)
	}
	if got := s.Shortage(); got != "" {
		t.Errorf("there is room, and it says %q", got)
	}

	fill(t, data, roomToCreate-1)
	wantFull(t, "create", tryCreate(t, maps, "refused"))
	if _, err := changeMap(t, maps, "changed", "once"); err != nil {
		t.Errorf("a change is refused too early: %v", err)
	}
	if got := s.Shortage(); !strings.Contains(got, "nearly full") {
		t.Errorf("Shortage: got %q", got)
	}
	if err := maps.Delete(t.Context(), "deleted", metav1.DeleteOptions{}); err != nil {
		t.Errorf("a deletion is refused: %v", err)
	}

	fill(t, data, 0)
	_, err := changeMap(t, maps, "changed", "twice")
	wantFull(t, "change", err)
	if err := maps.Delete(t.Context(), "deleted-last", metav1.DeleteOptions{}); err != nil {
		t.Errorf("a deletion is refused: %v", err)
	}
	// The store writes on its own account as well.
	s.store().server.Server.Backend().ForceCommit()
	if got, err := maps.Get(t.Context(), "changed", metav1.GetOptions{}); err != nil || got.Data["k"] != "once" {
		t.Errorf("reading: got %v, %v", got, err)
	}

	unfill(t, data)
	createMap(t, maps, "again")
	if _, err := changeMap(t, maps, "changed", "thrice"); err != nil {
		t.Error(err)
	}
	if got := s.Shortage(); got != "" {
		t.Errorf("there is room again, and it says %q", got)
	}
}

// What goes round the guard ends the server with an error that says what to
// do, and takes neither the process nor what was acknowledged.
func TestDiskFullToTheLast(t *testing.T) {
	dir := smallDisk(t, "128m")
	s, err := New(testConfig(dir, testLog))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Run(t.Context()) }()
	<-s.Ready()
	client := s.store().client()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	fill(t, filepath.Join(dir, "etcd"), 0)
	go func() {
		for ctx.Err() == nil {
			_, _ = client.Put(ctx, "/filler", strings.Repeat("x", 1<<20)) // what Run says is the test
		}
	}()
	err = <-done
	if !errors.Is(err, ErrDiskFull) || !strings.Contains(err.Error(), "nothing that was acknowledged is lost") {
		t.Errorf("got %v", err)
	}
}

func createMap(t *testing.T, maps clientv1.ConfigMapInterface, name string) {
	t.Helper()
	if err := tryCreate(t, maps, name); err != nil {
		t.Fatal(err)
	}
}

func tryCreate(t *testing.T, maps clientv1.ConfigMapInterface, name string) error {
	t.Helper()
	_, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	return err
}

func changeMap(t *testing.T, maps clientv1.ConfigMapInterface, name, value string) (*corev1.ConfigMap, error) {
	t.Helper()
	return maps.Update(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"k": value}}, metav1.UpdateOptions{})
}

func wantFull(t *testing.T, what string, err error) {
	t.Helper()
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || status.ErrStatus.Code != http.StatusInsufficientStorage || status.ErrStatus.Reason != reasonFull ||
		!strings.Contains(status.ErrStatus.Message, "free some space") {
		t.Errorf("%s: got %#v, want 507 and what to do", what, err)
	}
}
