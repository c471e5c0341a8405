package main

import (
	"context"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/instance"
)

// TestDownWaitsForAnother holds the lock as another "holdfast down" does, until
// this one says that it waits.
func TestDownWaitsForAnother(t *testing.T) {
	in, err := instance.OpenOrCreate(t.TempDir(), func() (netip.Prefix, error) { return netip.MustParsePrefix("10.77.0.0/24"), nil })
	if err != nil {
		t.Fatal(err)
	}
	release, err := in.Lock()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var steps []string
	var once sync.Once
	err = stopNode(ctx, in, func(step string) {
		steps = append(steps, step)
		once.Do(func() {
			if err := release(); err != nil {
				t.Error(err)
			}
		})
	})
	if err != nil {
		t.Errorf("got %v after the other ended", err)
	}
	if len(steps) == 0 || !strings.HasPrefix(steps[0], "waiting for process ") {
		t.Errorf("got the steps %q", steps)
	}
}
