package csi

import (
	"context"
	"errors"
	"fmt"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

// ErrNoStats is returned by Stats for a volume whose driver does not measure.
var ErrNoStats = errors.New("the driver has no figures of its volumes")

// A Usage is how full a volume is, in bytes or inodes.
type Usage struct{ Capacity, Used, Available int64 }

// Stats asks a pod's volume's driver how full it is. What the driver does not
// say is nil.
func (h *Host) Stats(ctx context.Context, uid types.UID, id podvolumes.ID) (bytes, inodes *Usage, err error) {
	if err := checkNames(string(uid), id.Dir); err != nil {
		return nil, nil, err
	}
	target := h.layout.target(uid, id)
	r, err := readRecord(h.layout.record(uid, id))
	if err != nil {
		return nil, nil, err
	}
	d, err := h.driver(r.Driver)
	if err != nil {
		return nil, nil, err
	}
	if !d.can[spec.NodeServiceCapability_RPC_GET_VOLUME_STATS] {
		return nil, nil, fmt.Errorf("CSI driver %s: %w", d.Name, ErrNoStats)
	}
	err = h.call(ctx, d, "NodeGetVolumeStats", func(ctx context.Context, c spec.NodeClient) error {
		answer, err := c.NodeGetVolumeStats(ctx, &spec.NodeGetVolumeStatsRequest{VolumeId: r.Handle, VolumePath: target})
		for _, u := range answer.GetUsage() {
			usage := &Usage{Capacity: u.GetTotal(), Used: u.GetUsed(), Available: u.GetAvailable()}
			switch u.GetUnit() {
			case spec.VolumeUsage_BYTES:
				bytes = usage
			case spec.VolumeUsage_INODES:
				inodes = usage
			default: // a unit of a later version
			}
		}
		return err
	})
	return bytes, inodes, err
}
