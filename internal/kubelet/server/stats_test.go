package server

import (
	"context"
	"errors"
	"net/http"
	"testing"
)

// fakeStats answers with what was asked.
type fakeStats struct{ err error }

func (f fakeStats) SummaryJSON(_ context.Context, cpuAndMemory bool) ([]byte, error) {
	if cpuAndMemory {
		return []byte("small"), f.err
	}
	return []byte("full"), f.err
}

func (f fakeStats) ResourceMetrics(context.Context) ([]byte, error) { return []byte("series"), f.err }

func (f fakeStats) CadvisorMetrics(context.Context) ([]byte, error) { return []byte("many"), f.err }

func TestStats(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Stats = fakeStats{} })
	for path, want := range map[string]string{
		"/stats/summary": "full", "/stats/summary/": "full", "/stats/summary?only_cpu_and_memory=true": "small",
		"/stats/summary?only_cpu_and_memory=1": "full", "/metrics/resource": "series", "/metrics/cadvisor": "many",
	} {
		if code, body := r.get(path); code != http.StatusOK || body != want {
			t.Errorf("GET %s = %d %q, want %q", path, code, body, want)
		}
	}
	broken := newRig(t, func(c *Config) { c.Stats = fakeStats{errors.New("not yet")} })
	for _, path := range []string{"/stats/summary", "/metrics/resource", "/metrics/cadvisor"} {
		if code, _ := broken.get(path); code != http.StatusInternalServerError {
			t.Errorf("GET %s without figures = %d", path, code)
		}
	}
}
