package eviction

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// A look is one reading: what is left of signals with a capacity of 1000 each,
// so long after the first, and what follows.
type look struct {
	after time.Duration
	left  map[Signal]int64
	want  string // conditions; signals to act on
}

// TestDecide holds what follows from one reading after another.
func TestDecide(t *testing.T) {
	type of = map[Signal]int64
	type by = map[string]string
	hard := Settings{Hard: by{"memory.available": "100"}}
	soft := Settings{Hard: by{"memory.available": "100"}, Soft: by{"memory.available": "200"}, SoftGracePeriod: by{"memory.available": "2m"}}
	reclaim := Settings{Hard: by{"nodefs.available": "10%"}, MinimumReclaim: by{"nodefs.available": "50"}}
	const m = time.Minute
	for name, test := range map[string]struct {
		settings Settings
		looks    []look
	}{
		"nothing is low":      {hard, []look{{0, of{MemoryAvailable: 500}, "; "}}},
		"exactly at it":       {hard, []look{{0, of{MemoryAvailable: 100}, "; "}}},
		"just below it":       {hard, []look{{0, of{MemoryAvailable: 99}, "MemoryPressure; memory.available"}}},
		"not known":           {hard, []look{{0, nil, "; "}}},
		"no longer known":     {hard, []look{{0, of{MemoryAvailable: 1}, "MemoryPressure; memory.available"}, {m, nil, "MemoryPressure; "}, {6 * m, nil, "; "}}},
		"a percentage":        {Settings{Hard: by{"nodefs.available": "10%"}}, []look{{0, of{NodeFSAvailable: 100}, "; "}, {m, of{NodeFSAvailable: 99}, "DiskPressure; nodefs.available"}}},
		"memory of all pods":  {hard, []look{{0, of{AllocatableMemoryAvailable: 99, MemoryAvailable: 500}, "MemoryPressure; allocatableMemory.available"}}},
		"inodes":              {Settings{Hard: by{"imagefs.inodesFree": "5%"}}, []look{{0, of{ImageFSInodesFree: 49}, "DiskPressure; imagefs.inodesFree"}}},
		"process identifiers": {Settings{Hard: by{"pid.available": "10"}}, []look{{0, of{PIDAvailable: 9}, "PIDPressure; pid.available"}}},
		"the filesystem of layers": {Settings{Hard: by{"containerfs.available": "10%", "containerfs.inodesFree": "10%"}}, []look{
			{0, of{ContainerFSAvailable: 99, ContainerFSInodesFree: 99}, "DiskPressure; containerfs.available containerfs.inodesFree"},
		}},
		"memory goes before all others": {
			Settings{Hard: by{"pid.available": "10", "nodefs.available": "10", "memory.available": "10"}},
			[]look{{0, of{PIDAvailable: 1, NodeFSAvailable: 1, MemoryAvailable: 1}, "DiskPressure MemoryPressure PIDPressure; memory.available nodefs.available pid.available"}},
		},
		"the condition stays for the transition period": {hard, []look{
			{0, of{MemoryAvailable: 50}, "MemoryPressure; memory.available"},
			{1 * m, of{MemoryAvailable: 500}, "MemoryPressure; "},
			{4*m + 59*time.Second, of{MemoryAvailable: 500}, "MemoryPressure; "},
			{5 * m, of{MemoryAvailable: 500}, "; "},
		}},
		"the period begins again each time": {hard, []look{
			{0, of{MemoryAvailable: 50}, "MemoryPressure; memory.available"},
			{3 * m, of{MemoryAvailable: 50}, "MemoryPressure; memory.available"},
			{7 * m, of{MemoryAvailable: 500}, "MemoryPressure; "},
			{8 * m, of{MemoryAvailable: 500}, "; "},
		}},
		"a soft one waits, its condition does not": {soft, []look{
			{0, of{MemoryAvailable: 150}, "MemoryPressure; "},
			{1 * m, of{MemoryAvailable: 150}, "MemoryPressure; "},
			{2 * m, of{MemoryAvailable: 150}, "MemoryPressure; memory.available(soft)"},
		}},
		"a soft one that was not crossed for a moment waits anew": {soft, []look{
			{0, of{MemoryAvailable: 150}, "MemoryPressure; "},
			{1 * m, of{MemoryAvailable: 250}, "MemoryPressure; "},
			{2 * m, of{MemoryAvailable: 150}, "MemoryPressure; "},
			{4 * m, of{MemoryAvailable: 150}, "MemoryPressure; memory.available(soft)"},
		}},
		"a hard one does not wait for a soft one": {soft, []look{
			{0, of{MemoryAvailable: 150}, "MemoryPressure; "},
			{time.Second, of{MemoryAvailable: 50}, "MemoryPressure; memory.available"},
			{3 * m, of{MemoryAvailable: 50}, "MemoryPressure; memory.available memory.available(soft)"},
		}},
		"reached only with the minimum to reclaim": {reclaim, []look{
			{0, of{NodeFSAvailable: 99}, "DiskPressure; nodefs.available"},
			{m, of{NodeFSAvailable: 149}, "DiskPressure; nodefs.available"},
			{2 * m, of{NodeFSAvailable: 150}, "DiskPressure; "},
			{3 * m, of{NodeFSAvailable: 149}, "DiskPressure; "},
		}},
		"the minimum does not count before": {reclaim, []look{{0, of{NodeFSAvailable: 120}, "; "}}},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := Parse(test.settings)
			if err != nil {
				t.Fatal(err)
			}
			var h history
			for i, look := range test.looks {
				var v verdict
				h, v = p.decide(h, readings(look.left), epoch.Add(look.after))
				if got := written(&p, v); got != look.want {
					t.Errorf("look %d: %q, want %q", i, got, look.want)
				}
			}
		})
	}
}

func readings(left map[Signal]int64) observations {
	seen := observations{}
	for signal, n := range left {
		seen[signal] = observation{available: n, capacity: 1000}
	}
	return seen
}

func written(p *Policy, v verdict) string {
	var conditions, act []string
	for _, c := range v.conditions {
		conditions = append(conditions, string(c))
	}
	for _, i := range v.act {
		text := string(p.thresholds[i].signal)
		if p.thresholds[i].soft {
			text += "(soft)"
		}
		act = append(act, text)
	}
	return fmt.Sprintf("%s; %s", strings.Join(conditions, " "), strings.Join(act, " "))
}

// TestStillCrossed holds that after room was made only what it was made for
// counts.
func TestStillCrossed(t *testing.T) {
	p, err := Parse(Settings{
		Hard:           map[string]string{"nodefs.available": "100", "nodefs.inodesFree": "100", "memory.available": "100"},
		MinimumReclaim: map[string]string{"nodefs.available": "50"},
	})
	if err != nil {
		t.Fatal(err)
	}
	var act []int
	for i := range p.thresholds {
		act = append(act, i)
	}
	disk := p.thresholds[len(p.thresholds)-1]
	for name, test := range map[string]struct {
		left map[Signal]int64
		want bool
	}{
		"reached":                   {map[Signal]int64{NodeFSAvailable: 150, NodeFSInodesFree: 100, MemoryAvailable: 1}, false},
		"the minimum is missing":    {map[Signal]int64{NodeFSAvailable: 149, NodeFSInodesFree: 100}, true},
		"another one of the disk's": {map[Signal]int64{NodeFSAvailable: 150, NodeFSInodesFree: 99}, true},
		"not known":                 {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := p.stillCrossed(act, disk, readings(test.left)); got != test.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

// TestSignals holds what each signal is about.
func TestSignals(t *testing.T) {
	got := map[Signal][2]string{}
	for _, s := range signals {
		got[s] = [2]string{string(s.resource()), string(s.condition())}
	}
	disk, files := [2]string{"ephemeral-storage", string(v1.NodeDiskPressure)}, [2]string{"inodes", string(v1.NodeDiskPressure)}
	memory := [2]string{"memory", string(v1.NodeMemoryPressure)}
	if diff := cmp.Diff(got, map[Signal][2]string{
		MemoryAvailable: memory, AllocatableMemoryAvailable: memory, PIDAvailable: {"pids", string(v1.NodePIDPressure)},
		NodeFSAvailable: disk, ImageFSAvailable: disk, ContainerFSAvailable: disk,
		NodeFSInodesFree: files, ImageFSInodesFree: files, ContainerFSInodesFree: files,
	}); diff != "" {
		t.Error(diff)
	}
}
