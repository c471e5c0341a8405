// Package podsync does to one pod what its worker asks: makes its containers
// match its specification, stops them, and gives back what they held.
//
// It reads the pod, the status that the worker hands it, and the objects that
// the pod refers to. It writes to the runtime, to the pod's folder and cgroup,
// to the volume manager, events, and the pod's status. What to do is decided by
// the pure function plan; apply does it.
//
// Calls for different pods may be concurrent; calls for one pod may not, which
// is what package podworker promises. Every call returns soon after its context
// is cancelled and undoes nothing.
package podsync

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/allocation"
	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podfiles"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
	"github.com/holdfast-dev/holdfast/internal/kubelet/reason"
)

// runtime is the container runtime. Stopping or removing what is gone is no
// error, and stopping returns when the thing has stopped.
type runtime interface {
	sandboxes
	containers
	images
}

type sandboxes interface {
	RunSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (id string, err error)
	StopSandbox(ctx context.Context, id string) error
	RemoveSandbox(ctx context.Context, id string) error
	Inspect(ctx context.Context, uid types.UID) (*observed.Status, error)
}

type containers interface {
	CreateContainer(ctx context.Context, sandboxID string, config *runtimeapi.ContainerConfig, sandbox *runtimeapi.PodSandboxConfig) (id string, err error)
	StartContainer(ctx context.Context, id string) error
	StopContainer(ctx context.Context, id string, grace time.Duration) error
	RemoveContainer(ctx context.Context, id string) error
	ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (stdout, stderr []byte, exitCode int32, err error)
	resizable
}

type resizable interface {
	// UpdateResources changes what a running container may use.
	UpdateResources(ctx context.Context, id string, resources *runtimeapi.LinuxContainerResources) error
	// MemoryUsage returns how many bytes a running container uses.
	MemoryUsage(ctx context.Context, id string) (uint64, error)
}

type images interface {
	// Image returns nil without an error if the image is not there.
	Image(ctx context.Context, ref string) (*runtimeapi.Image, error)
	Pull(ctx context.Context, ref string, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (imageRef string, err error)
}

// volumes mounts and unmounts a pod's volumes.
type volumes interface {
	// WaitForMount returns when all volumes of the pod are ready. If ctx ends
	// first, the error says what is missing.
	WaitForMount(ctx context.Context, pod *v1.Pod) error
	// Paths returns where the pod's volumes lie, by their names.
	Paths(uid types.UID) map[string]string
	// ReadOnly reports whether a volume is read-only whatever its mounts say.
	ReadOnly(uid types.UID, volume string) bool
	// Devices returns the pod's block volumes, by their names.
	Devices(uid types.UID) map[string]podvolumes.Device
	// SubPath returns a path that is, and stays, the part of a mounted volume that
	// is asked for, whatever links the volume holds. It makes a missing folder.
	SubPath(ctx context.Context, part podvolumes.SubPath) (path string, err error)
	// Unmount returns when no volume of the pod and no part of one is mounted any
	// more.
	Unmount(ctx context.Context, uid types.UID) error
}

// statuses takes what was observed of a pod, makes it the pod's status, and
// sees to it that the API learns of it. waits is by container name.
type statuses interface {
	Report(pod *v1.Pod, status *observed.Status, waits map[string]reason.Wait) v1.PodStatus
	// SetProgress says, for the next Report, which resize is being done, nil: none.
	SetProgress(uid types.UID, progress *allocation.Progress)
}

// cgroups makes and removes pods' cgroups.
type cgroups interface {
	// Ensure returns the pod's cgroup as the runtime names it, with the pod's limits.
	Ensure(pod *v1.Pod) (parent string, err error)
	// End removes the cgroups of a pod whose containers are gone, with what still runs there.
	End(ctx context.Context, uid types.UID) error
}

// objects reads what pods refer to. A missing object is an error that
// apierrors.IsNotFound knows.
type objects interface {
	GetConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error)
	GetSecret(ctx context.Context, namespace, name string) (*v1.Secret, error)
	GetRuntimeClass(ctx context.Context, name string) (*nodev1.RuntimeClass, error)
}

// users gives pods user IDs of their own. A pod's folder keeps them.
type users interface {
	Of(ctx context.Context, uid types.UID) (podfiles.UserIDs, error)
}

// folders keeps a pod's own files on the disk.
type folders interface {
	hostFiles
	logFiles
	// ReadIn reads a regular file below the folder dir, of at most limit bytes,
	// whatever links lie there. A missing one is fs.ErrNotExist.
	ReadIn(dir, name string, limit int64) ([]byte, error)
}

type hostFiles interface {
	// Make makes the pod's folder.
	Make(uid types.UID) error
	NodeHosts() ([]byte, error)
	WriteHosts(uid types.UID, content []byte) (path string, err error)
	// TerminationLog makes an empty file that any user may write.
	TerminationLog(uid types.UID, container string, attempt int32) (path string, err error)
}

type logFiles interface {
	// MakeLogs makes a container's log folder; container may be empty.
	MakeLogs(namespace, name string, uid types.UID, container string) error
	// LastAttempt returns the highest attempt that has a log, or false.
	LastAttempt(namespace, name string, uid types.UID, container string) (int32, bool)
	// RemoveLog removes one container's log with its rotated parts.
	RemoveLog(path string) error
	// RemoveLogs removes the pod's log folder.
	RemoveLogs(namespace, name string, uid types.UID) error
}

// probes probes the containers of pods.
type probes interface {
	results
	// AddPod starts a pod's probes, or looks again at those that go on.
	AddPod(pod *v1.Pod)
	// Terminate ends the probes that could have a container killed.
	Terminate(uid types.UID)
	RemovePod(uid types.UID)
}

// results says what the probes of a container found. known is false before the
// first result.
type results interface {
	Liveness(containerID string) (healthy, known bool)
	Startup(containerID string) (healthy, known bool)
}

// hostPorts knows who else has ports of the host.
type hostPorts interface {
	// Check returns an error if the pods of another node on this machine have one
	// of the ports. listeners says who of the host's processes listens on one.
	Check(ctx context.Context, ports []*runtimeapi.PortMapping) (listeners []string, err error)
	// Confirm returns an error if somebody else got one of the ports while the
	// sandbox was made.
	Confirm(ctx context.Context, sandbox string, ports []*runtimeapi.PortMapping) error
}

// machineDevices knows which devices of the machine containers have.
type machineDevices interface {
	// Container returns what a container's devices bring into it. It is called
	// before each start.
	Container(ctx context.Context, pod *v1.Pod, container *v1.Container) (podfiles.Given, error)
}

// noDevices is a machine without any.
type noDevices struct{}

func (noDevices) Container(context.Context, *v1.Pod, *v1.Container) (podfiles.Given, error) {
	return podfiles.Given{}, nil
}

// doer sends the HTTP requests of lifecycle hooks.
type doer interface {
	Do(req *http.Request) (*http.Response, error)
}

// Config holds what a Syncer needs. All fields up to Users are required.
type Config struct {
	Log      *slog.Logger
	Recorder record.EventRecorder
	Runtime  runtime
	Volumes  volumes
	Statuses statuses
	Cgroups  cgroups
	Objects  objects
	Folders  folders
	Users    users

	// Node returns what the node offers now. It is called for each start.
	Node func() *podfiles.Node
	// NetworkReady returns why pods that have a network of their own cannot
	// start yet. Nil: they can.
	NetworkReady func() error
	// Offline reports whether a pod runs as an earlier agent kept it, without the
	// API: an image that it ran with may serve though it cannot be pulled now. Nil:
	// none does.
	Offline func(uid types.UID) bool
	// Services returns the services that pods of a namespace may see as
	// variables. Nil: only the API server's.
	Services func(ctx context.Context, namespace string) ([]*v1.Service, error)
	// ImageCredentials returns the node's own pull secrets, which are tried after
	// a pod's. What it returns beside an error is used. Nil: there are none.
	ImageCredentials func() ([]*v1.Secret, error)
	// Providers are asked for credentials of images after the node's own. Nil:
	// there are none.
	Providers providers
	// Records keep who may use which image. Nil: every pod may use every image
	// that is there, unless Pulls.Verify says that none may.
	Records records
	// Pulls says how images are pulled.
	Pulls Pulls
	// Probes may be nil: no container has probes.
	Probes probes
	// HostPorts may be nil: no port of the host is anybody else's.
	HostPorts hostPorts
	// Devices may be nil: the machine has none to give.
	Devices machineDevices
	// HTTP sends the requests of lifecycle hooks. Default: a client without
	// proxy, which checks no certificate, as upstream's.
	HTTP doer
	// Metrics takes those of images. Nil: nobody does.
	Metrics prometheus.Registerer

	MountNotice time.Duration // when waiting for volumes becomes an event; default 2 s
	MountWait   time.Duration // when waiting for volumes, to come or to go, becomes a failure; default 2 min 3 s, as upstream's
	ResizeRetry time.Duration // pause before a resize that failed is tried again; default 10 s
	ConfigRetry time.Duration // pause before a container that misses an object is tried again; default 1 s
	OrphanGrace time.Duration // grace period of a pod that only the runtime knows, where its containers note none; default 30 s

	CrashBackoff    time.Duration // first pause before a crashed container starts again, doubled each time; default 10 s, or the longest if that is shorter
	MaxCrashBackoff time.Duration // longest such pause; default 5 min
	PullBackoff     time.Duration // first pause after a failed pull, doubled each time; default 10 s
	MaxPullBackoff  time.Duration // longest such pause; default 5 min
}

func (c Config) withDefaults() Config {
	if c.NetworkReady == nil {
		c.NetworkReady = func() error { return nil }
	}
	if c.Offline == nil {
		c.Offline = func(types.UID) bool { return false }
	}
	if c.Services == nil {
		c.Services = func(context.Context, string) ([]*v1.Service, error) { return nil, nil }
	}
	if c.ImageCredentials == nil {
		c.ImageCredentials = func() ([]*v1.Secret, error) { return nil, nil }
	}
	if c.Providers == nil {
		c.Providers = noProviders{}
	}
	if c.Records == nil {
		c.Records = noRecords{}
	}
	c.Pulls.MaxParallel = cmp.Or(c.Pulls.MaxParallel, 1)
	c.Pulls.QPS = cmp.Or(c.Pulls.QPS, 5)
	c.Pulls.Burst = cmp.Or(c.Pulls.Burst, 10)
	if c.Probes == nil {
		c.Probes = noProbes{}
	}
	if c.HostPorts == nil {
		c.HostPorts = freePorts{}
	}
	if c.Devices == nil {
		c.Devices = noDevices{}
	}
	if c.HTTP == nil {
		c.HTTP = hookClient()
	}
	c.MountNotice = cmp.Or(c.MountNotice, 2*time.Second)
	c.MountWait = cmp.Or(c.MountWait, 2*time.Minute+3*time.Second)
	c.ResizeRetry = cmp.Or(c.ResizeRetry, 10*time.Second)
	c.ConfigRetry = cmp.Or(c.ConfigRetry, time.Second)
	c.OrphanGrace = cmp.Or(c.OrphanGrace, 30*time.Second)
	c.CrashBackoff = cmp.Or(c.CrashBackoff, 10*time.Second)
	c.MaxCrashBackoff = cmp.Or(c.MaxCrashBackoff, 5*time.Minute)
	c.PullBackoff = cmp.Or(c.PullBackoff, 10*time.Second)
	c.MaxPullBackoff = cmp.Or(c.MaxPullBackoff, 5*time.Minute)
	return c
}

// crashReset is how long a container has to run until its crashes are forgotten,
// as upstream's.
const crashReset = 10 * time.Minute

// noProbes is the absence of probes.
type noProbes struct{}

func (noProbes) AddPod(*v1.Pod)                        {}
func (noProbes) Terminate(types.UID)                   {}
func (noProbes) RemovePod(types.UID)                   {}
func (noProbes) Liveness(string) (healthy, known bool) { return false, false }
func (noProbes) Startup(string) (healthy, known bool)  { return false, false }

// freePorts is a host whose ports are all free.
type freePorts struct{}

func (freePorts) Check(context.Context, []*runtimeapi.PortMapping) ([]string, error) {
	return nil, nil
}
func (freePorts) Confirm(context.Context, string, []*runtimeapi.PortMapping) error { return nil }

// A Syncer makes the steps of pods' lives.
type Syncer struct {
	cfg    Config
	log    *slog.Logger
	events events
	puller *puller
	starts *startMetrics
	crash  *backoff

	mu struct {
		sync.Mutex
		pods map[types.UID]*memory
	}
}

// memory is what a Syncer remembers of a pod between two steps. It is lost with
// the process, which costs at most one restart without pause.
type memory struct {
	waits   map[string]reason.Wait // by container: why it does not run
	retryAt time.Time              // when to look again though nothing happens; zero: never
	hooked  map[string]bool        // container IDs whose preStop hook has run

	allocated *v1.Pod                                        // of the last step
	progress  *allocation.Progress                           // of a resize that is not done yet
	told      *allocation.Progress                           // the one that was reported
	sizes     map[string]*runtimeapi.LinuxContainerResources // by container ID: what it was given by this process
}

// New returns a Syncer.
func New(cfg Config) *Syncer {
	cfg = cfg.withDefaults()
	s := &Syncer{
		cfg:    cfg,
		log:    cfg.Log,
		events: events{cfg.Recorder},
		crash:  newBackoff(cfg.CrashBackoff, cfg.MaxCrashBackoff, crashReset),
	}
	s.starts = newStartMetrics(cfg.Metrics)
	s.puller = newPuller(cfg, s.events, s.starts)
	s.mu.pods = map[types.UID]*memory{}
	return s
}

// RetryAt returns when a pod has to be looked at again though nothing happens,
// such as at the end of a back-off, or false.
func (s *Syncer) RetryAt(uid types.UID) (time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.mu.pods[uid]
	if m == nil || m.retryAt.IsZero() {
		return time.Time{}, false
	}
	return m.retryAt, true
}

// waits returns why a pod's containers do not run, as of the last step.
func (s *Syncer) waits(uid types.UID) map[string]reason.Wait {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.mu.pods[uid]; m != nil {
		return m.waits // replaced as a whole, never changed
	}
	return nil
}

// remember keeps what a step found out, for the next.
func (s *Syncer) remember(uid types.UID, waits map[string]reason.Wait, retryAt time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.memoryLocked(uid)
	m.waits, m.retryAt = waits, retryAt
}

// firstHook reports whether a container's preStop hook has not been run yet,
// and remembers that it has. A step that is made again, because the grace
// period got shorter, does not run it twice.
func (s *Syncer) firstHook(uid types.UID, containerID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.memoryLocked(uid)
	if m.hooked[containerID] {
		return false
	}
	if m.hooked == nil {
		m.hooked = map[string]bool{}
	}
	m.hooked[containerID] = true
	return true
}

func (s *Syncer) memoryLocked(uid types.UID) *memory {
	m := s.mu.pods[uid]
	if m == nil {
		m = &memory{}
		s.mu.pods[uid] = m
	}
	return m
}

func (s *Syncer) forget(pod types.UID) {
	s.mu.Lock()
	delete(s.mu.pods, pod)
	s.mu.Unlock()
	s.crash.forget(pod)
	s.puller.forget(pod)
	s.cfg.Probes.RemovePod(pod)
}
