package csi

import (
	"context"
	"errors"
	"fmt"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

// Grow has a driver make a volume that a pod has as large as v.GrowTo says. It does
// nothing if the driver leaves all of that to its controller, or if the volume has
// grown when it was staged. The error matches podvolumes.ErrCannotGrow if the driver
// refuses the size, and podvolumes.ErrGrowsLater if the volume is not to be in use
// meanwhile.
func (h *Host) Grow(ctx context.Context, v *podvolumes.Volume) error {
	vol := volume{v.CSI.Driver, v.CSI.Handle}
	unlock, err := h.lock(ctx, vol)
	if err != nil {
		return fmt.Errorf("wait for another pod's use of it: %w", err)
	}
	defer unlock()
	d, err := h.driver(vol.driver)
	if err != nil {
		return err
	}
	h.mu.Lock()
	grown := h.mu.grown[vol]
	h.mu.Unlock()
	if grown >= v.GrowTo {
		return nil
	}
	staging := ""
	if d.stages() {
		staging = h.layout.staging(vol, v.ID)
	}
	return h.expand(ctx, d, v, staging, h.layout.target(v.PodUID, v.ID))
}

// growStaged has the filesystem of a volume that was staged grow before a pod has it:
// some drivers can do it only then. What the driver refuses is for Grow to tell the
// claim.
func (j *job) growStaged(ctx context.Context, vol volume, staging string) error {
	if j.v.GrowTo == 0 || j.v.Block {
		return nil
	}
	err := j.h.expand(ctx, j.d, j.v, staging, staging)
	switch {
	case errors.Is(err, podvolumes.ErrCannotGrow), errors.Is(err, podvolumes.ErrGrowsLater):
		j.h.cfg.Log.Debug("a volume has not grown when it was staged", "podUID", j.v.PodUID, "volume", j.v.Dir, "err", err)
		return nil
	case err != nil:
		return err
	}
	j.h.mu.Lock()
	j.h.mu.grown[vol] = j.v.GrowTo
	j.h.mu.Unlock()
	return nil
}

// expand makes the call, for a volume that is to be had at path.
func (h *Host) expand(ctx context.Context, d *driver, v *podvolumes.Volume, staging, path string) error {
	if !d.can[spec.NodeServiceCapability_RPC_EXPAND_VOLUME] {
		return nil
	}
	secrets, err := h.secrets(ctx, v, v.CSI.ExpandSecret)
	if err != nil {
		return err
	}
	return refusal(h.call(ctx, d, "NodeExpandVolume", func(ctx context.Context, c spec.NodeClient) error {
		_, err := c.NodeExpandVolume(ctx, &spec.NodeExpandVolumeRequest{
			VolumeId: v.CSI.Handle, VolumePath: path, StagingTargetPath: staging, VolumeCapability: d.capability(v),
			CapacityRange: &spec.CapacityRange{RequiredBytes: v.GrowTo}, Secrets: secrets,
		})
		return err
	}))
}

// refusal adds to the error of NodeExpandVolume what the driver means by it, as
// upstream understands it.
func refusal(err error) error {
	var e *callError
	if !errors.As(err, &e) {
		return err
	}
	switch e.s.Code() {
	case codes.InvalidArgument, codes.OutOfRange, codes.NotFound:
		return fmt.Errorf("%w: %w", err, podvolumes.ErrCannotGrow)
	case codes.FailedPrecondition:
		return fmt.Errorf("%w: %w", err, podvolumes.ErrGrowsLater)
	default:
		return err
	}
}
