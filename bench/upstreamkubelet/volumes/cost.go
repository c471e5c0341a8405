package main

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// cost is what an operation costs.
type cost struct {
	wall time.Duration
	cpu  time.Duration // of this process and of the programs that it ran
}

// measure returns what a call costs. Nothing else runs in this process, and
// nothing of what came before is still to be written to the disk.
func measure(call func() error) (cost, error) {
	runtime.GC()
	unix.Sync()
	began, used := time.Now(), processorTime()
	err := call()
	return cost{time.Since(began), processorTime() - used}, err
}

func processorTime() time.Duration {
	var sum time.Duration
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var usage unix.Rusage
		if unix.Getrusage(who, &usage) == nil {
			sum += time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
		}
	}
	return sum
}

// costs are those of one operation, round by round.
type costs []cost

func (c costs) median() cost {
	var walls, cpus []time.Duration
	for _, one := range c {
		walls, cpus = append(walls, one.wall), append(cpus, one.cpu)
	}
	slices.Sort(walls)
	slices.Sort(cpus)
	return cost{walls[len(walls)/2], cpus[len(cpus)/2]}
}

const head = "| %s | upstream | Holdfast | time | upstream, processor | Holdfast | processor |\n|---|---|---|---|---|---|---|\n"

// row writes one operation of both.
func row(to io.Writer, what string, upstream, ours costs) {
	u, o := upstream.median(), ours.median()
	fmt.Fprintf(to, "| %s | %s | %s | %.2f | %s | %s | %.2f |\n", what,
		short(u.wall), short(o.wall), float64(o.wall)/float64(u.wall),
		short(u.cpu), short(o.cpu), float64(o.cpu)/float64(u.cpu))
}

// short is a length of time to about three digits.
func short(d time.Duration) string {
	if d >= 100*time.Millisecond {
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f ms", float64(d)/1e6)
}
