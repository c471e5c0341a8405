package nodestatus

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/nodeaddress"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errDown = errors.New("connection refused")

// fakeAPI holds one Node and one Lease as an API server would.
type fakeAPI struct {
	mu   sync.Mutex
	down bool
	// mayNotCreate refuses to create nodes.
	mayNotCreate bool

	node   *v1.Node
	lease  *coordinationv1.Lease
	calls  map[string]int // by verb and kind
	events []string
	serial int
}

func (f *fakeAPI) enter(call string) (func(), error) {
	f.mu.Lock()
	if f.calls == nil {
		f.calls = map[string]int{}
	}
	f.calls[call]++
	if f.down {
		f.mu.Unlock()
		return nil, errDown
	}
	return f.mu.Unlock, nil
}

func (f *fakeAPI) Get(_ context.Context, name string, _ metav1.GetOptions) (*v1.Node, error) {
	leave, err := f.enter("get node")
	if err != nil {
		return nil, err
	}
	defer leave()
	if f.node == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "nodes"}, name)
	}
	return f.node.DeepCopy(), nil
}

func (f *fakeAPI) Create(_ context.Context, node *v1.Node, _ metav1.CreateOptions) (*v1.Node, error) {
	leave, err := f.enter("create node")
	if err != nil {
		return nil, err
	}
	defer leave()
	if f.mayNotCreate {
		return nil, apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, node.Name, errors.New("not yours"))
	}
	if f.node != nil {
		return nil, apierrors.NewAlreadyExists(schema.GroupResource{Resource: "nodes"}, node.Name)
	}
	f.serial++
	f.node = node.DeepCopy()
	f.node.UID = types.UID(fmt.Sprintf("node-%d", f.serial))
	return f.node.DeepCopy(), nil
}

func (f *fakeAPI) Patch(_ context.Context, name string, kind types.PatchType, data []byte, _ metav1.PatchOptions, subresources ...string) (*v1.Node, error) {
	call := "patch node"
	if len(subresources) > 0 {
		call += " " + subresources[0]
	}
	leave, err := f.enter(call)
	if err != nil {
		return nil, err
	}
	defer leave()
	if f.node == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "nodes"}, name)
	}
	if kind != types.StrategicMergePatchType {
		return nil, apierrors.NewBadRequest("want a strategic merge patch")
	}
	before, err := json.Marshal(f.node)
	if err != nil {
		return nil, err
	}
	after, err := strategicpatch.StrategicMergePatch(before, data, v1.Node{})
	if err != nil {
		return nil, err
	}
	next := &v1.Node{}
	if err := json.Unmarshal(after, next); err != nil {
		return nil, err
	}
	if next.UID != f.node.UID {
		return nil, apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, name, errors.New("uid"))
	}
	f.node = next
	return next.DeepCopy(), nil
}

func (f *fakeAPI) Eventf(_ apiruntime.Object, _, reason, _ string, _ ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events = append(f.events, reason)
}

// set changes the API's state from outside.
func (f *fakeAPI) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fakeAPI) current() *v1.Node {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.node.DeepCopy()
}

func (f *fakeAPI) count(call string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[call]
}

func (f *fakeAPI) told() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.events, " ")
}

// fakeLeases is the Lease side of the same API.
type fakeLeases struct{ *fakeAPI }

func (f fakeLeases) Get(_ context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	leave, err := f.enter("get lease")
	if err != nil {
		return nil, err
	}
	defer leave()
	if f.lease == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "leases"}, name)
	}
	return f.lease.DeepCopy(), nil
}

func (f fakeLeases) Create(_ context.Context, lease *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	leave, err := f.enter("create lease")
	if err != nil {
		return nil, err
	}
	defer leave()
	f.lease = lease.DeepCopy()
	return lease, nil
}

func (f fakeLeases) Update(_ context.Context, lease *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	leave, err := f.enter("update lease")
	if err != nil {
		return nil, err
	}
	defer leave()
	if f.lease == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "leases"}, lease.Name)
	}
	f.lease = lease.DeepCopy()
	return lease, nil
}

// fakeRuntime answers what it is told to.
type fakeRuntime struct {
	mu      sync.Mutex
	err     error
	hang    bool
	network bool
	images  []*runtimeapi.Image
	cidrs   []string // as told
}

func (f *fakeRuntime) Images(context.Context) ([]*runtimeapi.Image, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.images, f.err
}

func (f *fakeRuntime) SetPodCIDR(_ context.Context, cidrs string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cidrs = append(f.cidrs, cidrs)
	return f.err
}

func (f *fakeRuntime) told() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.cidrs)
}

func (f *fakeRuntime) set(err error, hang, network bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err, f.hang, f.network = err, hang, network
}

func (f *fakeRuntime) Version(context.Context) (*runtimeapi.VersionResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &runtimeapi.VersionResponse{RuntimeName: "containerd", RuntimeVersion: "2.2.1"}, f.err
}

func (f *fakeRuntime) Status(ctx context.Context) (*runtimeapi.StatusResponse, error) {
	f.mu.Lock()
	err, hang, network := f.err, f.hang, f.network
	f.mu.Unlock()
	if hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	return &runtimeapi.StatusResponse{
		Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
			{Type: runtimeapi.RuntimeReady, Status: true},
			{Type: runtimeapi.NetworkReady, Status: network, Reason: "NetworkPluginNotReady", Message: "no cni"},
		}},
		RuntimeHandlers: []*runtimeapi.RuntimeHandler{{Name: "runc", Features: &runtimeapi.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: true}}},
	}, nil
}

// fakeMachine is a machine that can get low on something.
type fakeMachine struct {
	mu   sync.Mutex
	low  []v1.NodeConditionType
	boot string // default: b
	err  error
}

func (f *fakeMachine) set(boot string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.boot, f.err = boot, err
}

func (f *fakeMachine) Machine() (v1.ResourceList, v1.NodeSystemInfo, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return nil, v1.NodeSystemInfo{}, f.err
	}
	return v1.ResourceList{
		v1.ResourceCPU:              resource.MustParse("2"),
		v1.ResourceMemory:           resource.MustParse("1Gi"),
		v1.ResourceEphemeralStorage: resource.MustParse("1000"),
	}, v1.NodeSystemInfo{KernelVersion: "6.1", BootID: cmp.Or(f.boot, "b")}, nil
}

func (f *fakeMachine) pressure() []v1.NodeConditionType {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.low
}

func (f *fakeMachine) setPressure(low ...v1.NodeConditionType) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.low = low
}

// withheld keeps 100 MiB of memory and a tenth of the disk.
func withheld(capacity v1.ResourceList) v1.ResourceList {
	return v1.ResourceList{
		v1.ResourceMemory:           resource.MustParse("100Mi"),
		v1.ResourceEphemeralStorage: *resource.NewQuantity(capacity.StorageEphemeral().Value()/10, resource.BinarySI),
	}
}

// rig is a Reporter among fakes.
type rig struct {
	api     *fakeAPI
	runtime *fakeRuntime
	machine *fakeMachine
	cfg     Config
	jitter  func() float64
}

func newRig() *rig {
	api := &fakeAPI{}
	r := &rig{api: api, runtime: &fakeRuntime{network: true}, machine: &fakeMachine{}, jitter: func() float64 { return 0.5 }}
	r.cfg = Config{
		Node: "n1", Nodes: api, Leases: fakeLeases{api}, Runtime: r.runtime, Machine: r.machine, Events: api,
		Log: slog.New(slog.DiscardHandler), Addresses: nodeaddress.Fixed("n1", netip.MustParseAddr("10.0.0.1")),
		KubeletPort: 10250, Version: "v1.37.2", Pressure: r.machine.pressure, Withheld: withheld,
	}
	return r
}

// start runs the reporter until the test ends.
func (r *rig) start(t *testing.T) *Reporter {
	reporter := New(r.cfg)
	reporter.jitter = r.jitter
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := reporter.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	return reporter
}

// after lets fake time pass.
func after(d time.Duration) { time.Sleep(d) }
