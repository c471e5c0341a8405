package stats

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// processes are the machine's.
type processes interface {
	// Process is what one process uses, 0 our own.
	Process(process int) (statsapi.ContainerStats, error)
	// Listener is the process that listens on a unix socket; 0: it cannot be seen.
	Listener(ctx context.Context, path string) (process int, err error)
}

// process is one that was found, and told from another with its number by its start.
type process struct {
	id      int // 0: none was found
	started metav1.Time
}

// systemContainers reads what the node's own programs use, and all pods together.
//
// Ours and the runtime are read as processes: on most machines they share a control group
// with others, each other among them, whose figures would be told as theirs.
func (c *Collector) systemContainers(ctx context.Context, before map[string]cpuReading, boot metav1.Time) []statsapi.ContainerStats {
	var all []statsapi.ContainerStats
	if own, err := c.cfg.Machine.Process(0); c.note("own process", err) {
		all = append(all, c.system(statsapi.SystemContainerKubelet, own, before))
	}
	if runtime, ok := c.runtimeProcess(ctx); ok {
		all = append(all, c.system(statsapi.SystemContainerRuntime, runtime, before))
	}
	if err := c.cfg.Groups.Read(c.cfg.PodGroups.AllPods(), &c.reading); c.noteGroup("cgroup of all pods", err) {
		all = append(all, statsapi.ContainerStats{
			Name: statsapi.SystemContainerPods, StartTime: boot,
			CPU: c.cpuStats(c.cfg.PodGroups.AllPods(), &c.reading, before), Memory: memoryStats(&c.reading), IO: ioStats(&c.reading), Swap: swapStats(&c.reading),
		})
	}
	return all
}

// system completes what was read of a process.
func (c *Collector) system(name string, s statsapi.ContainerStats, before map[string]cpuReading) statsapi.ContainerStats {
	now := cpuReading{s.CPU.Time.Time, *s.CPU.UsageCoreNanoSeconds}
	c.cpu[name] = now // no group has a name without a slash
	s.Name, s.CPU.UsageNanoCores = name, rate(before[name], now)
	return s
}

// runtimeProcess reads the process that listens where the runtime does. It is looked for
// anew when it has ended.
func (c *Collector) runtimeProcess(ctx context.Context) (statsapi.ContainerStats, bool) {
	if c.cfg.RuntimeSocket == "" {
		return statsapi.ContainerStats{}, false
	}
	if c.runtime.id > 0 {
		s, err := c.cfg.Machine.Process(c.runtime.id)
		if err == nil && s.StartTime.Equal(&c.runtime.started) {
			return s, true
		}
		c.runtime = process{}
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	id, err := c.cfg.Machine.Listener(ctx, c.cfg.RuntimeSocket)
	var s statsapi.ContainerStats
	if err == nil && id > 0 {
		s, err = c.cfg.Machine.Process(id)
	}
	if !c.note("process of the runtime", err) || id == 0 {
		return statsapi.ContainerStats{}, false
	}
	c.runtime = process{id, s.StartTime}
	return s, true
}
