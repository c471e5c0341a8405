package hoststats

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/holdfast-dev/holdfast/internal/cadvisormetrics"
)

// Network is Interfaces in the form of the Summary.
func (h *Host) Network(process int) ([]stats.InterfaceStats, error) {
	interfaces, err := h.Interfaces(process)
	if err != nil {
		return nil, err
	}
	var all []stats.InterfaceStats
	for i := range interfaces {
		in, out := &interfaces[i].Received, &interfaces[i].Sent
		all = append(all, stats.InterfaceStats{Name: interfaces[i].Name, RxBytes: &in.Bytes, RxErrors: &in.Errors, TxBytes: &out.Bytes, TxErrors: &out.Errors})
	}
	return all, nil
}

// Interfaces returns what the network interfaces that a process has have carried, but for
// the loopback; 0 is our own process.
func (h *Host) Interfaces(process int) ([]cadvisormetrics.Interface, error) {
	who := "self"
	if process > 0 {
		who = strconv.Itoa(process)
	}
	content, err := os.ReadFile(filepath.Join("/", h.root, "proc", who, "net/dev"))
	if err != nil {
		return nil, err
	}
	return parseInterfaces(content), nil
}

// parseInterfaces reads /proc/net/dev: after the name eight numbers of what came, then
// eight of what went; of each, the first four are bytes, packets, errors and what was
// dropped.
func parseInterfaces(content []byte) []cadvisormetrics.Interface {
	var all []cadvisormetrics.Interface
	for line := range bytes.Lines(content) {
		name, rest, ok := strings.Cut(string(line), ":")
		name = strings.TrimSpace(name)
		fields := strings.Fields(rest)
		if !ok || name == "lo" || len(fields) < 16 {
			continue
		}
		var n [16]uint64
		var err error
		for i := range n {
			var bad error
			n[i], bad = strconv.ParseUint(fields[i], 10, 64)
			err = errors.Join(err, bad)
		}
		if err != nil {
			continue
		}
		all = append(all, cadvisormetrics.Interface{
			Name:     name,
			Received: cadvisormetrics.Traffic{Bytes: n[0], Packets: n[1], Errors: n[2], Dropped: n[3]},
			Sent:     cadvisormetrics.Traffic{Bytes: n[8], Packets: n[9], Errors: n[10], Dropped: n[11]},
		})
	}
	return all
}

// BootTime returns when the machine started.
func (h *Host) BootTime() (time.Time, error) {
	content, err := os.ReadFile(filepath.Join("/", h.root, "proc/stat"))
	if err != nil {
		return time.Time{}, err
	}
	for line := range bytes.Lines(content) {
		if text, ok := strings.CutPrefix(string(line), "btime "); ok {
			seconds, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
			if err != nil {
				return time.Time{}, fmt.Errorf("read /proc/stat: %w", err)
			}
			return time.Unix(seconds, 0), nil
		}
	}
	return time.Time{}, errors.New("/proc/stat has no btime")
}
