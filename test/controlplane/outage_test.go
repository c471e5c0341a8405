package controlplane

import (
	"bytes"
	"context"
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// TestOutage: what was written is there after every kind of outage, and the
// control plane goes on with its work.
func TestOutage(t *testing.T) {
	testenv.Need(t, "controlplane")
	c := Start(t, Config{})
	admin := c.Admin()
	maps := admin.CoreV1().ConfigMaps("default")
	kept := func(t *testing.T, name string) {
		t.Helper()
		if _, err := maps.Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			t.Errorf("config map %s after the outage: %v", name, err)
		}
	}
	keep := func(t *testing.T, name string) {
		t.Helper()
		if _, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}

	t.Run("stopped", func(t *testing.T) {
		c := c.In(t)
		keep(t, "stopped")
		c.Stop(APIServer)
		if _, err := maps.Get(t.Context(), "stopped", metav1.GetOptions{}); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("a stopped API server: %v, want a refused connection", err)
		}
		c.Resume(APIServer)
		kept(t, "stopped")
	})
	t.Run("killed with the store", func(t *testing.T) {
		c := c.In(t)
		keep(t, "killed")
		c.Kill(components...)
		c.Resume(components...)
		kept(t, "killed")
	})
	t.Run("frozen", func(t *testing.T) {
		c := c.In(t)
		c.Freeze(APIServer)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := maps.Get(ctx, "killed", metav1.GetOptions{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a frozen API server: %v, want no answer", err)
		}
		c.Thaw(APIServer)
		c.Eventually("the API server answers again", func(ctx context.Context) (bool, error) {
			_, err := maps.Get(ctx, "killed", metav1.GetOptions{})
			return err == nil, err
		})
	})
	t.Run("controllers and scheduler go on", func(t *testing.T) {
		c := c.In(t)
		c.Node("after-1")
		createDeployment(t, admin, "after", 1)
		awaitBound(t, c, admin, "after", 1, "after-1")
	})
}

// TestSameFolder: a control plane that ran in a folder goes on there, with
// its data, its authority and its token.
func TestSameFolder(t *testing.T) {
	testenv.Need(t, "controlplane")
	dir, err := os.MkdirTemp("", "controlplane-") //nolint:usetesting // t.TempDir's path may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	var ca []byte
	var token string
	t.Run("first", func(t *testing.T) {
		c := Start(t, Config{Dir: dir})
		ca, token = c.CA(), c.BootstrapToken()
		if _, err := c.Admin().CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("second", func(t *testing.T) {
		c := Start(t, Config{Dir: dir, Arguments: map[Component][]string{APIServer: {"--max-requests-inflight=50"}}})
		if !bytes.Equal(ca, c.CA()) || token != c.BootstrapToken() {
			t.Error("another authority or another token")
		}
		namespaces := c.Admin().CoreV1().Namespaces()
		if _, err := namespaces.Get(t.Context(), "kept", metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
		if _, err := namespaces.Get(t.Context(), "never", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("a namespace that nobody made: %v", err)
		}
	})
}

// TestEndOfAComponent: a component that ends unasked ends the whole, with the reason.
func TestEndOfAComponent(t *testing.T) {
	program := testenv.ControlPlane(t)
	c, err := New(Config{Dir: t.TempDir(), Program: program, Arguments: map[Component][]string{APIServer: {"--no-such-flag"}}})
	if err != nil {
		t.Fatal(err)
	}
	err = c.Run(t.Context())
	if err == nil || !bytes.Contains([]byte(err.Error()), []byte("unknown flag: --no-such-flag")) {
		t.Errorf("got %v, want the API server's own words", err)
	}
	for _, name := range components {
		if c.process(name) != nil {
			t.Errorf("%s still runs", name)
		}
	}
}
