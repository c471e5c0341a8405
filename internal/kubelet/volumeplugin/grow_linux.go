package volumeplugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/mount-utils"
	utilexec "k8s.io/utils/exec"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
	"github.com/holdfast-dev/holdfast/internal/localdisk"
)

// Grow makes the filesystem of a local PersistentVolume as large as its device,
// while it is mounted. A device that is smaller than v.GrowTo is an error that
// matches podvolumes.ErrCannotGrow. A folder has no size of its own, and a raw
// device is as large as it is: of these nothing is done, as upstream has it.
func (h *Host) Grow(ctx context.Context, v *podvolumes.Volume) error {
	if v.Kind != podvolumes.Local {
		return fmt.Errorf("a volume of kind %s: %w", v.Kind, podvolumes.ErrCannotGrow)
	}
	defer h.locks.lock(volumeKey(v.Dir))()
	dev, err := localdisk.Open(v.HostPath)
	if errors.Is(err, localdisk.ErrNoDevice) && !v.Block {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = dev.Close() }() // nothing was written through it
	if dev.Size < v.GrowTo {
		return fmt.Errorf("%s has %d bytes, and %d are wanted: %w", dev.Path, dev.Size, v.GrowTo, podvolumes.ErrCannotGrow)
	}
	if v.Block {
		return nil
	}
	for _, point := range []string{h.layout.Disk(v.Dir), h.layout.Volume(v.PodUID, v.ID)} {
		on, err := deviceOn(point)
		switch {
		case err != nil:
			return err
		case on == nil:
			continue
		case slices.Contains(on.SuperOptions, "ro"):
			return fmt.Errorf("the filesystem on %s is mounted read-only and cannot grow", dev.Path)
		}
		run := utilexec.New()
		resizer := mount.NewResizeFs(commands{run, func(name string, args ...string) utilexec.Cmd { return run.CommandContext(ctx, name, args...) }})
		done, err := resizer.Resize(on.Source, point)
		if err != nil {
			return fmt.Errorf("grow the filesystem on %s: %s", on.Source, whyNotGrown(err.Error()))
		}
		if !done {
			return fmt.Errorf("blkid finds no filesystem on %s, which is mounted", on.Source)
		}
		return nil
	}
	return fmt.Errorf("the filesystem on %s is not mounted", dev.Path)
}

// whyNotGrown returns what a program said that was to grow a filesystem, in one line.
// resize2fs does not say which permission it lacks.
func whyNotGrown(said string) string {
	said = oneLine(said)
	if strings.Contains(said, "Permission denied to resize filesystem") {
		return "while it is mounted that takes CAP_SYS_RESOURCE, which this node does not have; end its pods and run resize2fs yourself: " + said
	}
	return said
}
