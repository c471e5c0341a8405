package stats

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// series are those of /metrics: upstream's for claims and logs, and ours for every
// volume and for pods' ephemeral storage.
type series struct{ c *Collector }

// figure is one number of a volume.
type figure struct {
	claim, own *prometheus.Desc
	of         func(*statsapi.FsStats) *uint64
}

var (
	claimLabels  = []string{"namespace", "persistentvolumeclaim"}
	volumeLabels = []string{"namespace", "pod", "volume", "source", "method"}

	figures = []figure{
		newFigure("holdfast_volume_capacity_bytes", "Size of the volume in bytes", func(f *statsapi.FsStats) *uint64 { return f.CapacityBytes }),
		newFigure("holdfast_volume_available_bytes", "Bytes that are left in the volume", func(f *statsapi.FsStats) *uint64 { return f.AvailableBytes }),
		newFigure("holdfast_volume_used_bytes", "Bytes that the volume takes", func(f *statsapi.FsStats) *uint64 { return f.UsedBytes }),
		newFigure("holdfast_volume_inodes", "Inodes that there can be in the volume", func(f *statsapi.FsStats) *uint64 { return f.Inodes }),
		newFigure("holdfast_volume_inodes_free", "Inodes that are left in the volume", func(f *statsapi.FsStats) *uint64 { return f.InodesFree }),
		newFigure("holdfast_volume_inodes_used", "Inodes that the volume takes", func(f *statsapi.FsStats) *uint64 { return f.InodesUsed }),
	}

	abnormal  = prometheus.NewDesc("kubelet_volume_stats_health_status_abnormal", "1 if something is wrong with the volume, as its driver says, else 0", claimLabels, nil)
	volumeAge = prometheus.NewDesc("holdfast_volume_age_seconds", "How old the figures of the volume are", volumeLabels, nil)
	stale     = prometheus.NewDesc("holdfast_volume_stale", "1 if the last try to measure the volume has failed or hangs, else 0", volumeLabels, nil)
	ephemeral = prometheus.NewDesc("holdfast_pod_ephemeral_storage_used_bytes", "Bytes that the pod has on the node's disk: layers, logs and its own volumes", []string{"namespace", "pod"}, nil)
	logUsed   = prometheus.NewDesc("kubelet_container_log_filesystem_used_bytes", "Bytes that the container's logs take", []string{"uid", "namespace", "pod", "container"}, nil)
)

// newFigure makes the series of our own name, and upstream's for claims.
func newFigure(name, help string, of func(*statsapi.FsStats) *uint64) figure {
	return figure{
		prometheus.NewDesc(strings.Replace(name, "holdfast_volume_", "kubelet_volume_stats_", 1), help, claimLabels, nil),
		prometheus.NewDesc(name, help, volumeLabels, nil), of,
	}
}

// Describe sends every series' description.
func (s series) Describe(ch chan<- *prometheus.Desc) {
	for _, f := range figures {
		ch <- f.claim
		ch <- f.own
	}
	for _, d := range []*prometheus.Desc{abnormal, volumeAge, stale, ephemeral, logUsed} {
		ch <- d
	}
}

// Collect sends the figures of the last collection: what is gone has no series.
func (s series) Collect(ch chan<- prometheus.Metric) {
	last := s.c.last.Load()
	if last == nil {
		return
	}
	claims := map[statsapi.PVCReference]bool{}
	send := func(d *prometheus.Desc, n float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, n, labels...)
	}
	for i := range last.Summary.Pods {
		p := &last.Summary.Pods[i]
		namespace, pod := p.PodRef.Namespace, p.PodRef.Name
		for j := range p.VolumeStats {
			v, m := &p.VolumeStats[j], &last.Volumes[i][j]
			labels := []string{namespace, pod, v.Name, m.Source, string(m.Method)}
			first := v.PVCRef != nil && !claims[*v.PVCRef] // pods that share a claim have the same figures
			if first {
				claims[*v.PVCRef] = true
			}
			for _, f := range figures {
				n := f.of(&v.FsStats)
				if n == nil {
					continue
				}
				send(f.own, float64(*n), labels...)
				if first {
					send(f.claim, float64(*n), v.PVCRef.Namespace, v.PVCRef.Name)
				}
			}
			if first && m.Abnormal != nil {
				wrong := 0.0
				if *m.Abnormal != "" {
					wrong = 1
				}
				send(abnormal, wrong, v.PVCRef.Namespace, v.PVCRef.Name)
			}
			send(volumeAge, time.Since(m.Time).Seconds(), labels...)
			isStale := 0.0
			if m.Stale {
				isStale = 1
			}
			send(stale, isStale, labels...)
		}
		if e := p.EphemeralStorage; e != nil && e.UsedBytes != nil {
			send(ephemeral, float64(*e.UsedBytes), namespace, pod)
		}
		for j := range p.Containers {
			if l := p.Containers[j].Logs; l != nil && l.UsedBytes != nil {
				send(logUsed, float64(*l.UsedBytes), p.PodRef.UID, namespace, pod, p.Containers[j].Name)
			}
		}
	}
}
