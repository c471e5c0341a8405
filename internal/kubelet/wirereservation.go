package kubelet

import (
	"context"
	goruntime "runtime"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/hoststats"
	"github.com/holdfast-dev/holdfast/internal/kubelet/reservation"
	"github.com/holdfast-dev/holdfast/internal/retry"
)

// bounds are those of all pods together on this machine. A reservation of more than it
// has is an error.
func (k *Kubelet) bounds() (reservation.Bounds, error) {
	r := k.cfg.Reservation
	if r == nil {
		return reservation.Bounds{MilliCPU: int64(goruntime.NumCPU()) * 1000}, nil
	}
	machine := hoststats.New(k.cfg.Dir)
	capacity, _, err := machine.Machine()
	if err != nil {
		return reservation.Bounds{}, err
	}
	if err := r.Check(capacity, k.cfg.Eviction.Withheld(capacity)); err != nil {
		return reservation.Bounds{}, err
	}
	free, err := machine.Free()
	if err != nil {
		return reservation.Bounds{}, err
	}
	var maxPIDs int64
	if free.Rlimit != nil && free.Rlimit.MaxPID != nil {
		maxPIDs = *free.Rlimit.MaxPID
	}
	return r.Bounds(capacity, maxPIDs), nil
}

// reserved is what is kept from pods, on top of what is withheld.
func (k *Kubelet) reserved() v1.ResourceList {
	if k.cfg.Reservation == nil {
		return nil
	}
	return k.cfg.Reservation.Resources
}

// boundPods sets the limits of all pods together, and tells of it as upstream does.
// Pods may have more than that already: it tries until they have less.
func (k *Kubelet) boundPods(ctx context.Context) error {
	if k.cfg.Reservation == nil {
		<-ctx.Done()
		return nil
	}
	for {
		err := k.cgroups.Bound()
		if err == nil {
			k.events.Eventf(k.nodeReference(), v1.EventTypeNormal, "NodeAllocatableEnforced", "Updated Node Allocatable limit across pods")
			<-ctx.Done()
			return nil
		}
		k.events.Eventf(k.nodeReference(), v1.EventTypeWarning, "FailedNodeAllocatableEnforcement", "Failed to update Node Allocatable Limits %q: %v", k.cgroups.AllPods(), err)
		if !retry.Sleep(ctx, time.Minute) {
			return nil
		}
	}
}
