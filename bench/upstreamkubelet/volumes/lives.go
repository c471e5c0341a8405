package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/mount-utils"
)

// patience bounds each step; it is far above anything measured.
const patience = 3 * time.Minute

// side is one of the two that are measured, under way.
type side interface {
	mount(ctx context.Context, pod *v1.Pod) error
	unmount(ctx context.Context, pod *v1.Pod) error
	stop() error
}

type starter func(ctx context.Context, w *world, dir string) (side, error)

// life is what the volumes of all pods of a node cost, by what is done to them.
type life struct{ mount, restart, unmount costs }

// lives writes the table of the volumes of a full node.
func lives(ctx context.Context, to *strings.Builder, o options) error {
	w := newWorld(o.pods)
	var ours, upstreams life
	for round := range o.rounds {
		fmt.Fprintf(progress, "volumes of %d pods, round %d of %d\n", o.pods, round+1, o.rounds)
		if err := upstreams.measure(ctx, w, o.dir, startUpstream); err != nil {
			return fmt.Errorf("upstream: %w", err)
		}
		err := ours.measure(ctx, w, o.dir, func(ctx context.Context, w *world, dir string) (side, error) { return startOurs(ctx, w, dir), nil })
		if err != nil {
			return fmt.Errorf("ours: %w", err)
		}
	}
	fmt.Fprintf(to, head, fmt.Sprintf("%d pods of 4 volumes", o.pods))
	row(to, "mounted at once", upstreams.mount, ours.mount)
	row(to, "the agent starts again: every pod is known to have its volumes", upstreams.restart, ours.restart)
	row(to, "unmounted at once", upstreams.unmount, ours.unmount)
	to.WriteString("\n")
	return nil
}

// measure is one round of one side, in a folder of its own.
func (l *life) measure(ctx context.Context, w *world, under string, start starter) (err error) {
	dir, err := os.MkdirTemp(under, "holdfast-bench-volumes-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, clean(dir)) }()

	s, err := start(ctx, w, dir)
	if err != nil {
		return err
	}
	one, err := measure(func() error {
		return forAll(ctx, w.pods, func(ctx context.Context, pod *v1.Pod) error { return s.mount(ctx, pod) })
	})
	if err = errors.Join(err, s.stop()); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	l.mount = append(l.mount, one)
	if err := complete(w, dir); err != nil {
		return err
	}

	one, err = measure(func() error {
		if s, err = start(ctx, w, dir); err != nil {
			return err
		}
		return forAll(ctx, w.pods, func(ctx context.Context, pod *v1.Pod) error { return s.mount(ctx, pod) })
	})
	if err != nil {
		return fmt.Errorf("start again: %w", err)
	}
	l.restart = append(l.restart, one)

	one, err = measure(func() error {
		return forAll(ctx, w.pods, func(ctx context.Context, pod *v1.Pod) error { return s.unmount(ctx, pod) })
	})
	if err = errors.Join(err, s.stop()); err != nil {
		return fmt.Errorf("unmount: %w", err)
	}
	l.unmount = append(l.unmount, one)
	points, err := mountsBelow(dir)
	if err == nil && len(points) > 0 {
		err = fmt.Errorf("%d mounts are left", len(points))
	}
	return err
}

// forAll does something for all pods at once and waits for all. It returns the
// first error: they are much alike.
func forAll(ctx context.Context, pods []*v1.Pod, do func(ctx context.Context, pod *v1.Pod) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	errs := make([]error, len(pods))
	var work sync.WaitGroup
	for i, pod := range pods {
		work.Go(func() { errs[i] = do(ctx, pod) })
	}
	work.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// complete returns nil if every pod has all its volumes, with their files.
func complete(w *world, dir string) error {
	for _, pod := range w.pods {
		volumes := filepath.Join(dir, "pods", string(pod.UID), "volumes")
		for _, file := range []string{"empty-dir/scratch", "configmap/settings/app.yaml", "secret/password/user", "projected/account/token"} {
			if _, err := os.Stat(filepath.Join(volumes, "kubernetes.io~"+file)); err != nil {
				return err
			}
		}
	}
	points, err := mountsBelow(dir)
	if want := 2 * len(w.pods); err == nil && len(points) != want {
		err = fmt.Errorf("%d mounts, want %d", len(points), want)
	}
	return err
}

func mountsBelow(dir string) (points []string, err error) {
	all, err := mount.ParseMountInfo("/proc/self/mountinfo")
	for _, one := range all {
		if strings.HasPrefix(one.MountPoint, dir+"/") {
			points = append(points, one.MountPoint)
		}
	}
	return points, err
}

// clean removes what a round made, whatever it left.
func clean(dir string) error {
	points, err := mountsBelow(dir)
	errs := []error{err}
	for _, point := range points {
		errs = append(errs, unix.Unmount(point, unix.MNT_DETACH))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}
