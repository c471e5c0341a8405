package csi_test

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

// TestMany has the volumes of a full node come and go at once.
func TestMany(t *testing.T) {
	const pods, each = 110, 4
	w := start(t, nil)
	all := func(do func(v *podvolumes.Volume) error) time.Duration {
		began := time.Now()
		var group sync.WaitGroup
		for p := range pods {
			group.Go(func() {
				for v := range each {
					if err := do(persistent(fmt.Sprint("pod", p), fmt.Sprintf("pv-%d-%d", p, v))); err != nil {
						t.Error(err)
					}
				}
			})
		}
		group.Wait()
		return time.Since(began)
	}
	up := all(func(v *podvolumes.Volume) error { _, err := w.host.SetUp(t.Context(), v); return err })
	w.restart()
	down := all(func(v *podvolumes.Volume) error { return w.host.TearDown(t.Context(), v.PodUID, v.ID) })
	t.Logf("set up in %s, torn down in %s", up, down)
	if left := w.driver.Left(); len(left) > 0 {
		t.Errorf("the driver still has %d", len(left))
	}
	err := filepath.WalkDir(w.dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && (!entry.IsDir() || strings.Contains(path, "pv-")) {
			t.Errorf("left: %s", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
