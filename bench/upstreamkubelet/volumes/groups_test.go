package main

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// BenchmarkFSGroup gives 100,000 files to a group, on both sides. It needs root,
// and TMPDIR on the disk to measure.
func BenchmarkFSGroup(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("files are given away by root alone")
	}
	dir := b.TempDir()
	if err := makeFiles(dir, 100_000); err != nil {
		b.Fatal(err)
	}
	for _, kind := range trees {
		b.Run(kind.name, func(b *testing.B) {
			for name, give := range givers(b.Context(), dir) {
				b.Run(name, func(b *testing.B) { kind.bench(b, dir, give) })
			}
		})
	}
}

func (k tree) bench(b *testing.B, dir string, give func() error) {
	b.ReportAllocs()
	var used time.Duration
	for b.Loop() {
		b.StopTimer()
		if err := k.reset(dir); err != nil {
			b.Fatal(err)
		}
		unix.Sync()
		before := processorTime()
		b.StartTimer()
		if err := give(); err != nil {
			b.Fatal(err)
		}
		used += processorTime() - before
	}
	b.ReportMetric(float64(used.Nanoseconds())/float64(b.N), "cpu-ns/op")
}
