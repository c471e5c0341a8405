package nodeshutdown

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-dev/holdfast/internal/atomicfile"
)

// A state is the content of the state file, upstream's of the same name.
type state struct {
	StartTime time.Time `json:"startTime"`
	EndTime   time.Time `json:"endTime"` // zero: it has not ended, or was cut off
}

// metrics are upstream's.
type metrics struct {
	start, end prometheus.Gauge
}

func newMetrics(registerer prometheus.Registerer) *metrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	m := &metrics{
		start: gauge("kubelet_graceful_shutdown_start_time_seconds", "Last graceful shutdown start time since unix epoch in seconds"),
		end:   gauge("kubelet_graceful_shutdown_end_time_seconds", "Last graceful shutdown end time since unix epoch in seconds"),
	}
	if registerer != nil {
		registerer.MustRegister(m.start, m.end)
	}
	return m
}

func (m *metrics) set(s state) {
	m.start.Set(seconds(s.StartTime))
	m.end.Set(seconds(s.EndTime))
}

func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.Unix())
}

// load reads what an earlier process kept; a missing file is none.
func (m *metrics) load(path string) error {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var s state
	if err := json.Unmarshal(data, &s); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	m.set(s)
	return nil
}

// keep writes the file, whole or not at all.
func (m *metrics) keep(path string, s state) error {
	m.set(s)
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return atomicfile.Write(path, data, 0o644)
}
