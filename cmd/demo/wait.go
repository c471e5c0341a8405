package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

// sleep waits; the first SIGTERM or SIGINT ends it with success.
func sleep(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("sleep takes one duration: %w", errUsage)
	}
	d, err := parseDuration(args[0])
	if err != nil {
		return err
	}
	return pauseFor(ctx, d)
}

// pauseFor is pause with an end.
func pauseFor(ctx context.Context, d time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return pause(ctx)
}

// pause waits until ctx ends. As process 1 it collects the children that it
// inherits, which would otherwise stay zombies and use up the pod's process
// limit.
func pause(ctx context.Context) error {
	if os.Getpid() != 1 {
		<-ctx.Done()
		return nil
	}
	child := make(chan os.Signal, 1) // 1: one wake-up collects all who ended
	signal.Notify(child, syscall.SIGCHLD)
	defer signal.Stop(child)
	for {
		reap()
		select {
		case <-ctx.Done():
			return nil
		case <-child:
		}
	}
}

// reap collects every child that has ended.
func reap() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		if pid <= 0 || err != nil {
			return
		}
	}
}

// parseDuration reads 90, 1.5 (seconds), 10m or forever.
func parseDuration(s string) (time.Duration, error) {
	if s == "forever" || s == "infinity" {
		return math.MaxInt64, nil
	}
	text := s
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		text += "s"
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("duration %q is not like 30, 1.5s, 10m or forever: %w", s, errUsage)
	}
	return d, nil
}
