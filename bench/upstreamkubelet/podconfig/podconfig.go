package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-dev/holdfast/bench/page"
)

// A workload is what a source delivers step by step.
type workload struct {
	name   string
	pods   func(n int) int // how many pods a step changes
	relist bool            // those pods are the same, decoded anew
	spec   bool            // their spec changes, else their status
	want   string          // the update that each step gives; "": none
	aim    float64         // share of upstream's time and allocations; 0: none
}

func none(int) int  { return 0 }
func one(int) int   { return 1 }
func all(n int) int { return n }

// sizes are numbers of pods: what a node holds by default, a large one, and far
// beyond.
var sizes = []int{110, 500, 5000}

// perRound is how many steps are measured at once: enough that the clock is
// exact, and few enough that their pods fit into memory.
func perRound(w workload, n int) int {
	return max(2, min(400, 40_000/n, 20_000/max(1, w.pods(n))))
}

var workloads = []workload{
	{name: "unchanged", pods: none},
	{name: "unchanged, listed anew", pods: all, relist: true},
	{name: "one spec changed", pods: one, spec: true, want: "UPDATE", aim: 1. / 10},
	{name: "one status changed", pods: one, want: "RECONCILE", aim: 1. / 10},
	{name: "all statuses changed", pods: all, want: "RECONCILE", aim: 1. / 3},
}

// A cost is what one step costs.
type cost struct {
	cpu    time.Duration // of the whole process, garbage collection too
	bytes  uint64
	allocs uint64
}

func run(ctx context.Context, file string, rounds int) error {
	head, err := page.Head("podconfig", fmt.Sprintf("Median of %d", rounds))
	if err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString(head)
	b.WriteString("| pods | a set with | upstream | ours | share of time, allocations | ours, as a delta | share of time, allocations | aim |\n|---|---|---|---|---|---|---|---|\n")
	for _, n := range sizes {
		for _, w := range workloads {
			up, err := measure(newUpstream(ctx), w, n, rounds)
			if err != nil {
				return fmt.Errorf("%d pods, %s, upstream: %w", n, w.name, err)
			}
			full, err := measure(newOurs(false), w, n, rounds)
			if err != nil {
				return fmt.Errorf("%d pods, %s, ours: %w", n, w.name, err)
			}
			delta, deltaShare, aim := "", "", ""
			if w.want != "" {
				c, err := measure(newOurs(true), w, n, rounds)
				if err != nil {
					return fmt.Errorf("%d pods, %s, ours as a delta: %w", n, w.name, err)
				}
				delta, deltaShare = c.String(), share(c, up)
				aim = fmt.Sprintf("1/%.0f", 1/w.aim)
			}
			line := fmt.Sprintf("| %d | %s | %s | %s | %s | %s | %s | %s |\n", n, w.name, up, full, share(full, up), delta, deltaShare, aim)
			b.WriteString(line)
			fmt.Fprint(os.Stderr, line)
		}
	}
	if file == "" {
		fmt.Fprint(os.Stdout, b.String())
		return nil
	}
	return page.Replace(file, "podconfig", b.String())
}

// measure returns the median cost of a step. Steps are made before the clock
// runs, the same for every merger, and what a step gives is checked.
func measure(m merger, w workload, n, rounds int) (cost, error) {
	in := newInput(n)
	m.send(step{all: in.set})
	if u := m.recv(); u != (update{"ADD", n}) {
		return cost{}, fmt.Errorf("the first set gave %v", u)
	}
	var costs []cost
	for range rounds {
		c, err := round(m, w, in.steps(w, perRound(w, n)))
		if err != nil {
			return cost{}, err
		}
		costs = append(costs, c)
	}
	return median(costs), nil
}

// round merges steps. Where they give no update, the last may still be merged
// when the clock stops: one in hundreds.
func round(m merger, w workload, steps []step) (cost, error) {
	want := update{w.want, len(steps[0].changed)}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	start, wrong := processTime(), 0
	for _, s := range steps {
		m.send(s)
		if w.want != "" && m.recv() != want {
			wrong++
		}
	}
	spent := processTime() - start
	runtime.ReadMemStats(&after)
	if wrong > 0 {
		return cost{}, errors.New("steps gave other updates than wanted")
	}
	merged := uint64(len(steps))
	return cost{spent / time.Duration(merged), (after.TotalAlloc - before.TotalAlloc) / merged, (after.Mallocs - before.Mallocs) / merged}, nil
}

// processTime is the processor time of the process: what other programs of the
// machine do does not count.
func processTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t); err != nil {
		panic(err) // every Linux has this clock
	}
	return time.Duration(t.Nano())
}

func median(costs []cost) cost {
	return cost{
		medianOf(costs, func(c cost) time.Duration { return c.cpu }),
		medianOf(costs, func(c cost) uint64 { return c.bytes }),
		medianOf(costs, func(c cost) uint64 { return c.allocs }),
	}
}

func medianOf[T int64 | uint64 | time.Duration](costs []cost, of func(cost) T) T {
	var all []T
	for _, c := range costs {
		all = append(all, of(c))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

func (c cost) String() string {
	return fmt.Sprintf("%s, %.1f KiB, %d allocs", micros(c.cpu), float64(c.bytes)/1024, c.allocs)
}

func micros(d time.Duration) string {
	switch us := float64(d) / float64(time.Microsecond); {
	case us < 10:
		return fmt.Sprintf("%.1f µs", us)
	case us < 1000:
		return fmt.Sprintf("%.0f µs", us)
	default:
		return fmt.Sprintf("%.1f ms", us/1000)
	}
}

func share(of, beside cost) string {
	return fmt.Sprintf("%s, %s", fraction(float64(of.cpu), float64(beside.cpu)), fraction(float64(of.allocs), float64(beside.allocs)))
}

func fraction(of, beside float64) string {
	if of == 0 {
		return "0"
	}
	return fmt.Sprintf("1/%.1f", beside/of)
}
