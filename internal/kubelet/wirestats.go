package kubelet

import (
	"path/filepath"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/cgroupfs"
	"github.com/holdfast-dev/holdfast/internal/kubelet/hoststats"
	"github.com/holdfast-dev/holdfast/internal/kubelet/stats"
	"github.com/holdfast-dev/holdfast/internal/kubelet/volumeplugin"
	"github.com/holdfast-dev/holdfast/internal/kubelet/volumestats"
)

// wireStats makes what measures what pods and their volumes use.
func (k *Kubelet) wireStats() error {
	groups, err := cgroupfs.New()
	if err != nil {
		return err
	}
	k.volumeStats = volumestats.New(volumestats.Config{
		Pods: k.Pods, Paths: volumePaths{k.volumes},
		Measurer: volumeMeasurer{volumeplugin.New(volumeplugin.Config{Dir: k.cfg.Dir, Log: k.cfg.Log.With("part", "volumeplugin")}), k.csi},
		Period:   k.cfg.VolumeStatsPeriod, File: filepath.Join(k.cfg.Dir, "volume-stats.json"), Metrics: k.cfg.Metrics, Events: k.events, Log: k.cfg.Log.With("part", "volumestats"),
	})
	k.stats = stats.New(stats.Config{
		Node: k.cfg.NodeName, Dir: k.cfg.Dir, Pods: k.Pods, Statuses: k.cache, Groups: groups, PodGroups: k.cgroups, Machine: hoststats.New(k.cfg.Dir),
		Runtime: k.runtime, RuntimeSocket: strings.TrimPrefix(k.cfg.RuntimeEndpoint, "unix://"), Logs: k.folders, Volumes: k.volumeStats, Metrics: k.cfg.Metrics, Log: k.cfg.Log.With("part", "stats"),
	})
	return nil
}

// published tells those who look at the pods that there are others.
func (k *Kubelet) published() {
	k.checkpoint.Poke()
	k.volumeStats.Poke()
}
