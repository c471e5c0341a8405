package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/holdfast-dev/holdfast/internal/cadvisormetrics"
	"github.com/holdfast-dev/holdfast/internal/cgroupfs"
	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
	"github.com/holdfast-dev/holdfast/internal/kubelet/stats"
)

const (
	pods       = 110
	containers = 3
	volumes    = 4
)

// world is a full node in memory, on which everything is known.
type world struct {
	pods     []*v1.Pod
	statuses map[types.UID]*observed.Status
	layers   []*runtimeapi.ContainerStats
	logs     map[string]statsapi.FsStats
	volumes  []podvolumes.Measured
}

func newWorld() *world {
	w := &world{statuses: map[types.UID]*observed.Status{}, logs: map[string]statsapi.FsStats{}}
	now := time.Now()
	used := func(n uint64) *runtimeapi.UInt64Value { return &runtimeapi.UInt64Value{Value: n} }
	for i := range pods {
		uid := types.UID(fmt.Sprintf("0b8a2f1c-4d6e-4f7a-9b0c-%012d", i))
		start := metav1.NewTime(now)
		w.pods = append(w.pods, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("pod-%d", i), UID: uid}, Status: v1.PodStatus{StartTime: &start}})
		s := &observed.Status{UID: uid, Sandboxes: []*runtimeapi.PodSandboxStatus{{Id: fmt.Sprintf("%064d", i), State: runtimeapi.PodSandboxState_SANDBOX_READY}}}
		for j := range containers {
			id := fmt.Sprintf("%064d", 1000*(j+1)+i)
			s.Containers = append(s.Containers, observed.ContainerStatus{ID: id, Name: fmt.Sprintf("container-%d", j), State: observed.Running, StartedAt: now})
			w.layers = append(w.layers, &runtimeapi.ContainerStats{
				Attributes:    &runtimeapi.ContainerAttributes{Id: id},
				WritableLayer: &runtimeapi.FilesystemUsage{Timestamp: now.UnixNano(), UsedBytes: used(1 << 20), InodesUsed: used(10)},
			})
		}
		w.statuses[uid] = s
	}
	for j := range containers {
		w.logs[fmt.Sprintf("container-%d", j)] = statsapi.FsStats{Time: metav1.NewTime(now), UsedBytes: new(uint64(8192)), InodesUsed: new(uint64(2))}
	}
	for j := range volumes {
		w.volumes = append(w.volumes, podvolumes.Measured{
			Name: fmt.Sprintf("volume-%d", j), Time: now, Ephemeral: j < 2, Source: "emptyDir",
			Usage: podvolumes.Usage{
				Method: podvolumes.ByQuota, CapacityBytes: new(uint64(1 << 40)), AvailableBytes: new(uint64(1 << 39)), UsedBytes: new(uint64(1 << 20)),
				Inodes: new(uint64(1 << 24)), InodesFree: new(uint64(1 << 23)), InodesUsed: new(uint64(100)),
			},
		})
	}
	return w
}

func (w *world) config() stats.Config {
	return stats.Config{
		Node: "node", Dir: "/", Pods: func() []*v1.Pod { return w.pods }, Statuses: w, Groups: w, PodGroups: w, Machine: w, Runtime: w, RuntimeSocket: "/run/runtime.sock",
		Logs: w, Volumes: w, Log: slog.New(slog.DiscardHandler), Period: time.Hour,
	}
}

func (w *world) Get(uid types.UID) (*observed.Status, error) { return w.statuses[uid], nil }

func (w *world) Read(_ string, r *cgroupfs.Reading) error {
	known := func(v uint64) cgroupfs.Value { return cgroupfs.Value{N: v, Known: true} }
	waits := cgroupfs.Waits{Avg10: 0.25, Avg60: 0.5, Avg300: 0.12, Total: 123_456}
	pressure := cgroupfs.Pressure{Known: true, Some: waits, Full: waits}
	*r = cgroupfs.Reading{
		Time: time.Now(), CPU: known(123_456_789_000), Memory: known(100 << 20), WorkingSet: known(90 << 20), RSS: known(50 << 20), MemoryLimit: known(200 << 20),
		PageFaults: known(12_345), MajorPageFaults: known(12), Swap: known(0), SwapLimit: known(0), Tasks: known(12),
		CPUPressure: pressure, MemoryPressure: pressure, IOPressure: pressure,
	}
	return nil
}

func (w *world) ReadDetails(_ string, d *cgroupfs.Details) error {
	*d = cgroupfs.Details{}
	return nil
}

func (w *world) Processes(string) ([]int, error) { return []int{1}, nil }
func (w *world) Group(pod *v1.Pod) string        { return "/kubepods/burstable/pod" + string(pod.UID) }
func (w *world) AllPods() string                 { return "/kubepods" }

func (w *world) Free() (statsapi.NodeStats, error) {
	return statsapi.NodeStats{
		Memory: &statsapi.MemoryStats{AvailableBytes: new(uint64(1 << 34)), WorkingSetBytes: new(uint64(1 << 33))},
		Rlimit: &statsapi.RlimitStats{MaxPID: new(int64(32768)), NumOfRunningProcesses: new(int64(999))}, Swap: &statsapi.SwapStats{SwapUsageBytes: new(uint64(0))},
	}, nil
}

func (w *world) Filesystem(string) (statsapi.FsStats, uint64, error) {
	return statsapi.FsStats{CapacityBytes: new(uint64(1 << 40)), AvailableBytes: new(uint64(1 << 39)), Inodes: new(uint64(1 << 24)), InodesFree: new(uint64(1 << 23))}, 1, nil
}

func (w *world) Network(int) ([]statsapi.InterfaceStats, error) {
	return []statsapi.InterfaceStats{{Name: "eth0", RxBytes: new(uint64(123_456)), RxErrors: new(uint64(0)), TxBytes: new(uint64(654_321)), TxErrors: new(uint64(0))}}, nil
}

func (w *world) BootTime() (time.Time, error) { return time.Unix(1_700_000_000, 0), nil }

func (w *world) Process(int) (statsapi.ContainerStats, error) {
	now := metav1.Now()
	return statsapi.ContainerStats{
		StartTime: now, CPU: &statsapi.CPUStats{Time: now, UsageCoreNanoSeconds: new(uint64(123_456_789_000))},
		Memory: &statsapi.MemoryStats{Time: now, UsageBytes: new(uint64(1 << 26)), WorkingSetBytes: new(uint64(1 << 26)), RSSBytes: new(uint64(1 << 25))},
	}, nil
}

func (w *world) Listener(context.Context, string) (int, error) { return 1, nil }

func (w *world) Machine() (v1.ResourceList, v1.NodeSystemInfo, error) {
	return nil, v1.NodeSystemInfo{}, nil
}
func (w *world) Interfaces(int) ([]cadvisormetrics.Interface, error) { return nil, nil }
func (w *world) Files(int) (cadvisormetrics.Files, error)            { return cadvisormetrics.Files{}, nil }
func (w *world) Device(uint32, uint32) string                        { return "" }

func (w *world) DeviceWork(string) (cadvisormetrics.Device, bool, error) {
	return cadvisormetrics.Device{}, false, nil
}

func (w *world) ImageFS(context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{{
		FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: "/images"}, UsedBytes: &runtimeapi.UInt64Value{Value: 1 << 33}, InodesUsed: &runtimeapi.UInt64Value{Value: 1 << 20},
	}}}, nil
}

func (w *world) ContainerStats(context.Context) ([]*runtimeapi.ContainerStats, error) {
	return w.layers, nil
}

func (w *world) LogUsage(context.Context, *v1.Pod) (map[string]statsapi.FsStats, error) {
	return w.logs, nil
}

func (w *world) Volumes(*v1.Pod) []podvolumes.Measured { return w.volumes }
