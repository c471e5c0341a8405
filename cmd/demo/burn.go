package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"time"
)

// burn uses up one resource, to show limits and metrics at work.
func burn(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 0 {
		return fmt.Errorf("burn takes cpu, memory or disk: %w", errUsage)
	}
	what, args := args[0], args[1:]
	switch what {
	case "cpu":
		return burnCPU(ctx, args)
	case "memory":
		return burnMemory(ctx, args, out)
	case "disk":
		return burnDisk(ctx, args, out)
	default:
		return fmt.Errorf("burn takes cpu, memory or disk, not %q: %w", what, errUsage)
	}
}

func burnCPU(ctx context.Context, args []string) error {
	if len(args) > 1 {
		return fmt.Errorf("burn cpu takes at most one duration: %w", errUsage)
	}
	d, err := optionalDuration(args)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	x := uint64(1)
	for ctx.Err() == nil {
		for range 1 << 16 {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
		}
	}
	if x == 0 { // never: keeps the loop from being optimized away
		return errors.New("the generator reached zero")
	}
	return nil
}

func burnMemory(ctx context.Context, args []string, out io.Writer) error {
	if len(args) < 1 || len(args) > 2 {
		return fmt.Errorf("burn memory takes a size and maybe a duration: %w", errUsage)
	}
	size, err := parseSize(args[0])
	if err != nil {
		return err
	}
	d, err := optionalDuration(args[1:])
	if err != nil {
		return err
	}
	held, err := hold(size)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "holding %d bytes\n", size)
	err = pauseFor(ctx, d)
	for _, piece := range held {
		piece[0]++ // used after the wait, so that it is not collected before
	}
	return err
}

// hold allocates size bytes in pieces and touches every page, because memory
// that was never written is not resident.
func hold(size int64) ([][]byte, error) {
	const piece, page = 4 << 20, 4 << 10
	if size > math.MaxInt64/2 {
		return nil, fmt.Errorf("size of %d bytes is more than any machine has: %w", size, errUsage)
	}
	var held [][]byte
	for size > 0 {
		b := make([]byte, min(size, piece))
		for i := 0; i < len(b); i += page {
			b[i] = 1
		}
		held = append(held, b)
		size -= int64(len(b))
	}
	return held, nil
}

func burnDisk(ctx context.Context, args []string, out io.Writer) error {
	if len(args) != 2 {
		return fmt.Errorf("burn disk takes a path and a size: %w", errUsage)
	}
	size, err := parseSize(args[1])
	if err != nil {
		return err
	}
	f, err := os.Create(args[0])
	if err != nil {
		return err
	}
	written, err := fill(ctx, f, size)
	err = errors.Join(err, f.Sync(), f.Close())
	fmt.Fprintf(out, "wrote %d of %d bytes to %s\n", written, size, args[0])
	return err
}

// fill writes size bytes that a compressing filesystem cannot shrink to
// nothing, until ctx ends.
func fill(ctx context.Context, w io.Writer, size int64) (int64, error) {
	block := make([]byte, 1<<20)
	x := uint32(2463534242)
	for i := range block {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		block[i] = byte(x)
	}
	var written int64
	for written < size && ctx.Err() == nil {
		n, err := w.Write(block[:min(size-written, int64(len(block)))])
		written += int64(n)
		if err != nil {
			return written, err
		}
	}
	return written, nil
}

func optionalDuration(args []string) (time.Duration, error) {
	if len(args) == 0 {
		return math.MaxInt64, nil
	}
	return parseDuration(args[0])
}

// units are the suffixes of Kubernetes quantities.
var units = []struct {
	suffix string
	bytes  int64
}{
	{"Ki", 1 << 10},
	{"Mi", 1 << 20},
	{"Gi", 1 << 30},
	{"k", 1e3},
	{"K", 1e3},
	{"M", 1e6},
	{"G", 1e9},
}

// parseSize reads a number of bytes such as 4096, 64Mi or 1G.
func parseSize(s string) (int64, error) {
	digits, factor := s, int64(1)
	for _, u := range units {
		if rest, ok := strings.CutSuffix(s, u.suffix); ok {
			digits, factor = rest, u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/factor {
		return 0, fmt.Errorf("size %q is not like 4096, 64Mi or 1G: %w", s, errUsage)
	}
	return n * factor, nil
}
