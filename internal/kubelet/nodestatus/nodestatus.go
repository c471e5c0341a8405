// Package nodestatus keeps the API's picture of this machine true: it
// registers the Node, reports its status and renews its lease.
//
// It reads the runtime's own report, the machine and what it is low on; it writes
// one Node and one Lease. Two goroutines run: one looks and reports, one renews
// the lease, so that a runtime that hangs makes the node not ready but never
// makes it look dead. What the last look saw may be asked from any goroutine.
//
//	start ─► look at the runtime ─► register ─► report Ready=False ─► … ─► Ready
//	            ▲ every 0.2 s until ready, then every 5 s
//	report: when something changed, and every 5 minutes
package nodestatus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/nodeaddress"
	"github.com/holdfast-dev/holdfast/internal/wake"
)

// runtime is the container runtime. Calls end with their context.
type runtime interface {
	Version(ctx context.Context) (*runtimeapi.VersionResponse, error)
	Status(ctx context.Context) (*runtimeapi.StatusResponse, error)
	Images(ctx context.Context) ([]*runtimeapi.Image, error)
	// SetPodCIDR tells the runtime which networks, separated by commas, the cluster
	// gave the node's pods.
	SetPodCIDR(ctx context.Context, cidrs string) error
}

// addresses are the node's; a nodeaddress.Finder is one.
type addresses interface {
	// Find returns what to report of a node that is reported with have now.
	Find(ctx context.Context, have []v1.NodeAddress) ([]v1.NodeAddress, error)
	// Provided is the value of the annotation by which a cloud's controller learns
	// which addresses the node was told to have; empty: none.
	Provided() string
}

// machine is what we run on. Its answers are the caller's to keep.
type machine interface {
	Machine() (v1.ResourceList, v1.NodeSystemInfo, error)
}

// nodes is the part of the API's Node client that is used.
type nodes interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*v1.Node, error)
	Create(ctx context.Context, node *v1.Node, opts metav1.CreateOptions) (*v1.Node, error)
	Patch(ctx context.Context, name string, kind types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string) (*v1.Node, error)
}

// leases is the part of the API's Lease client, in the namespace
// kube-node-lease, that is used.
type leases interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*coordinationv1.Lease, error)
	Create(ctx context.Context, lease *coordinationv1.Lease, opts metav1.CreateOptions) (*coordinationv1.Lease, error)
	Update(ctx context.Context, lease *coordinationv1.Lease, opts metav1.UpdateOptions) (*coordinationv1.Lease, error)
}

// events records events; a record.EventRecorder is one.
type events interface {
	Eventf(object apiruntime.Object, eventType, reason, format string, args ...any)
}

// A Registration says how the Node object is made. The zero value makes one of this
// machine alone.
type Registration struct {
	// Never waits for a Node that somebody else makes, and leaves its labels and
	// annotations alone (registerNode: false).
	Never bool
	// Labels come on top of hostname, OS and architecture. One that exists already is
	// given those that nodelabels.Reconciled says.
	Labels map[string]string
	Taints []v1.Taint // put on a node that we create, never on one that exists
	// ProviderID names the machine for its cloud, as kind://…; for a node that we create.
	ProviderID string
	// ExternalCloud taints a node that we create until its cloud's controller has
	// completed it.
	ExternalCloud bool
}

// A Check is a part of the kubelet that the node's readiness depends on.
type Check struct {
	Name string       // as shown in the condition: "PLEG" reads `PLEG is not healthy: …`; empty: the error alone is
	Err  func() error // nil: healthy; called from one goroutine, must not block
}

// Config says which node this is and what it is made of. All fields are
// needed but those with a default.
type Config struct {
	Node    string // the Node's name
	Nodes   nodes
	Leases  leases
	Runtime runtime
	Machine machine
	Events  events
	Log     *slog.Logger

	Hostname    string // label of that name; default: Node
	Addresses   addresses
	KubeletPort int    // of the kubelet's HTTPS API
	Version     string // reported as kubeletVersion: the Kubernetes version we behave as

	Registration Registration

	MaxPods     int64           // default: 110
	PodsPerCore int64           // fewer than MaxPods on a machine with few CPUs; default: no such limit
	Reserved    v1.ResourceList // kept from pods, on top of what is withheld; default: nothing
	MaxImages   int             // how many images are reported, the largest first; negative: all; default: 50
	Features    []string        // that the node declares, in order; default: none
	Checks      []Check         // default: none

	// Devices returns what device plugins offer, by name, and the names of those
	// that are gone. It must not block. Default: none.
	Devices func() (capacity, allocatable v1.ResourceList, removed []string)

	// Pressure returns which of MemoryPressure, DiskPressure and PIDPressure the
	// node has. It must not block. Default: none.
	Pressure func() []v1.NodeConditionType
	// Withheld returns what of a capacity is kept from pods so that pressure does
	// not come of what they ask for. Default: nothing.
	Withheld func(capacity v1.ResourceList) v1.ResourceList
	// VolumesInUse returns the volumes that nobody may detach from the node, in
	// order. It must not block. Default: none.
	VolumesInUse func() []v1.UniqueVolumeName
	// PressureTaints keeps, by taints, new pods from a node that has pressure. It
	// is for a node without a node lifecycle controller, whose work that is.
	PressureTaints bool

	LookPeriod      time.Duration // between looks at the runtime; default: 5s
	StartPeriod     time.Duration // the same until the node is ready; default: 200ms
	CallTimeout     time.Duration // of one call to the runtime or the API; default: 10s
	StatusFrequency time.Duration // between comparisons with the API's Node; default: 10s
	ReportFrequency time.Duration // between reports of an unchanged status; default: 5m
	LeaseDuration   time.Duration // after which others take the node for dead; renewed at a quarter; default: 40s
}

func (c Config) withDefaults() Config {
	c.LookPeriod = cmp.Or(c.LookPeriod, 5*time.Second)
	c.StartPeriod = cmp.Or(c.StartPeriod, 200*time.Millisecond)
	c.CallTimeout = cmp.Or(c.CallTimeout, 10*time.Second)
	c.StatusFrequency = cmp.Or(c.StatusFrequency, 10*time.Second)
	c.ReportFrequency = cmp.Or(c.ReportFrequency, 5*time.Minute)
	c.LeaseDuration = cmp.Or(c.LeaseDuration, 40*time.Second)
	c.MaxPods = cmp.Or(c.MaxPods, 110)
	c.MaxImages = cmp.Or(c.MaxImages, 50)
	c.Hostname = cmp.Or(c.Hostname, c.Node)
	if c.Pressure == nil {
		c.Pressure = func() []v1.NodeConditionType { return nil }
	}
	if c.VolumesInUse == nil {
		c.VolumesInUse = func() []v1.UniqueVolumeName { return nil }
	}
	if c.Devices == nil {
		c.Devices = func() (capacity, allocatable v1.ResourceList, removed []string) { return nil, nil, nil }
	}
	if c.Withheld == nil {
		c.Withheld = func(v1.ResourceList) v1.ResourceList { return nil }
	}
	return c
}

// A Reporter keeps one Node up to date.
type Reporter struct {
	cfg   Config
	log   *slog.Logger
	poke  wake.Bell     // wakes the reporting goroutine
	ready chan struct{} // closed when the node was first reported ready

	registered chan struct{} // closed when the API has the node

	mu struct {
		sync.Mutex
		look look
		node *v1.Node // as last read or written; never changed in place

		answered time.Time        // when the API last answered; zero: never
		found    []v1.NodeAddress // last
	}

	jitter func() float64 // 0 up to 1

	// Of the goroutine that registers and then reports alone:
	reportedAt    time.Time
	delay         time.Duration // on top of ReportFrequency, until the next report
	lastErr       string        // of the last report, to log changes only
	lastHalfErr   string        // of what a report went on without
	lastCIDRErr   string        // of what the runtime was told of pods' networks
	images        []v1.ContainerImage
	imagesAt      time.Time // when they were asked for
	podCIDRs      string    // that the runtime was told
	unschedulable bool      // as last told
	rebootTold    bool
}

// New prepares a Reporter; Run starts it.
func New(cfg Config) *Reporter {
	r := &Reporter{
		cfg:   cfg.withDefaults(),
		log:   cfg.Log.With("node", cfg.Node),
		poke:  wake.NewBell(),
		ready: make(chan struct{}),

		jitter:     rand.Float64,
		registered: make(chan struct{}),
	}
	r.mu.look = look{runtimeErr: errRuntimeDown, networkErr: errNetworkUnknown}
	return r
}

// Ready is closed once the API has the node as ready for the first time.
func (r *Reporter) Ready() <-chan struct{} { return r.ready }

// Registered is closed once the API has the node, ready or not: Node is not
// nil then.
func (r *Reporter) Registered() <-chan struct{} { return r.registered }

// RuntimeErr says why the runtime cannot run pods, or nil.
func (r *Reporter) RuntimeErr() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.look.runtimeErr
}

// NetworkErr says why pods with a network of their own cannot start, or nil.
func (r *Reporter) NetworkErr() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.look.networkErr
}

// Node returns the Node as the API last had it, or nil before registration.
// The caller must not change it.
func (r *Reporter) Node() *v1.Node {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.node
}

// HostIPs returns the node's addresses as pods see them, the primary first, as the API
// has them or, before that, as they were found. None: there are none yet.
func (r *Reporter) HostIPs() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.node != nil {
		if ips := nodeaddress.HostIPs(r.mu.node.Status.Addresses); ips != nil {
			return ips
		}
	}
	return nodeaddress.HostIPs(r.mu.found)
}

// Answered returns when the API last answered about the Node; zero: not yet. It
// is asked every few seconds.
func (r *Reporter) Answered() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.answered
}

// Poke asks for a look and a report now. It never blocks.
func (r *Reporter) Poke() { r.poke.Ring() }

// Run registers the node, reports and renews until ctx is done. The Node and
// its lease stay: pods outlive the agent.
func (r *Reporter) Run(ctx context.Context) error {
	r.cfg.Events.Eventf(r.reference(), v1.EventTypeNormal, "Starting", "Starting kubelet.")
	r.lookAtRuntime(ctx)
	if err := r.register(ctx); err != nil {
		return err
	}
	close(r.registered)

	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { r.renew(ctx) })
	r.reportLoop(ctx)
	return nil
}

func (r *Reporter) reportLoop(ctx context.Context) {
	wasReady := r.report(ctx)
	comparedAt := time.Now()
	for {
		period := r.cfg.LookPeriod
		if !wasReady {
			period = r.cfg.StartPeriod
		}
		timer := time.NewTimer(period)
		poked := false
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-r.poke:
			timer.Stop()
			poked = true
		case <-timer.C:
		}
		changed := r.lookAtRuntime(ctx)
		if changed || poked || r.readinessDiffers() || time.Since(comparedAt) >= r.cfg.StatusFrequency {
			wasReady = r.report(ctx) || wasReady // slow looks for good, once it was ready
			comparedAt = time.Now()
		}
	}
}

// readinessDiffers reports whether a check has changed its mind since the last
// report.
func (r *Reporter) readinessDiffers() bool {
	node := r.Node()
	return node == nil || isReady(node) != (r.notReady(nil) == nil)
}

// report brings the API's Node up to date and returns whether it is ready.
func (r *Reporter) report(ctx context.Context) bool {
	ready, err := r.tryReport(ctx)
	if ctx.Err() != nil {
		return false
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != r.lastErr {
		r.lastErr = text
		if err != nil {
			r.log.Warn("Node status was not reported, will retry", "err", err)
		} else {
			r.log.Info("Node status is reported again")
		}
	}
	if ready {
		select {
		case <-r.ready:
		default:
			close(r.ready)
		}
	}
	return ready
}

func (r *Reporter) tryReport(ctx context.Context) (bool, error) {
	callCtx, cancel := context.WithTimeout(ctx, r.cfg.CallTimeout)
	defer cancel()
	// Version 0: any state the API has at hand will do, as for the upstream kubelet.
	node, err := r.cfg.Nodes.Get(callCtx, r.cfg.Node, metav1.GetOptions{ResourceVersion: "0"})
	if isNotFound(err) && !r.cfg.Registration.Never {
		r.log.Warn("Node object is gone, registering again")
		return false, r.tryRegister(callCtx)
	} else if err != nil {
		return false, fmt.Errorf("get node: %w", err)
	}
	if node, err = r.mend(callCtx, node); err != nil {
		return false, err
	}
	if node, err = r.taint(callCtx, node); err != nil {
		return false, err
	}
	r.tellPodCIDR(callCtx, node)
	wanted := node.DeepCopy()
	told := r.fill(callCtx, wanted)
	changed := !sameStatus(&node.Status, &wanted.Status)
	if !changed && time.Since(r.reportedAt) < r.cfg.ReportFrequency+r.delay {
		r.keep(node)
		return isReady(node), nil
	}
	data, err := statusPatch(node, wanted)
	if err != nil {
		return false, fmt.Errorf("compute the status patch: %w", err)
	}
	node, err = r.cfg.Nodes.Patch(callCtx, r.cfg.Node, types.StrategicMergePatchType, data, metav1.PatchOptions{}, "status")
	if err != nil {
		return false, fmt.Errorf("patch node status: %w", err)
	}
	// After a change, or a start, which many nodes may have had at once, the next
	// report is up to a half earlier or later; from then on it is regular.
	spread := changed || r.reportedAt.IsZero()
	r.reportedAt, r.delay = time.Now(), 0
	if spread {
		r.delay = time.Duration((r.jitter() - 0.5) * float64(r.cfg.ReportFrequency))
	}
	r.keep(node)
	r.tell(node, told)
	return isReady(node), nil
}

// tell tells, by events, what changed.
func (r *Reporter) tell(node *v1.Node, reasons []string) {
	if node.Spec.Unschedulable != r.unschedulable {
		r.unschedulable = node.Spec.Unschedulable
		reason := "NodeSchedulable"
		if r.unschedulable {
			reason = "NodeNotSchedulable"
		}
		reasons = append(reasons, reason)
	}
	for _, reason := range reasons {
		r.log.Info("Node condition changed", "reason", reason)
		r.cfg.Events.Eventf(r.reference(), v1.EventTypeNormal, reason, "Node %s status is now: %s", r.cfg.Node, reason)
	}
}

// tellPodCIDR tells the runtime the networks of the node's pods when the cluster has
// given others: a runtime may make its network's configuration of them.
func (r *Reporter) tellPodCIDR(ctx context.Context, node *v1.Node) {
	cidrs := strings.Join(node.Spec.PodCIDRs, ",")
	if cidrs == "" || cidrs == r.podCIDRs {
		return
	}
	err := r.cfg.Runtime.SetPodCIDR(ctx, cidrs)
	if err == nil {
		r.podCIDRs = cidrs
	}
	if text := textOf(err); text != r.lastCIDRErr {
		r.lastCIDRErr = text
		r.log.Info("Runtime was told the networks of the node's pods; what it refuses is tried again", "err", text)
	}
}

func (r *Reporter) keep(node *v1.Node) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.node, r.mu.answered = node, time.Now()
}

// imagesPeriod is how old the list of images may be, as upstream's.
const imagesPeriod = 30 * time.Second

// fill writes this machine into node, and returns the reasons of conditions that
// changed. What cannot be found out stays as it was there.
func (r *Reporter) fill(ctx context.Context, node *v1.Node) []string {
	r.mu.Lock()
	seen := r.mu.look
	r.mu.Unlock()
	f := facts{now: metav1.Now(), pressure: r.cfg.Pressure(), inUse: r.cfg.VolumesInUse()}
	has, info, errMachine := r.cfg.Machine.Machine()
	if errMachine != nil {
		errMachine = fmt.Errorf("read the machine: %w", errMachine)
		info = node.Status.NodeInfo
	}
	f.has, f.info = has, info
	f.info.ContainerRuntimeVersion, f.info.KubeletVersion = seen.version, r.cfg.Version
	f.handlers, f.features = seen.handlers, seen.features
	f.deviceCapacity, f.deviceAllocatable, f.deviceRemoved = r.cfg.Devices()

	addresses, errAddresses := r.cfg.Addresses.Find(ctx, node.Status.Addresses)
	if errAddresses != nil {
		addresses = node.Status.Addresses
	}
	f.addresses = addresses
	r.mu.Lock()
	r.mu.found = addresses
	r.mu.Unlock()

	var errImages error
	f.images, errImages = r.listImages(ctx)
	f.notReady = r.notReady(errMachine)
	if before := node.Status.NodeInfo.BootID; before != "" && before != f.info.BootID && !r.rebootTold {
		r.rebootTold = true
		r.cfg.Events.Eventf(r.reference(), v1.EventTypeWarning, "Rebooted", "Node %s has been rebooted, boot id: %s", r.cfg.Node, f.info.BootID)
	}
	if text := textOf(errors.Join(errMachine, errAddresses, errImages)); text != r.lastHalfErr && ctx.Err() == nil {
		r.lastHalfErr = text
		r.log.Warn("Not all of the node's status is known", "err", cmp.Or(text, "it is again"))
	}
	return apply(&node.Status, r.cfg, f)
}

// listImages returns the images that are reported. While the runtime does not answer
// they are the last ones.
func (r *Reporter) listImages(ctx context.Context) ([]v1.ContainerImage, error) {
	if time.Since(r.imagesAt) < imagesPeriod || r.RuntimeErr() != nil {
		return r.images, nil
	}
	list, err := r.cfg.Runtime.Images(ctx)
	if err != nil {
		return r.images, err
	}
	r.images, r.imagesAt = largest(list, r.cfg.MaxImages), time.Now()
	return r.images, nil
}

// notReady returns all that keeps the node from being ready, in upstream's order.
func (r *Reporter) notReady(machine error) []error {
	var runtime, others []error
	for _, check := range r.cfg.Checks {
		switch err := check.Err(); {
		case err == nil:
		case check.Name != "":
			runtime = append(runtime, fmt.Errorf("%s is not healthy: %w", check.Name, err))
		default:
			others = append(others, err)
		}
	}
	var errs []error
	for _, err := range slices.Concat([]error{r.RuntimeErr()}, runtime, []error{r.NetworkErr()}, others, []error{machine}) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// reference names the Node in events. Its UID is its name, as the upstream
// kubelet has it, so that events of one node go together over re-registration.
func (r *Reporter) reference() *v1.ObjectReference {
	return &v1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: r.cfg.Node, UID: types.UID(r.cfg.Node)}
}

var (
	errRuntimeDown    = errors.New("container runtime is down")
	errNetworkUnknown = errors.New("container runtime network not ready: the runtime has not reported yet")
)
