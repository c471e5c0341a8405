package figures

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/holdfast-dev/holdfast/internal/cli"
)

// PrintNodes writes nodes in their order.
func PrintNodes(w io.Writer, all []Node, format cli.Format) error {
	if done, err := format.Data(w, all); done {
		return err
	}
	if len(all) == 0 {
		return none(w, "nodes")
	}
	heads := []string{"node", "cpu", "cpu%", "memory", "memory%", "disk", "size", "full"}
	if format == cli.Wide {
		heads = append(heads, "inodes", "images", "processes", "swap")
	}
	grid := cli.NewGrid(w, heads...)
	for i := range all {
		n := &all[i]
		disk := orNone(n.Fs)
		row := []any{
			n.NodeName,
			milli(cores(n.CPU)), share(cores(n.CPU), float64(n.Allocatable.Cpu().MilliValue())*1e6),
			size(workingSet(n.Memory)), share(workingSet(n.Memory), float64(n.Allocatable.Memory().Value())),
			size(disk.UsedBytes), size(disk.CapacityBytes), bar(full(disk)),
		}
		if format == cli.Wide {
			var images *statsapi.FsStats
			if n.Runtime != nil {
				images = n.Runtime.ImageFs
			}
			processes := ""
			if n.Rlimit != nil && n.Rlimit.NumOfRunningProcesses != nil {
				processes = strconv.FormatInt(*n.Rlimit.NumOfRunningProcesses, 10)
			}
			row = append(row, count(disk.InodesUsed), size(usedBytes(images)), processes, size(swap(n.Swap)))
		}
		grid.Row(row...)
	}
	return grid.Flush()
}

// PrintPods writes pods in their order.
func PrintPods(w io.Writer, all []Pod, format cli.Format) error {
	if done, err := format.Data(w, all); done {
		return err
	}
	if len(all) == 0 {
		return none(w, "pods")
	}
	heads := []string{"namespace", "pod", "cpu", "memory", "storage"}
	if format == cli.Wide {
		heads = append(heads, "inodes", "swap", "processes", "received", "sent", "node")
	}
	grid := cli.NewGrid(w, heads...)
	for i := range all {
		p := &all[i]
		storage := orNone(p.EphemeralStorage)
		row := []any{p.PodRef.Namespace, p.PodRef.Name, milli(cores(p.CPU)), size(workingSet(p.Memory)), size(storage.UsedBytes)}
		if format == cli.Wide {
			processes := ""
			if p.ProcessStats != nil {
				processes = count(p.ProcessStats.ProcessCount)
			}
			var network statsapi.NetworkStats
			if p.Network != nil {
				network = *p.Network
			}
			row = append(row, count(storage.InodesUsed), size(swap(p.Swap)), processes, size(network.RxBytes), size(network.TxBytes), p.NodeName)
		}
		grid.Row(row...)
	}
	return grid.Flush()
}

// PrintContainers writes containers in their order.
func PrintContainers(w io.Writer, all []Container, format cli.Format) error {
	if done, err := format.Data(w, all); done {
		return err
	}
	if len(all) == 0 {
		return none(w, "containers")
	}
	heads := []string{"namespace", "pod", "container", "cpu", "memory", "storage"}
	if format == cli.Wide {
		heads = append(heads, "swap", "node")
	}
	grid := cli.NewGrid(w, heads...)
	for i := range all {
		c := &all[i]
		row := []any{c.PodRef.Namespace, c.PodRef.Name, c.Name, milli(cores(c.CPU)), size(workingSet(c.Memory)), size(c.storage())}
		if format == cli.Wide {
			row = append(row, size(swap(c.Swap)), c.NodeName)
		}
		grid.Row(row...)
	}
	return grid.Flush()
}

// PrintVolumes writes volumes in their order.
func PrintVolumes(w io.Writer, all []Volume, format cli.Format, now time.Time) error {
	if done, err := format.Data(w, all); done {
		return err
	}
	if len(all) == 0 {
		return none(w, "volumes")
	}
	heads := []string{"namespace", "pod", "volume", "kind", "used", "size", "full", "inodes", "method", "age"}
	if format == cli.Wide {
		heads = append(heads, "available", "inodes free", "claim", "node")
	}
	grid := cli.NewGrid(w, heads...)
	for i := range all {
		v := &all[i]
		age := cli.Age(v.Time.Time, now)
		if v.Stale {
			age += " stale"
		}
		row := []any{
			v.PodRef.Namespace, v.PodRef.Name, v.Name, v.Kind, size(v.UsedBytes), size(v.CapacityBytes), bar(full(&v.FsStats)), count(v.InodesUsed), v.Method, age,
		}
		if format == cli.Wide {
			claim := ""
			if v.PVCRef != nil {
				claim = v.PVCRef.Name
			}
			row = append(row, size(v.AvailableBytes), count(v.InodesFree), claim, v.NodeName)
		}
		grid.Row(row...)
	}
	return grid.Flush()
}

func none(w io.Writer, what string) error {
	_, err := fmt.Fprintf(w, "No figures of %s.\n", what)
	return err
}

func orNone(f *statsapi.FsStats) *statsapi.FsStats {
	if f == nil {
		return &statsapi.FsStats{}
	}
	return f
}

func swap(s *statsapi.SwapStats) *uint64 {
	if s == nil {
		return nil
	}
	return s.SwapUsageBytes
}

// milli writes thousandths of a processor, of nanocores.
func milli(n *uint64) string {
	if n == nil {
		return ""
	}
	return strconv.FormatUint((*n+5e5)/1e6, 10) + "m"
}

func count(n *uint64) string {
	if n == nil {
		return ""
	}
	return strconv.FormatUint(*n, 10)
}

// share writes a part of a whole in percent.
func share(n *uint64, whole float64) string {
	if n == nil || whole <= 0 {
		return ""
	}
	return percent(float64(*n) / whole)
}

// percent writes a part, never rounded up to all.
func percent(part float64) string {
	return strconv.Itoa(int(math.Floor(part*100))) + "%"
}

// size writes bytes with two digits at least: 512, 4.0Ki, 37Mi.
func size(n *uint64) string {
	if n == nil {
		return ""
	}
	value, unit := float64(*n), ""
	for _, next := range []string{"Ki", "Mi", "Gi", "Ti", "Pi", "Ei"} {
		if value < 1024 {
			break
		}
		value, unit = value/1024, next
	}
	switch {
	case unit == "":
		return strconv.FormatUint(*n, 10)
	case value < 10:
		return strconv.FormatFloat(math.Floor(value*10)/10, 'f', 1, 64) + unit
	default:
		return strconv.FormatFloat(math.Floor(value), 'f', 0, 64) + unit
	}
}

// bar draws how full something is.
func bar(f figure) string {
	const width = 10
	if !f.known {
		return ""
	}
	filled := min(int(math.Ceil(f.n*width)), width)
	return "[" + strings.Repeat("#", filled) + strings.Repeat("-", width-filled) + "] " + percent(f.n)
}
