package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestQuantile(t *testing.T) {
	ten := series{10, 9, 8, 7, 6, 5, 4, 3, 2, 1}
	for _, c := range []struct {
		name string
		s    series
		q    float64
		want time.Duration
	}{
		{"none", nil, 0.5, 0},
		{"one", series{7}, 0.9, 7},
		{"smallest", ten, 0, 1},
		{"median of an even number", ten, 0.5, 5},
		{"median of an odd number", series{3, 1, 2}, 0.5, 2},
		{"nine of ten", ten, 0.9, 9},
		{"largest", ten, 1, 10},
	} {
		if got := c.s.quantile(c.q); got != c.want {
			t.Errorf("%s: got %d, want %d", c.name, got, c.want)
		}
	}
	if ten[0] != 10 {
		t.Error("quantile sorted its receiver")
	}
}

func TestReplaceBetween(t *testing.T) {
	beginMarker, endMarker := markers("part")
	page := "# Title\n" + beginMarker + "\nold\n" + endMarker + "\nend\n"
	got, err := replaceBetween(page, "part", "new\n")
	if err != nil {
		t.Fatal(err)
	}
	if want := "# Title\n" + beginMarker + "\n\nnew\n\n" + endMarker + "\nend\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for name, page := range map[string]string{"no markers": "x", "no end": beginMarker, "wrong order": endMarker + beginMarker} {
		if _, err := replaceBetween(page, "part", "new"); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestProc(t *testing.T) {
	dir := t.TempDir()
	for file, text := range map[string]string{"1": "1500 20 3\n", "2": "500 0 1\n"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	threads := []string{filepath.Join(dir, "1"), filepath.Join(dir, "ended"), filepath.Join(dir, "2")}
	if got, err := cpuTime(threads); err != nil || got != 2*time.Microsecond {
		t.Errorf("cpuTime: got %v, %v, want 2µs", got, err)
	}
	if err := os.WriteFile(threads[0], []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := cpuTime(threads); err == nil {
		t.Error("cpuTime of no number: no error")
	}
	if got, err := numberField("rchar: 1\nwrite_bytes: 4096\n", "write_bytes:"); err != nil || got != 4096 {
		t.Errorf("numberField: got %d, %v, want 4096", got, err)
	}
	status := "Name:\tx\nVmRSS:\t    200 kB\nRssAnon:\t    100 kB\n"
	if got, err := kibField(status, "RssAnon:"); err != nil || got != 100<<10 {
		t.Errorf("kibField: got %d, %v, want %d", got, err, 100<<10)
	}
	if _, err := kibField(status, "RssFile:"); err == nil {
		t.Error("kibField of a field that is not there: no error")
	}
}

func TestMarkdown(t *testing.T) {
	r := &report{
		Cold:     starts{API: series{time.Second}, Ready: series{2 * time.Second}, Pod: series{3 * time.Second}},
		Idle:     []idle{{Pods: 1, Over: time.Minute, Node: usage{Anon: 50 << 20, RSS: 100 << 20, CPU: 600 * time.Millisecond, Written: 2 << 20}}},
		PodStart: series{500 * time.Millisecond},
	}
	got := r.markdown()
	for _, want := range []string{
		"| new node: ready for pods | 2.00 | 2.00 | 2.00 |",
		"| create → Ready, image present | 0.50 | 0.50 | 0.50 | 0.50 |",
		"| 1 pod | 50 | 100 | 1.00 | 2048 | 0 | 0.00 | 0 |",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no line %q in:\n%s", want, got)
		}
	}
}
