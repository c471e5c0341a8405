// Package cadvisormetrics writes what a kubelet serves at /metrics/cadvisor: series of
// control groups by the names and labels that cAdvisor made, which dashboards and alerts
// are written for.
//
// Append is pure. What is not known has no series. Series that nobody has a figure for on
// today's kernels (hugetlb, perf events, load averages, sockets) are left out, as the
// upstream kubelet leaves them out.
package cadvisormetrics

import (
	"strconv"
	"time"

	"github.com/holdfast-dev/holdfast/internal/cgroupfs"
)

// A Machine is what the machine has.
type Machine struct {
	Cores, MemoryBytes, SwapBytes int64
	MachineID, SystemUUID, BootID string
}

// A Group is one control group: the whole machine ("/"), all pods, a pod, its sandbox or a
// container.
type Group struct {
	ID string // its path

	// Of a container, and of a sandbox, which has no Container.
	Name      string // the runtime's identifier
	Image     string // as the pod names it
	Container string // as the pod names it
	// Of these and a pod.
	Namespace, Pod string

	Start     time.Time // zero: not known
	Reading   cgroupfs.Reading
	Details   cgroupfs.Details
	Processes cgroupfs.Value
	Files     *Files   // nil: not known
	Devices   []Device // those of Details, by name
	Disks     []Disk
	Network   []Interface
}

// A Device is what was read from and written to a block device.
type Device struct {
	Name string // such as /dev/sda
	IO   cgroupfs.DeviceIO
	// Queue is what only the machine tells of a device; nil: nothing.
	Queue *Queue
}

// A Queue is how a block device has worked, since the machine's start.
type Queue struct {
	ReadsMerged, WritesMerged uint64
	ReadTime, WriteTime       time.Duration // of all reads and writes, added up
	Current                   uint64        // requests that it works on now
	Busy, Weighted            time.Duration // with any request, and times their number
}

// A Disk is how much of a filesystem a group uses.
type Disk struct {
	Device                    string // such as /dev/sda1; may be empty
	Used, Limit               *uint64
	InodesTotal, InodesUnused *uint64
}

// Files is what a group's processes have open.
type Files struct {
	Open, Sockets uint64  // descriptors, and those of them that are sockets
	Limit         *uint64 // how many the first process may have; nil: not known, or there is none
}

// An Interface is a network interface, and what it has carried.
type Interface struct {
	Name           string
	Received, Sent Traffic
}

// Traffic counts since the interface was made.
type Traffic struct{ Bytes, Packets, Errors, Dropped uint64 }

// Append appends all series to dst.
func Append(dst []byte, machine *Machine, groups []Group) []byte {
	if machine != nil {
		dst = appendMachine(dst, machine)
	}
	labels := make([]string, len(groups))
	for i := range groups {
		labels[i] = groups[i].labels()
	}
	for i := range families {
		f := &families[i]
		start := len(dst)
		dst = appendHead(dst, f.name, f.kind, f.help)
		w := writer{dst: dst, family: f}
		for j := range groups {
			w.labels, w.at = labels[j], groups[j].Reading.Time
			f.write(&w, &groups[j])
		}
		if dst = w.dst; w.samples == 0 {
			dst = dst[:start]
		}
	}
	return dst
}

func appendMachine(dst []byte, m *Machine) []byte {
	labels := string(appendLabel(appendLabel(appendLabel(nil, "boot_id", m.BootID), "machine_id", m.MachineID), "system_uuid", m.SystemUUID))
	for _, f := range []struct {
		name, help string
		n          int64
	}{
		{"machine_cpu_cores", "Processors of the machine", m.Cores},
		{"machine_memory_bytes", "Memory of the machine in bytes", m.MemoryBytes},
		{"machine_swap_bytes", "Swap of the machine in bytes", m.SwapBytes},
	} {
		dst = appendHead(dst, f.name, "gauge", f.help)
		dst = append(append(append(append(dst, f.name...), '{'), labels...), "} "...)
		dst = append(strconv.AppendInt(dst, f.n, 10), '\n')
	}
	return dst
}

// labels are the six that every series of a group has, empty where there is nothing.
func (g *Group) labels() string {
	var b []byte
	for _, l := range [...][2]string{
		{"container", g.Container}, {"id", g.ID}, {"image", g.Image}, {"name", g.Name}, {"namespace", g.Namespace}, {"pod", g.Pod},
	} {
		b = appendLabel(b, l[0], l[1])
	}
	return string(b)
}

// writer writes the samples of one family.
type writer struct {
	dst     []byte
	family  *family
	labels  string    // of the group
	at      time.Time // of the group
	samples int
}

// value writes a sample with more labels, which are pairs of name and value.
func (w *writer) value(n float64, more ...string) {
	w.samples++
	w.dst = append(append(append(w.dst, w.family.name...), '{'), w.labels...)
	for i := 0; i+1 < len(more); i += 2 {
		w.dst = appendLabel(append(w.dst, ','), more[i], more[i+1])
	}
	w.dst = strconv.AppendFloat(append(w.dst, "} "...), n, 'g', -1, 64)
	if !w.family.timeless && !w.at.IsZero() {
		w.dst = strconv.AppendInt(append(w.dst, ' '), w.at.UnixMilli(), 10)
	}
	w.dst = append(w.dst, '\n')
}

// known writes a sample of what is known, divided by what its unit takes.
func (w *writer) known(v cgroupfs.Value, unit float64, more ...string) {
	if v.Known {
		w.value(float64(v.N)/unit, more...)
	}
}

func (w *writer) pointer(n *uint64, more ...string) {
	if n != nil {
		w.value(float64(*n), more...)
	}
}

func appendHead(dst []byte, name, kind, help string) []byte {
	dst = append(append(append(append(dst, "# HELP "...), name...), ' '), help...)
	return append(append(append(append(append(dst, "\n# TYPE "...), name...), ' '), kind...), '\n')
}

// appendLabel appends name="value", after a comma if something is before it.
func appendLabel(dst []byte, name, value string) []byte {
	if n := len(dst); n > 0 && dst[n-1] == '"' {
		dst = append(dst, ',')
	}
	dst = append(append(dst, name...), `="`...)
	for i := range len(value) {
		switch c := value[i]; c {
		case '\\', '"':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}

// limit is a limit as cAdvisor has it: 0 is none.
func limit(v cgroupfs.Value) float64 {
	if !v.Known {
		return 0
	}
	return float64(v.N)
}

// seconds is a moment in seconds since 1970.
func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
