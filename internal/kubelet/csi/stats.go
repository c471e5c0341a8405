package csi

import (
	"context"
	"errors"
	"fmt"

	spec "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

// ErrNoStats is returned by Measure for a path at which no driver measures.
var ErrNoStats = errors.New("no CSI driver has figures of it")

// Measure asks the driver of the volume at a path, as SetUp returned it, what the
// volume takes, and whether something is wrong with it. The error matches ErrNoStats for
// what is no driver's, and for a driver that does not measure.
func (h *Host) Measure(ctx context.Context, path string) (podvolumes.Usage, error) {
	uid, id, ok := h.layout.owner(path)
	if !ok {
		return podvolumes.Usage{}, ErrNoStats
	}
	usage := podvolumes.Usage{Method: podvolumes.ByDriver}
	r, err := readRecord(h.layout.record(uid, id))
	if err != nil {
		return usage, err
	}
	d, err := h.driver(r.Driver)
	if err != nil {
		return usage, err
	}
	if !d.can[spec.NodeServiceCapability_RPC_GET_VOLUME_STATS] {
		return usage, fmt.Errorf("CSI driver %s: %w", d.Name, ErrNoStats)
	}
	usage.Driver = d.Name
	err = h.call(ctx, d, "NodeGetVolumeStats", func(ctx context.Context, c spec.NodeClient) error {
		answer, err := c.NodeGetVolumeStats(ctx, &spec.NodeGetVolumeStatsRequest{
			VolumeId: r.Handle, VolumePath: h.layout.target(uid, id), StagingTargetPath: h.staged(d, r, id),
		})
		usage.Abnormal = condition(answer.ProtoReflect().GetUnknown())
		for _, u := range answer.GetUsage() {
			switch u.GetUnit() {
			case spec.VolumeUsage_BYTES:
				usage.CapacityBytes, usage.UsedBytes, usage.AvailableBytes = figures(u)
			case spec.VolumeUsage_INODES:
				usage.Inodes, usage.InodesUsed, usage.InodesFree = figures(u)
			default: // a unit of a later version
			}
		}
		return err
	})
	if err != nil {
		return usage, err
	}
	if abnormal := h.health(ctx, d, r, uid, id); abnormal != nil {
		usage.Abnormal = abnormal
	}
	if usage == (podvolumes.Usage{Method: podvolumes.ByDriver, Driver: d.Name}) {
		return usage, fmt.Errorf("CSI driver %s says nothing of volume %s: %w", d.Name, r.Handle, podvolumes.ErrNoUsage)
	}
	return usage, nil
}

// staged returns where a volume is staged; empty: it is not.
func (h *Host) staged(d *driver, r *record, id podvolumes.ID) string {
	if !d.stages() || r.ephemeral() {
		return ""
	}
	return h.layout.staging(r.volume(), id)
}

// figures returns what a driver says of a unit. A driver leaves out what it does not
// know, which reads as 0: no volume has neither something in use nor something free.
func figures(u *spec.VolumeUsage) (total, used, available *uint64) {
	if u.GetTotal() > 0 {
		total = new(uint64(u.GetTotal()))
	}
	if u.GetUsed() >= 0 && u.GetAvailable() >= 0 && (u.GetUsed() > 0 || u.GetAvailable() > 0) {
		used, available = new(uint64(u.GetUsed())), new(uint64(u.GetAvailable())) //nolint:gosec // not negative
	}
	return total, used, available
}
