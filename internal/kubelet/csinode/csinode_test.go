package csinode

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/holdfast-dev/holdfast/internal/kubelet/runtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type world struct {
	t      *testing.T
	client *fake.Clientset
	p      *Publisher
	down   atomic.Bool
}

func start(t *testing.T, objects ...runtime.Object) *world {
	t.Helper()
	w := &world{t: t, client: fake.NewClientset(append(objects, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "uid", ResourceVersion: "7"}})...)}
	w.client.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		if w.down.Load() {
			return true, nil, errors.New("no route")
		}
		return false, nil, nil
	})
	registered := make(chan struct{})
	close(registered)
	w.p = New(Config{
		Node: "n1", Nodes: w.client.CoreV1().Nodes(), CSINodes: w.client.StorageV1().CSINodes(), Registered: registered,
		Log: slog.New(slog.DiscardHandler), FirstRetry: time.Millisecond, MaxRetry: 10 * time.Millisecond,
	})
	runtest.Start(t, w.p.Run)
	return w
}

// want waits until the API says this of the node.
func (w *world) want(annotation string, labels map[string]string, drivers ...storagev1.CSINodeDriver) {
	w.t.Helper()
	w.eventually(func() error {
		node, err := w.client.CoreV1().Nodes().Get(w.t.Context(), "n1", metav1.GetOptions{})
		if err != nil {
			return err
		}
		have, err := w.client.StorageV1().CSINodes().Get(w.t.Context(), "n1", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if diff := cmp.Diff(have.Spec.Drivers, append([]storagev1.CSINodeDriver{}, drivers...)); diff != "" {
			return fmt.Errorf("drivers (-got +want):\n%s", diff)
		}
		if owner := have.OwnerReferences; len(owner) != 1 || owner[0].UID != "uid" {
			return fmt.Errorf("owners %v", owner)
		}
		if got := node.Annotations[nodeIDs]; got != annotation {
			return fmt.Errorf("annotation %q, want %q", got, annotation)
		}
		if diff := cmp.Diff(node.Labels, labels); diff != "" {
			return fmt.Errorf("labels (-got +want):\n%s", diff)
		}
		return nil
	})
}

func (w *world) eventually(check func() error) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			w.t.Fatal(err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func TestPublish(t *testing.T) {
	w := start(t)
	w.want("", nil)
	zone := map[string]string{"zone": "z1"}
	a, b := Driver{Name: "a", NodeID: "node-a", Topology: zone, MaxVolumes: 12}, Driver{Name: "b", NodeID: "node-b"}
	inA := storagev1.CSINodeDriver{Name: "a", NodeID: "node-a", TopologyKeys: []string{"zone"}, Allocatable: &storagev1.VolumeNodeResources{Count: new(int32(12))}}
	inB := storagev1.CSINodeDriver{Name: "b", NodeID: "node-b"}
	w.p.Set([]Driver{a, b})
	w.want(`{"a":"node-a","b":"node-b"}`, zone, inA, inB)
	w.down.Store(true)
	w.p.Set([]Driver{b})
	w.eventually(func() error {
		if faults := w.p.Faults(); len(faults) != 1 || faults[0].Object != "CSINode n1" || !strings.Contains(faults[0].Message, "no route") {
			return fmt.Errorf("faults %v", faults)
		}
		return nil
	})
	w.down.Store(false)
	w.want(`{"b":"node-b"}`, zone, inB)
	w.p.Set(nil)
	w.want("", zone)
	w.eventually(func() error {
		if faults := w.p.Faults(); len(faults) != 0 {
			return fmt.Errorf("faults %v", faults)
		}
		return nil
	})
}

// What an earlier run entered stays until its driver goes; what a node of the
// same name entered that is no more goes.
func TestEarlier(t *testing.T) {
	old := func(uid types.UID) *storagev1.CSINode {
		c := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "of-the-object"}}
		c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n1", UID: uid}}
		c.Spec.Drivers = []storagev1.CSINodeDriver{{Name: "old", NodeID: "x"}}
		return c
	}
	t.Run("ours", func(t *testing.T) {
		w := start(t, old("uid"))
		w.p.Set([]Driver{{Name: "b", NodeID: "node-b"}})
		w.want(`{"b":"node-b"}`, nil, storagev1.CSINodeDriver{Name: "old", NodeID: "x"}, storagev1.CSINodeDriver{Name: "b", NodeID: "node-b"})
	})
	t.Run("another's", func(t *testing.T) {
		w := start(t, old("another"))
		w.want("", nil)
	})
}

// What a driver says anew is published, and it is asked as often as it wants.
func TestRefresh(t *testing.T) {
	w := &world{t: t, client: fake.NewClientset(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "uid", ResourceVersion: "7"}})}
	registered := make(chan struct{})
	close(registered)
	var asked atomic.Int64
	w.p = New(Config{
		Node: "n1", Nodes: w.client.CoreV1().Nodes(), CSINodes: w.client.StorageV1().CSINodes(), Registered: registered,
		Log: slog.New(slog.DiscardHandler),
		Refresh: func(context.Context) time.Duration {
			if n := asked.Add(1); n <= 3 {
				w.p.Set([]Driver{{Name: "d", NodeID: "id", MaxVolumes: n}})
				return time.Millisecond
			}
			return time.Hour
		},
	})
	runtest.Start(t, w.p.Run)
	w.want(`{"d":"id"}`, nil, storagev1.CSINodeDriver{Name: "d", NodeID: "id", TopologyKeys: nil, Allocatable: &storagev1.VolumeNodeResources{Count: new(int32(3))}})
	w.eventually(func() error {
		if n := asked.Load(); n != 4 {
			return fmt.Errorf("asked %d times", n)
		}
		return nil
	})
}

func TestCollision(t *testing.T) {
	w := start(t)
	w.p.Set([]Driver{{Name: "a", NodeID: "node-a", Topology: map[string]string{"zone": "z1"}}, {Name: "b", NodeID: "node-b", Topology: map[string]string{"zone": "z2"}}})
	w.want(`{"a":"node-a"}`, map[string]string{"zone": "z1"}, storagev1.CSINodeDriver{Name: "a", NodeID: "node-a", TopologyKeys: []string{"zone"}})
	w.eventually(func() error {
		if faults := w.p.Faults(); len(faults) != 1 || !strings.Contains(faults[0].Message, "CSI driver b says that the node has zone=z2, and its label says z1") {
			return fmt.Errorf("faults %v", faults)
		}
		return nil
	})
}
