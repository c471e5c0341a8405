// Package resourcemetrics writes and reads what a kubelet serves at /metrics/resource:
// processor time, working set and swap of the node, its pods and their containers, in
// Prometheus' text format.
//
// Append writes the series that the upstream kubelet has, with its names, labels and
// timestamps. A Decoder reads those of any kubelet. Both work in the memory that they
// are given: in steady state they allocate nothing.
package resourcemetrics

import (
	"math"
	"strconv"
	"time"

	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// A Series is one of the metrics.
type Series int

// The metrics, in the order in which they are written.
const (
	ContainerCPU        Series = iota // seconds of processors, since its start
	ContainerMemory                   // bytes of the working set
	ContainerStartTime                // seconds since 1970
	ContainerSwapLimit                // bytes
	ContainerSwap                     // bytes
	NodeCPU                           // as of containers
	NodeMemory                        //
	NodeSwap                          //
	PodCPU                            //
	PodMemory                         //
	PodSwap                           //
	ResourceScrapeError               // 1: something could not be had
	seriesCount
)

// A level is whose figures a metric has.
type level int

const (
	ofNode level = iota
	ofPod
	ofContainer
)

// family is what is known of a Series.
type family struct {
	name, kind, help string
	level            level
}

var families = [seriesCount]family{
	ContainerCPU:        {"container_cpu_usage_seconds_total", "counter", "[STABLE] Processor time that the container has used, in core-seconds", ofContainer},
	ContainerMemory:     {"container_memory_working_set_bytes", "gauge", "[STABLE] Memory of the container that cannot be had back at once, in bytes", ofContainer},
	ContainerStartTime:  {"container_start_time_seconds", "gauge", "[STABLE] When the container started, in seconds since 1970", ofContainer},
	ContainerSwapLimit:  {"container_swap_limit_bytes", "gauge", "[ALPHA] Swap that the container may use, in bytes", ofContainer},
	ContainerSwap:       {"container_swap_usage_bytes", "gauge", "[ALPHA] Swap that the container uses, in bytes", ofContainer},
	NodeCPU:             {"node_cpu_usage_seconds_total", "counter", "[STABLE] Processor time that the node has used, in core-seconds", ofNode},
	NodeMemory:          {"node_memory_working_set_bytes", "gauge", "[STABLE] Memory of the node that cannot be had back at once, in bytes", ofNode},
	NodeSwap:            {"node_swap_usage_bytes", "gauge", "[ALPHA] Swap that the node uses, in bytes", ofNode},
	PodCPU:              {"pod_cpu_usage_seconds_total", "counter", "[STABLE] Processor time that the pod has used, in core-seconds", ofPod},
	PodMemory:           {"pod_memory_working_set_bytes", "gauge", "[STABLE] Memory of the pod that cannot be had back at once, in bytes", ofPod},
	PodSwap:             {"pod_swap_usage_bytes", "gauge", "[ALPHA] Swap that the pod uses, in bytes", ofPod},
	ResourceScrapeError: {"resource_scrape_error", "gauge", "[STABLE] 1 if something could not be had, else 0", ofNode},
}

// String returns the metric's name.
func (s Series) String() string { return families[s].name }

// Append appends the series of a summary to dst. What the summary does not have has
// no series. failed is whether something could not be had; summary may be nil then.
func Append(dst []byte, summary *stats.Summary, failed bool) []byte {
	if summary != nil {
		for s := range ResourceScrapeError {
			dst = appendFamily(dst, s, summary)
		}
	}
	dst = appendHead(dst, &families[ResourceScrapeError])
	value := 0.0
	if failed {
		value = 1
	}
	dst = append(dst, families[ResourceScrapeError].name...)
	return append(appendNumber(append(dst, ' '), value), '\n')
}

// appendFamily appends a metric with its head; nothing if nobody has it.
func appendFamily(dst []byte, s Series, summary *stats.Summary) []byte {
	f := &families[s]
	start := len(dst)
	dst = appendHead(dst, f)
	head := len(dst)
	switch f.level {
	case ofNode:
		if v, ok := nodeValue(s, &summary.Node); ok {
			dst = v.append(append(dst, f.name...))
		}
	case ofPod:
		for i := range summary.Pods {
			pod := &summary.Pods[i]
			if v, ok := podValue(s, pod); ok {
				dst = v.append(appendLabels(append(dst, f.name...), "", pod))
			}
		}
	case ofContainer:
		for i := range summary.Pods {
			pod := &summary.Pods[i]
			for j := range pod.Containers {
				if v, ok := containerValue(s, &pod.Containers[j]); ok {
					dst = v.append(appendLabels(append(dst, f.name...), pod.Containers[j].Name, pod))
				}
			}
		}
	}
	if len(dst) == head {
		return dst[:start]
	}
	return dst
}

// value is a metric's number, and when it was.
type value struct {
	n  float64
	at time.Time // zero: there is no timestamp
}

func (v value) append(dst []byte) []byte {
	dst = appendNumber(append(dst, ' '), v.n)
	if !v.at.IsZero() {
		dst = strconv.AppendInt(append(dst, ' '), v.at.UnixMilli(), 10)
	}
	return append(dst, '\n')
}

func cpuValue(c *stats.CPUStats) (value, bool) {
	if c == nil || c.UsageCoreNanoSeconds == nil {
		return value{}, false
	}
	return value{float64(*c.UsageCoreNanoSeconds) / float64(time.Second), c.Time.Time}, true
}

func memoryValue(m *stats.MemoryStats) (value, bool) {
	if m == nil || m.WorkingSetBytes == nil {
		return value{}, false
	}
	return value{float64(*m.WorkingSetBytes), m.Time.Time}, true
}

func swapValue(s *stats.SwapStats) (value, bool) {
	if s == nil || s.SwapUsageBytes == nil {
		return value{}, false
	}
	return value{float64(*s.SwapUsageBytes), s.Time.Time}, true
}

func nodeValue(s Series, n *stats.NodeStats) (value, bool) {
	switch s {
	case NodeCPU:
		return cpuValue(n.CPU)
	case NodeMemory:
		return memoryValue(n.Memory)
	default:
		return swapValue(n.Swap)
	}
}

func podValue(s Series, p *stats.PodStats) (value, bool) {
	switch s {
	case PodCPU:
		return cpuValue(p.CPU)
	case PodMemory:
		return memoryValue(p.Memory)
	default:
		return swapValue(p.Swap)
	}
}

func containerValue(s Series, c *stats.ContainerStats) (value, bool) {
	switch s {
	case ContainerCPU:
		return cpuValue(c.CPU)
	case ContainerMemory:
		return memoryValue(c.Memory)
	case ContainerStartTime:
		// With a timestamp of its own it would look stale to who scrapes it.
		start := c.StartTime.Time
		return value{n: float64(start.UnixNano()) / float64(time.Second)}, start.Unix() > 0
	case ContainerSwapLimit:
		if c.Swap == nil || c.Swap.SwapAvailableBytes == nil || c.Swap.SwapUsageBytes == nil {
			return value{}, false
		}
		return value{float64(*c.Swap.SwapAvailableBytes + *c.Swap.SwapUsageBytes), c.Swap.Time.Time}, true
	default:
		return swapValue(c.Swap)
	}
}

func appendHead(dst []byte, f *family) []byte {
	dst = append(append(append(append(dst, "# HELP "...), f.name...), ' '), f.help...)
	return append(append(append(append(append(dst, "\n# TYPE "...), f.name...), ' '), f.kind...), '\n')
}

func appendLabels(dst []byte, container string, pod *stats.PodStats) []byte {
	dst = append(dst, '{')
	if container != "" {
		dst = append(appendEscaped(append(dst, `container="`...), container), `",`...)
	}
	dst = append(appendEscaped(append(dst, `namespace="`...), pod.PodRef.Namespace), `",`...)
	return append(appendEscaped(append(dst, `pod="`...), pod.PodRef.Name), `"}`...)
}

func appendEscaped(dst []byte, s string) []byte {
	for i := range len(s) {
		switch c := s[i]; c {
		case '\\', '"':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		default:
			dst = append(dst, c)
		}
	}
	return dst
}

// appendNumber writes a number as Prometheus' own library does.
func appendNumber(dst []byte, n float64) []byte {
	switch {
	case math.IsNaN(n):
		return append(dst, "NaN"...)
	case math.IsInf(n, 1):
		return append(dst, "+Inf"...)
	case math.IsInf(n, -1):
		return append(dst, "-Inf"...)
	}
	return strconv.AppendFloat(dst, n, 'g', -1, 64)
}
