package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// builds are the times of "go build ./cmd/holdfast", its modules present.
type builds struct {
	Cold time.Duration `json:"cold"` // nothing is compiled yet
	Warm time.Duration `json:"warm"` // only the version has changed, so it is linked anew
}

// measureBuilds builds the binary of the current folder's module twice, with
// a cache of its own.
func measureBuilds(ctx context.Context) (b *builds, err error) {
	dir, err := os.MkdirTemp("", "holdfast-bench-build-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	build := func(version string) (time.Duration, error) {
		say("build %s: minutes", version)
		cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", filepath.Join(dir, "holdfast"),
			"-ldflags", "-s -w -X github.com/holdfast-dev/holdfast/internal/version.Version="+version, "./cmd/holdfast")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOCACHE="+filepath.Join(dir, "cache"))
		began := time.Now()
		if out, err := cmd.CombinedOutput(); err != nil {
			return 0, fmt.Errorf("go build: %w\n%s", err, out)
		}
		return time.Since(began), nil
	}
	b = &builds{}
	if b.Cold, err = build("cold"); err != nil {
		return nil, err
	}
	b.Warm, err = build("warm")
	return b, err
}
