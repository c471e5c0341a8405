package csi

import (
	"context"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	storagev1 "k8s.io/api/storage/v1"
)

// refreshLook is the longest time from one look at what CSIDrivers want to the next.
const refreshLook = time.Minute

// Refresh asks drivers again how many volumes the node takes, as often as their
// CSIDrivers want it, and returns when it is to be called again. Changed is called if
// one says something else.
func (h *Host) Refresh(ctx context.Context) time.Duration {
	h.mu.Lock()
	var drivers []*driver
	for _, d := range h.mu.drivers {
		drivers = append(drivers, d)
	}
	h.mu.Unlock()
	next, changed := refreshLook, false
	for _, d := range drivers {
		period := h.refreshPeriod(ctx, d.Name)
		if period == 0 {
			continue
		}
		wait := time.Until(d.asked.Add(period))
		if wait <= 0 {
			changed = h.refresh(ctx, d) || changed
			wait = period
		}
		next = min(next, wait)
	}
	if changed {
		h.cfg.Changed()
	}
	return next
}

// refreshPeriod is how often a driver wants to be asked; 0: once, or it is not known.
func (h *Host) refreshPeriod(ctx context.Context, name string) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, settingsPatience)
	defer cancel()
	want, err := h.settings(ctx, name)
	if err != nil {
		return 0
	}
	return want.refresh
}

// refresh asks one driver, and reports whether it says something else than before.
func (h *Host) refresh(ctx context.Context, d *driver) (changed bool) {
	again := *d
	again.asked = time.Now()
	err := h.call(ctx, d, "NodeGetInfo", func(ctx context.Context, c spec.NodeClient) error {
		info, err := c.NodeGetInfo(ctx, &spec.NodeGetInfoRequest{})
		if err == nil {
			again.MaxVolumes = info.GetMaxVolumesPerNode()
		}
		return err
	})
	if err != nil {
		h.cfg.Log.Warn("a CSI driver does not say how many volumes the node takes, what it said last stays", "object", d.Name, "err", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.drivers[d.Name] != d {
		return false // it has registered anew meanwhile, or is gone
	}
	h.mu.drivers[d.Name] = &again
	return again.MaxVolumes != d.MaxVolumes
}

// exhausted has a driver asked at the next look: it has no room for a volume that the
// scheduler believed to fit.
func (h *Host) exhausted(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	d := h.mu.drivers[name]
	if d == nil || time.Since(d.asked) < refreshLook {
		return
	}
	again := *d
	again.asked = time.Time{}
	h.mu.drivers[name] = &again
}

// isExhausted reports whether a volume is not attached because the node is full.
func isExhausted(a *storagev1.VolumeAttachment) bool {
	e := a.Status.AttachError
	return !a.Status.Attached && e != nil && e.ErrorCode != nil && *e.ErrorCode == int32(codes.ResourceExhausted)
}
