package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-dev/holdfast/internal/qgroup"
)

const groupFiles = 10_000

// groups writes what a question costs to a btrfs that counts by itself. (The kernels of
// this project's machines have no project quota; that is measured nowhere here.)
func groups(ctx context.Context, to io.Writer, o options) (err error) {
	dir, err := os.MkdirTemp(o.dir, "holdfast-bench-btrfs-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	image, disk := filepath.Join(dir, "image"), filepath.Join(dir, "disk")
	if err := errors.Join(os.Mkdir(disk, 0o755), os.WriteFile(image, nil, 0o600), os.Truncate(image, 1<<30)); err != nil {
		return err
	}
	if err := command(ctx, "mkfs.btrfs", "-q", image); err != nil {
		return err
	}
	if err := command(ctx, "mount", "-o", "loop", image, disk); err != nil {
		return err
	}
	defer func() { err = errors.Join(unix.Unmount(disk, 0), err) }()
	sub := filepath.Join(disk, "volume")
	for _, argv := range [][]string{{"btrfs", "subvolume", "create", sub}, {"btrfs", "quota", "enable", disk}} {
		if err := command(ctx, argv...); err != nil {
			return err
		}
	}
	fmt.Fprintf(progress, "make %d files on btrfs\n", groupFiles)
	if err := fill(sub, groupFiles); err != nil {
		return err
	}
	took := make([]time.Duration, 1000)
	for i := range took {
		began := time.Now()
		if _, err := qgroup.Read(sub); err != nil {
			return err
		}
		took[i] = time.Since(began)
	}
	slices.Sort(took)
	fmt.Fprintf(to, "| a btrfs subvolume of %d files, asked %d times | p50 | p99 |\n|---|---|---|\n", groupFiles, len(took))
	fmt.Fprintf(to, "| its quota group | %s | %s |\n\n", short(took[len(took)/2]), short(took[len(took)*99/100]))
	return nil
}

func command(ctx context.Context, argv ...string) error {
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%q: %w\n%s", argv, err, out)
	}
	return nil
}
