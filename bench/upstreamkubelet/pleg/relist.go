package main

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"time"
)

// cost is what one relist costs.
type cost struct {
	wall  time.Duration
	bytes int64
}

// measure returns what a call costs this process. Nothing else runs in it.
func measure(call func()) cost {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	call()
	c := cost{wall: time.Since(began)}
	runtime.ReadMemStats(&after)
	c.bytes = int64(after.TotalAlloc - before.TotalAlloc) //nolint:gosec // small
	return c
}

// least returns the least of each.
func least(all []cost) cost {
	c := all[0]
	for _, other := range all[1:] {
		c = cost{min(c.wall, other.wall), min(c.bytes, other.bytes)}
	}
	return c
}

// relists writes the table of relists.
func relists(ctx context.Context, to *strings.Builder, rounds int) error {
	to.WriteString("| relist until its last event is received | upstream | Holdfast | time | upstream, allocated, KiB | Holdfast |\n|---|---|---|---|---|---|\n")
	for _, pods := range []int{110, 500, 2000} {
		for _, inspect := range []time.Duration{0, 2 * time.Millisecond} {
			for _, changed := range []int{0, 1, pods} {
				if inspect > 0 && changed == 0 {
					continue // nothing is inspected
				}
				if err := relistRow(ctx, to, pods, changed, inspect, rounds); err != nil {
					return err
				}
			}
		}
	}
	to.WriteString("\n")
	return nil
}

func relistRow(ctx context.Context, to *strings.Builder, pods, changed int, inspect time.Duration, rounds int) error {
	fmt.Fprintf(progress, "relist of %d pods, %d changed, inspections of %v\n", pods, changed, inspect)
	ourMachine, upMachine := newMachine(pods), newMachine(pods)
	our := newOurs(ctx, ourMachine)
	up, err := newUpstream(ctx, upMachine)
	if err != nil {
		return err
	}
	ourMachine.setInspect(inspect)
	upMachine.setInspect(inspect)
	if inspect > 0 && changed > 500 {
		rounds = min(rounds, 3) // seconds each, and steady
	}
	var ours, upstreams []cost
	for range rounds {
		upMachine.change(changed)
		upstreams = append(upstreams, measure(func() { up.relist(ctx, changed) }))
		our.renew()
		ourMachine.change(changed)
		ours = append(ours, measure(func() { our.relist(changed) }))
	}
	if err := our.close(); err != nil {
		return err
	}
	of := fmt.Sprint(changed)
	switch changed {
	case 0:
		of = "none"
	case pods:
		of = "all"
	}
	how := ""
	if inspect > 0 {
		how = fmt.Sprintf(", inspections of %v", inspect)
	}
	u, o := least(upstreams), least(ours)
	fmt.Fprintf(to, "| %d pods, %s changed%s | %s | %s | %.2f | %d | %d |\n", pods, of, how,
		short(u.wall), short(o.wall), float64(o.wall)/float64(u.wall), u.bytes>>10, o.bytes>>10)
	return nil
}

// short is three digits of a length of time.
func short(d time.Duration) string {
	switch {
	case d >= 100*time.Millisecond:
		return fmt.Sprintf("%.0f ms", float64(d)/1e6)
	case d >= time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d)/1e6)
	default:
		return fmt.Sprintf("%.0f µs", float64(d)/1e3)
	}
}

// bursts writes how many events come of many changes while nobody receives.
func bursts(ctx context.Context, to *strings.Builder) error {
	to.WriteString("| pods change while nobody receives | events of upstream | events of Holdfast |\n|---|---|---|\n")
	for _, pods := range []int{110, 1000, 2000} {
		our := newOurs(ctx, newMachine(pods))
		our.renew()
		our.change(pods)
		our.gate <- struct{}{}
		<-our.waits // the list is dealt with; the inspections may go on
		got := 0
		for quiet := false; !quiet; {
			select {
			case <-our.generator.Events():
				got++
			case <-time.After(time.Second):
				quiet = true
			}
		}
		if err := our.close(); err != nil {
			return err
		}
		up, err := newUpstream(ctx, newMachine(pods))
		if err != nil {
			return err
		}
		up.change(pods)
		up.generator.Relist(ctx)
		fmt.Fprintf(to, "| %d | %d | %d |\n", pods, len(up.events), got)
	}
	return nil
}
