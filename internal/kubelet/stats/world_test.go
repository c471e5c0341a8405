package stats

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/holdfast-dev/holdfast/internal/cadvisormetrics"
	"github.com/holdfast-dev/holdfast/internal/cgroupfs"
	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a node with one pod of two containers, one of which is down.
type world struct {
	mu     sync.Mutex // guards the fields below
	broken map[string]error
	hang   chan struct{} // the runtime does not answer before it is closed
	asked  int           // questions to the runtime
	down   bool          // no container runs, and there is no group
	nanos  uint64        // of the pod's processor time
	looked int           // for the runtime's process
	listen int           // the process that listens where the runtime does
	starts int64         // when the runtime's process started
	log    bytes.Buffer
}

func newWorld() *world {
	return &world{broken: map[string]error{}, nanos: 5e9, listen: 55, starts: 1_550_000_000}
}

func (w *world) set(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func (w *world) err(part string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.broken[part]
}

func (w *world) Pods() []*v1.Pod {
	return []*v1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "u"}}}
}

func (w *world) Get(types.UID) (*observed.Status, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down {
		return &observed.Status{UID: "u"}, nil
	}
	return &observed.Status{
		UID:       "u",
		Sandboxes: []*runtimeapi.PodSandboxStatus{{Id: "sandbox", State: runtimeapi.PodSandboxState_SANDBOX_READY}},
		Containers: []observed.ContainerStatus{
			{ID: "new", Name: "app", Image: "app:1", State: observed.Running, StartedAt: time.Unix(1_600_000_000, 0)},
			{ID: "old", Name: "app", State: observed.Running},
			{ID: "ended", Name: "init", State: observed.Exited},
		},
	}, nil
}

func (w *world) Read(group string, r *cgroupfs.Reading) error {
	if err := w.err(group); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down && group != "/" {
		return fs.ErrNotExist
	}
	known := func(v uint64) cgroupfs.Value { return cgroupfs.Value{N: v, Known: true} }
	*r = cgroupfs.Reading{Time: time.Now(), CPU: known(w.nanos), Memory: known(1000), WorkingSet: known(900), RSS: known(500), MemoryLimit: known(2000)}
	return nil
}

func (w *world) Processes(group string) ([]int, error) {
	if strings.HasSuffix(group, "/sandbox") {
		return []int{77}, nil
	}
	return []int{1, 2, 3}, nil
}

func (w *world) Group(pod *v1.Pod) string { return "/pods/pod" + string(pod.UID) }
func (w *world) AllPods() string          { return "/pods" }

func (w *world) Free() (statsapi.NodeStats, error) {
	max, now := int64(1000), int64(10)
	return statsapi.NodeStats{
		Memory: &statsapi.MemoryStats{AvailableBytes: new(uint64(4000)), WorkingSetBytes: new(uint64(6000))}, Rlimit: &statsapi.RlimitStats{MaxPID: &max, NumOfRunningProcesses: &now},
	}, w.err("machine")
}

func (w *world) Filesystem(path string) (statsapi.FsStats, uint64, error) {
	return statsapi.FsStats{CapacityBytes: new(uint64(100)), AvailableBytes: new(uint64(60)), Inodes: new(uint64(10)), InodesFree: new(uint64(7))}, 1, w.err(path)
}

func (w *world) Network(process int) ([]statsapi.InterfaceStats, error) {
	bytes := uint64(process) //nolint:gosec // not negative
	return []statsapi.InterfaceStats{{Name: "other"}, {Name: "eth0", RxBytes: &bytes}}, w.err("network")
}

func (w *world) BootTime() (time.Time, error) { return time.Unix(1_500_000_000, 0), w.err("boot") }

func (w *world) Process(process int) (statsapi.ContainerStats, error) {
	w.mu.Lock()
	nanos, started := w.nanos*2, w.starts
	w.mu.Unlock()
	if process == 0 {
		started = 1_540_000_000
	}
	return statsapi.ContainerStats{
		StartTime: metav1.Unix(started, 0), CPU: &statsapi.CPUStats{Time: metav1.Now(), UsageCoreNanoSeconds: &nanos},
		Memory: &statsapi.MemoryStats{Time: metav1.Now(), WorkingSetBytes: new(uint64(process))}, //nolint:gosec // not negative
	}, w.err(fmt.Sprint("process ", process))
}

func (w *world) Listener(context.Context, string) (int, error) {
	w.mu.Lock()
	w.looked++
	listen := w.listen
	w.mu.Unlock()
	return listen, w.err("listener")
}

func (w *world) Machine() (v1.ResourceList, v1.NodeSystemInfo, error) {
	return v1.ResourceList{v1.ResourceCPU: resource.MustParse("2")}, v1.NodeSystemInfo{BootID: "b"}, w.err("what it is")
}

func (w *world) Interfaces(process int) ([]cadvisormetrics.Interface, error) {
	if err := w.err("network"); err != nil {
		return nil, err
	}
	return []cadvisormetrics.Interface{{Name: "eth0", Received: cadvisormetrics.Traffic{Bytes: uint64(process)}}}, nil //nolint:gosec // not negative
}

func (w *world) Files(process int) (cadvisormetrics.Files, error) {
	return cadvisormetrics.Files{Open: 10, Sockets: uint64(process)}, w.err(fmt.Sprint("files of ", process)) //nolint:gosec // not negative
}

func (w *world) Device(major, minor uint32) string { return fmt.Sprintf("/dev/%d-%d", major, minor) }

func (w *world) DeviceWork(name string) (cadvisormetrics.Device, bool, error) {
	return cadvisormetrics.Device{Name: name, IO: cgroupfs.DeviceIO{ReadBytes: 6}}, true, w.err("work")
}

func (w *world) ReadDetails(group string, d *cgroupfs.Details) error {
	*d = cgroupfs.Details{Cache: cgroupfs.Value{N: 77, Known: true}, Devices: []cgroupfs.DeviceIO{{Major: 8, ReadBytes: 5}}}
	return w.err("details of " + group)
}

func (w *world) ImageFS(context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{
		{FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: "/images"}, UsedBytes: &runtimeapi.UInt64Value{Value: 33}},
	}}, w.err("images")
}

func (w *world) ContainerStats(ctx context.Context) ([]*runtimeapi.ContainerStats, error) {
	w.mu.Lock()
	w.asked++
	hang := w.hang
	w.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return []*runtimeapi.ContainerStats{{
		Attributes:    &runtimeapi.ContainerAttributes{Id: "new"},
		WritableLayer: &runtimeapi.FilesystemUsage{Timestamp: 1_700_000_000_000_000_000, UsedBytes: &runtimeapi.UInt64Value{Value: 10}, InodesUsed: &runtimeapi.UInt64Value{Value: 1}},
	}}, w.err("layers")
}

func (w *world) LogUsage(context.Context, *v1.Pod) (map[string]statsapi.FsStats, error) {
	at := metav1.Now()
	return map[string]statsapi.FsStats{"app": {Time: at, UsedBytes: new(uint64(20)), InodesUsed: new(uint64(2))}, "init": {Time: at, UsedBytes: new(uint64(1)), InodesUsed: new(uint64(1))}}, w.err("logs")
}

func (w *world) Volumes(*v1.Pod) []podvolumes.Measured {
	at := time.Unix(1_650_000_000, 0)
	usage := func(bytes uint64) podvolumes.Usage {
		return podvolumes.Usage{Method: podvolumes.ByWalk, UsedBytes: new(bytes), InodesUsed: new(uint64(4))}
	}
	well := usage(5000)
	well.Abnormal = new("")
	return []podvolumes.Measured{
		{Name: "scratch", Usage: usage(100), Time: at, Ephemeral: true, Source: "emptyDir"},
		{Name: "data", Usage: usage(5000), Time: at, Claim: "claim", Source: "persistentVolumeClaim", Stale: true},
		{Name: "again", Usage: well, Time: at, Claim: "claim", Source: "persistentVolumeClaim"},
		{Name: "disk", Usage: podvolumes.Usage{Method: podvolumes.ByDevice, CapacityBytes: new(uint64(7)), Abnormal: new("a bad disk")}, Time: at, Claim: "block", Source: "persistentVolumeClaim"},
	}
}

func (w *world) config() Config {
	return Config{
		Node: "node", Dir: "/kubelet", Pods: w.Pods, Statuses: w, Groups: w, PodGroups: w, Machine: w, Runtime: w, Logs: w, Volumes: w,
		RuntimeSocket: "/run/runtime.sock", Log: slog.New(slog.NewTextHandler(&w.log, nil)),
	}
}

func run(t *testing.T, cfg Config) (c *Collector, stop func()) {
	t.Helper()
	c = New(cfg)
	return c, begin(t, c)
}

// begin has a collector run.
func begin(t *testing.T, c *Collector) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := c.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

func last(t *testing.T, c *Collector) *Collection {
	t.Helper()
	got, err := c.Last(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return got
}
