package main

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// A cache is what both can do. A status is whatever each one stores.
type cache interface {
	set(uid types.UID, t time.Time)
	get(uid types.UID)
	newerThan(uid types.UID, t time.Time)
	updateTime(t time.Time)
}

// rounds is how often everything is measured.
const rounds = 5

func report() string {
	var b strings.Builder
	b.WriteString("| pod status cache, 1,000 pods | upstream | Holdfast | time | upstream, allocated | Holdfast, allocated |\n|---|---|---|---|---|---|\n")
	for _, c := range cases {
		var least [2]testing.BenchmarkResult
		for range rounds {
			for i, make := range []func() cache{newUpstream, newOurs} {
				r := testing.Benchmark(func(b *testing.B) { c.run(b, make()) })
				if least[i].N == 0 || r.NsPerOp() < least[i].NsPerOp() {
					least[i] = r
				}
			}
		}
		up, our := least[0], least[1]
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", c.name, nanoseconds(up.NsPerOp()), nanoseconds(our.NsPerOp()),
			ratio(our.NsPerOp(), up.NsPerOp()), allocated(up), allocated(our))
	}
	return b.String()
}

func ratio(of, to int64) string {
	if r := float64(of) / float64(to); r >= 0.01 {
		return fmt.Sprintf("%.2f", r)
	}
	return "< 0.01"
}

func nanoseconds(n int64) string {
	if n >= 10_000 {
		return fmt.Sprintf("%.0f µs", float64(n)/1000)
	}
	return fmt.Sprintf("%d ns", n)
}

func allocated(r testing.BenchmarkResult) string {
	return fmt.Sprintf("%d B, %d", r.AllocedBytesPerOp(), r.AllocsPerOp())
}

// pods is how many pods a cache has, and how many readers wait where some do.
const pods = 1000

var uids = func() []types.UID {
	all := make([]types.UID, pods)
	for i := range all {
		all[i] = types.UID(fmt.Sprintf("0b8a2f1c-4d6e-4f7a-9b0c-%012d", i))
	}
	return all
}()

// moment is a moment, later for a greater n.
func moment(n int) time.Time { return began.Add(time.Duration(n) * time.Microsecond) }

var (
	began = time.Now()
	never = began.Add(1000 * time.Hour)
)

func fill(c cache) {
	for _, uid := range uids {
		c.set(uid, moment(0))
	}
}

var cases = []struct {
	name string
	run  func(*testing.B, cache)
}{
	{"write one pod", func(b *testing.B, c cache) {
		fill(c)
		b.ReportAllocs()
		for n := 0; b.Loop(); n++ {
			c.set(uids[n%pods], moment(n))
		}
	}},
	{"read one pod", func(b *testing.B, c cache) {
		fill(c)
		b.ReportAllocs()
		for n := 0; b.Loop(); n++ {
			c.get(uids[n%pods])
		}
	}},
	{"read one pod, newer than a moment before", func(b *testing.B, c cache) {
		fill(c)
		c.updateTime(moment(2))
		b.ReportAllocs()
		for n := 0; b.Loop(); n++ {
			c.newerThan(uids[n%pods], moment(1))
		}
	}},
	{"time of the whole cache, nobody waits", func(b *testing.B, c cache) {
		fill(c)
		b.ReportAllocs()
		for n := 0; b.Loop(); n++ {
			c.updateTime(moment(n))
		}
	}},
	{"the same, 1,000 readers wait for later", func(b *testing.B, c cache) {
		fill(c)
		var readers sync.WaitGroup
		for _, uid := range uids {
			readers.Go(func() { c.newerThan(uid, never) })
		}
		<-time.After(100 * time.Millisecond) // until they wait
		b.ReportAllocs()
		n := 0
		for b.Loop() {
			c.updateTime(moment(n))
			n++
		}
		c.updateTime(never.Add(1))
		readers.Wait()
	}},
	{"1,000 readers come, wait, and are woken by it", func(b *testing.B, c cache) {
		fill(c)
		b.ReportAllocs()
		for n := 0; b.Loop(); n++ {
			wanted := moment(2 * n)
			var readers sync.WaitGroup
			for _, uid := range uids {
				readers.Go(func() { c.newerThan(uid, wanted) })
			}
			c.updateTime(moment(2*n + 1))
			readers.Wait()
		}
	}},
}
