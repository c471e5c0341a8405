package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/kubernetes/pkg/volume/util/fs"

	"github.com/holdfast-dev/holdfast/internal/diskusage"
)

const perFolder = 100

// A side counts the files in a folder, and returns the bytes of their blocks.
type side struct {
	name  string
	count func(ctx context.Context, dir string) (bytes uint64, err error)
}

// sides are measured in this order, in every round.
func sides() []side {
	return []side{
		{"upstream", func(_ context.Context, dir string) (uint64, error) {
			used, err := fs.DiskUsage(dir)
			return uint64(used.Bytes), err //nolint:gosec // never negative
		}},
		{"ours", func(ctx context.Context, dir string) (uint64, error) {
			used, err := diskusage.Measure(ctx, dir, diskusage.Options{})
			return used.Bytes, err
		}},
		{"background", func(ctx context.Context, dir string) (uint64, error) {
			used, err := diskusage.Measure(ctx, dir, diskusage.Options{Background: true})
			return used.Bytes, err
		}},
		{"du", func(ctx context.Context, dir string) (uint64, error) {
			return program(ctx, "du", "-s", "-B1", dir)
		}},
		{"find", func(ctx context.Context, dir string) (uint64, error) {
			return program(ctx, "sh", "-c", `find "$0" -printf '%b\n' | awk '{ blocks += $1 } END { printf "%.0f", blocks * 512 }'`, dir)
		}},
	}
}

// program runs one that prints a number first.
func program(ctx context.Context, name string, args ...string) (uint64, error) {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	first, _, _ := bytes.Cut(out, []byte("\t"))
	return strconv.ParseUint(string(bytes.TrimSpace(first)), 10, 64)
}

// walks writes the table of counts.
func walks(ctx context.Context, to io.Writer, o options) error {
	fmt.Fprint(to, "| files | the kernel's caches | upstream | Holdfast | time | Holdfast, in the background | `du` | `find` | upstream, garbage | Holdfast | garbage |\n|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, files := range o.files {
		if err := walk(ctx, to, o, files); err != nil {
			return err
		}
	}
	fmt.Fprintln(to)
	return nil
}

func walk(ctx context.Context, to io.Writer, o options, files int) (err error) {
	dir, err := os.MkdirTemp(o.dir, "holdfast-bench-diskusage-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	fmt.Fprintf(progress, "make %d files\n", files)
	if err := fill(dir, files); err != nil {
		return err
	}
	for _, cold := range []bool{false, true} {
		all := map[string]costs{}
		for round := range o.rounds {
			fmt.Fprintf(progress, "%d files, cold %v, round %d of %d\n", files, cold, round+1, o.rounds)
			if err := turn(ctx, dir, cold, all); err != nil {
				return err
			}
		}
		row(to, files, cold, all)
	}
	return nil
}

// fill makes files of one byte.
func fill(dir string, files int) error {
	for i := range files {
		folder := filepath.Join(dir, strconv.Itoa(i/perFolder/perFolder), strconv.Itoa(i/perFolder))
		if i%perFolder == 0 {
			if err := os.MkdirAll(folder, 0o755); err != nil {
				return err
			}
		}
		if err := os.WriteFile(filepath.Join(folder, strconv.Itoa(i)), []byte("x"), 0o644); err != nil {
			return err
		}
	}
	unix.Sync()
	return nil
}

// turn has each side count once.
func turn(ctx context.Context, dir string, cold bool, all map[string]costs) error {
	var want uint64
	for _, s := range sides() {
		if cold {
			if err := os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0); err != nil {
				return err
			}
		} else if _, err := s.count(ctx, dir); err != nil { // the first one warms
			return err
		}
		one, got, err := measure(func() (uint64, error) { return s.count(ctx, dir) })
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		if want == 0 {
			want = got
		}
		if got != want {
			return fmt.Errorf("%s counts %d bytes, upstream %d", s.name, got, want)
		}
		all[s.name] = append(all[s.name], one)
	}
	return nil
}

// cost is what a count costs.
type cost struct {
	wall    time.Duration
	garbage uint64 // bytes that this process allocated
}

// measure returns what a count costs, and its result. Nothing else runs in this process.
func measure(count func() (uint64, error)) (cost, uint64, error) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	began := time.Now()
	got, err := count()
	took := time.Since(began)
	runtime.ReadMemStats(&after)
	return cost{took, after.TotalAlloc - before.TotalAlloc}, got, err
}

// costs are those of one side, round by round.
type costs []cost

func (c costs) median() cost {
	var walls []time.Duration
	var garbage []uint64
	for _, one := range c {
		walls, garbage = append(walls, one.wall), append(garbage, one.garbage)
	}
	slices.Sort(walls)
	slices.Sort(garbage)
	return cost{walls[len(walls)/2], garbage[len(garbage)/2]}
}

func row(to io.Writer, files int, cold bool, all map[string]costs) {
	caches := "warm"
	if cold {
		caches = "empty"
	}
	u, o := all["upstream"].median(), all["ours"].median()
	fmt.Fprintf(to, "| %d | %s | %s | %s | %.2f | %s | %s | %s | %s | %s | %.4f |\n", files, caches,
		short(u.wall), short(o.wall), float64(o.wall)/float64(u.wall),
		short(all["background"].median().wall), short(all["du"].median().wall), short(all["find"].median().wall),
		kib(u.garbage), kib(o.garbage), float64(o.garbage)/float64(u.garbage))
}

// short is a length of time to about three digits.
func short(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d >= time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	case d >= 10*time.Millisecond:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	default:
		return fmt.Sprintf("%d µs", d.Microseconds())
	}
}

func kib(n uint64) string { return fmt.Sprintf("%d KiB", n/1024) }
