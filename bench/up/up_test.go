package main

import (
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
	page := "# Title\n" + beginMarker + "\nold\n" + endMarker + "\nend\n"
	got, err := replaceBetween(page, "new\n")
	if err != nil {
		t.Fatal(err)
	}
	if want := "# Title\n" + beginMarker + "\n\nnew\n\n" + endMarker + "\nend\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for name, page := range map[string]string{"no markers": "x", "no end": beginMarker, "wrong order": endMarker + beginMarker} {
		if _, err := replaceBetween(page, "new"); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestProc(t *testing.T) {
	stat := "12 (a (b) c d) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 1"
	if got, err := cpuTime(stat); err != nil || got != 2*time.Second {
		t.Errorf("cpuTime: got %v, %v, want 2s", got, err)
	}
	if _, err := cpuTime("12 (a) S 1"); err == nil {
		t.Error("cpuTime of a short line: no error")
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
		Idle:     []idle{{Pods: 1, Over: time.Minute, Node: usage{Anon: 50 << 20, RSS: 100 << 20, CPU: 600 * time.Millisecond}}},
		PodStart: series{500 * time.Millisecond},
	}
	got := r.markdown()
	for _, want := range []string{
		"| new node: ready for pods | 2.00 | 2.00 | 2.00 |",
		"| create → Ready, image present | 0.50 | 0.50 | 0.50 | 0.50 |",
		"| 1 pod | 50 | 100 | 1.00 | 0 | 0.00 |",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no line %q in:\n%s", want, got)
		}
	}
}
