package figures

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// The words of --sort-by, for each table. Names go up, figures go down, and what is not
// known comes last.
var (
	NodeOrders   = []string{"name", "cpu", "memory", "disk"}
	PodOrders    = []string{"name", "cpu", "memory", "storage"}
	VolumeOrders = []string{"name", "used", "size", "full", "inodes", "age"}
)

// figure is a number, if it is known.
type figure struct {
	n     float64
	known bool
}

// down compares two figures so that the larger one is first.
func down(a, b figure) int {
	switch {
	case a.known != b.known && a.known:
		return -1
	case a.known != b.known:
		return 1
	}
	return cmp.Compare(b.n, a.n)
}

func of(n *uint64) figure {
	if n == nil {
		return figure{}
	}
	return figure{float64(*n), true}
}

// CheckOrder returns an error for a word that is none of a table's.
func CheckOrder(by string, orders []string) error {
	if slices.Contains(orders, by) {
		return nil
	}
	return fmt.Errorf("--sort-by %q: want one of %s", by, strings.Join(orders, ", "))
}

// SortNodes sorts by one of NodeOrders.
func SortNodes(all []Node, by string) {
	key := func(n *Node) figure {
		switch by {
		case "cpu":
			return of(cores(n.CPU))
		case "memory":
			return of(workingSet(n.Memory))
		case "disk":
			return full(n.Fs)
		default:
			return figure{}
		}
	}
	slices.SortStableFunc(all, func(a, b Node) int {
		return cmp.Or(down(key(&a), key(&b)), strings.Compare(a.NodeName, b.NodeName))
	})
}

// SortPods sorts by one of PodOrders.
func SortPods(all []Pod, by string) {
	key := func(p *Pod) figure {
		switch by {
		case "cpu":
			return of(cores(p.CPU))
		case "memory":
			return of(workingSet(p.Memory))
		case "storage":
			return of(usedBytes(p.EphemeralStorage))
		default:
			return figure{}
		}
	}
	slices.SortStableFunc(all, func(a, b Pod) int {
		return cmp.Or(down(key(&a), key(&b)), byPod(a.PodRef, b.PodRef))
	})
}

// SortContainers sorts by one of PodOrders.
func SortContainers(all []Container, by string) {
	key := func(c *Container) figure {
		switch by {
		case "cpu":
			return of(cores(c.CPU))
		case "memory":
			return of(workingSet(c.Memory))
		case "storage":
			return of(c.storage())
		default:
			return figure{}
		}
	}
	slices.SortStableFunc(all, func(a, b Container) int {
		return cmp.Or(down(key(&a), key(&b)), byPod(a.PodRef, b.PodRef), strings.Compare(a.Name, b.Name))
	})
}

// SortVolumes sorts by one of VolumeOrders.
func SortVolumes(all []Volume, by string) {
	key := func(v *Volume) figure {
		switch by {
		case "used":
			return of(v.UsedBytes)
		case "size":
			return of(v.CapacityBytes)
		case "full":
			return full(&v.FsStats)
		case "inodes":
			return of(v.InodesUsed)
		case "age":
			return figure{-float64(v.Time.UnixNano()), !v.Time.IsZero()}
		default:
			return figure{}
		}
	}
	slices.SortStableFunc(all, func(a, b Volume) int {
		return cmp.Or(down(key(&a), key(&b)), byPod(a.PodRef, b.PodRef), strings.Compare(a.Name, b.Name))
	})
}

// storage is what a container's layer and logs take; nil: neither is known.
func (c *Container) storage() *uint64 {
	layer, logs := usedBytes(c.Rootfs), usedBytes(c.Logs)
	if layer == nil || logs == nil {
		return cmp.Or(layer, logs)
	}
	return new(*layer + *logs)
}

func byPod(a, b statsapi.PodReference) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

// full is the part of what could be used that is: what is used of that and what is left,
// as df has it. For a folder that shares a disk both are what they are for it: others'
// use is in neither.
func full(f *statsapi.FsStats) figure {
	if f == nil || f.UsedBytes == nil || f.AvailableBytes == nil {
		return figure{}
	}
	all := float64(*f.UsedBytes) + float64(*f.AvailableBytes)
	if all == 0 {
		return figure{}
	}
	return figure{float64(*f.UsedBytes) / all, true}
}

func cores(c *statsapi.CPUStats) *uint64 {
	if c == nil {
		return nil
	}
	return c.UsageNanoCores
}

func workingSet(m *statsapi.MemoryStats) *uint64 {
	if m == nil {
		return nil
	}
	return m.WorkingSetBytes
}

func usedBytes(f *statsapi.FsStats) *uint64 {
	if f == nil {
		return nil
	}
	return f.UsedBytes
}
