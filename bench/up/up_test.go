package main

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/bench/podlife"
	"github.com/holdfast-dev/holdfast/bench/procfs"
)

func TestMarkdown(t *testing.T) {
	r := &report{
		Cold:     starts{API: podlife.Series{time.Second}, Ready: podlife.Series{2 * time.Second}, Pod: podlife.Series{3 * time.Second}},
		Idle:     []idle{{Pods: 1, Over: time.Minute, Node: procfs.Usage{Anon: 50 << 20, RSS: 100 << 20, CPU: 600 * time.Millisecond, Written: 2 << 20}}},
		PodStart: podlife.Series{500 * time.Millisecond},
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
