package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/kubernetes/pkg/kubelet/server/stats"
	"k8s.io/kubernetes/pkg/volume"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
	"github.com/holdfast-dev/holdfast/internal/kubelet/volumeplugin"
	"github.com/holdfast-dev/holdfast/internal/kubelet/volumestats"
)

const (
	pods           = 110
	volumes        = 4
	filesOfVolumes = 10
	// settle is how long the first figures of all may take.
	settle = 20 * time.Second
)

// A world is a full node's emptyDirs, on disk.
type world struct {
	dir      string
	pods     []*v1.Pod
	measured atomic.Int64 // calls
}

func newWorld(dir string) (*world, error) {
	w := &world{dir: dir}
	for i := range pods {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("pod-", i), UID: types.UID(fmt.Sprint("uid-", i))}}
		for j := range volumes {
			name := strconv.Itoa(j)
			pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}})
			if err := os.MkdirAll(w.path(pod.UID, name), 0o755); err != nil {
				return nil, err
			}
			for k := range filesOfVolumes {
				if err := os.WriteFile(filepath.Join(w.path(pod.UID, name), strconv.Itoa(k)), []byte("x"), 0o644); err != nil {
					return nil, err
				}
			}
		}
		w.pods = append(w.pods, pod)
	}
	return w, nil
}

func (w *world) path(uid types.UID, volume string) string {
	return filepath.Join(w.dir, string(uid), volume)
}

// ours is what our analyzer asks.
type ours struct {
	*world
	host *volumeplugin.Host
}

func (o ours) Paths(uid types.UID) map[string]string {
	paths := map[string]string{}
	for j := range volumes {
		name := strconv.Itoa(j)
		paths[name] = o.path(uid, name)
	}
	return paths
}

func (o ours) Measure(ctx context.Context, path string) (podvolumes.Usage, error) {
	o.measured.Add(1)
	return o.host.Measure(ctx, path)
}

// provider is what upstream's analyzer asks.
type provider struct {
	stats.Provider
	*world
}

func (p provider) GetPods() []*v1.Pod { return p.pods }

func (p provider) ListBlockVolumesForPod(types.UID) (map[string]volume.BlockVolume, bool) {
	return nil, false
}

func (p provider) ListVolumesForPod(uid types.UID) (map[string]volume.Volume, bool) {
	all := map[string]volume.Volume{}
	for j := range volumes {
		name := strconv.Itoa(j)
		path := p.path(uid, name)
		all[name] = counted{volume.NewMetricsDu(path), path, &p.measured}
	}
	return all, true
}

// counted is a volume of upstream's that counts how often it is measured.
type counted struct {
	volume.MetricsProvider
	path     string
	measured *atomic.Int64
}

func (c counted) GetPath() string { return c.path }

func (c counted) GetMetrics() (*volume.Metrics, error) {
	c.measured.Add(1)
	return c.MetricsProvider.GetMetrics()
}

// analyzers writes what the analyzers of a full node cost.
func analyzers(ctx context.Context, to io.Writer, o options) (err error) {
	dir, err := os.MkdirTemp(o.dir, "holdfast-bench-analyzer-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	w, err := newWorld(dir)
	if err != nil {
		return err
	}
	fmt.Fprintf(to, "| %d pods with %d emptyDirs of %d files | processor, of one minute | measurements in it | processor, of one |\n|---|---|---|---|\n", pods, volumes, filesOfVolumes)
	end, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	log := slog.New(slog.DiscardHandler)
	node := ours{w, volumeplugin.New(volumeplugin.Config{Dir: dir, Log: log})}
	a := volumestats.New(volumestats.Config{Pods: func() []*v1.Pod { return w.pods }, Paths: node, Measurer: node, Log: log})
	go func() { ended <- a.Run(end) }()
	err = w.watch(ctx, to, "Holdfast", o.minutes)
	cancel()
	if err := errors.Join(err, <-ended); err != nil {
		return err
	}
	// Upstream's comes last: it does not end.
	stats.NewResourceAnalyzer(ctx, provider{world: w}, time.Minute, record.NewFakeRecorder(1)).Start(ctx)
	return w.watch(ctx, to, "upstream", o.minutes)
}

// watch writes what the process costs in some minutes, the first figures left out.
func (w *world) watch(ctx context.Context, to io.Writer, name string, minutes int) error {
	fmt.Fprintf(progress, "the analyzer of %s, %d minutes\n", name, minutes)
	if err := sleep(ctx, settle); err != nil {
		return err
	}
	cpu, measured := processorTime(), w.measured.Load()
	if err := sleep(ctx, time.Duration(minutes)*time.Minute); err != nil {
		return err
	}
	used, n := processorTime()-cpu, w.measured.Load()-measured
	fmt.Fprintf(to, "| %s | %s | %d | %s |\n", name, short(used/time.Duration(minutes)), n/int64(minutes), short(used/time.Duration(max(n, 1))))
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// processorTime is this process's, so far.
func processorTime() time.Duration {
	var usage unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
