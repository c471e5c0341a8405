// Package volumeexpand makes volumes grow with their claims: it has the filesystem
// of a volume grown while the pod uses it, and tells the claim how that went.
//
// The claim says by status.allocatedResourceStatuses whose turn it is, as upstream
// has it, and podvolumes.Resolve reads that. Nothing else is remembered, so an
// agent that dies in between begins again.
//
// Any goroutine may call it.
package volumeexpand

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
	"github.com/holdfast-dev/holdfast/internal/kubelet/reason"
)

const timeout = 10 * time.Minute // of growing one volume

// Config says what an Expander works with. All is required.
type Config struct {
	// Grow makes a volume that is set up as large as v.GrowTo says. It may be called
	// again for one that is large enough. An error that matches
	// podvolumes.ErrCannotGrow is told to the claim, which then waits for another size;
	// one that matches podvolumes.ErrGrowsLater is told, and no error of Expander.Grow.
	Grow   func(ctx context.Context, v *podvolumes.Volume) error
	Claims typedv1.PersistentVolumeClaimsGetter
	Events record.EventRecorder
	Log    *slog.Logger
}

// An Expander makes volumes grow.
type Expander struct{ cfg Config }

// New makes an Expander.
func New(cfg Config) *Expander { return &Expander{cfg} }

// Grow makes a volume as large as v.GrowTo says, and returns when its claim says
// so. An error is one to try again; what follows then is for the claim to say,
// as it is at that time.
func (e *Expander) Grow(ctx context.Context, v *podvolumes.Volume) error {
	claim := v.Claim
	if next := begun(claim); next != nil {
		var err error
		if claim, err = e.patch(ctx, claim, next); err != nil {
			return fmt.Errorf("grow %s: %w", podvolumes.Describe(v.Name), err)
		}
	}
	size := v.PV.Spec.Capacity[v1.ResourceStorage]
	log := e.cfg.Log.With("podUID", v.PodUID, "volume", v.PV.Name)
	growing, cancel := context.WithTimeout(ctx, timeout)
	why := e.cfg.Grow(growing, v)
	cancel()
	switch {
	case why == nil:
		if _, err := e.patch(ctx, claim, finished(claim, size)); err != nil {
			return fmt.Errorf("grow %s: %w", podvolumes.Describe(v.Name), err)
		}
		log.Info("volume has grown", "bytes", size.Value())
		e.cfg.Events.Eventf(claim, v1.EventTypeNormal, reason.FileSystemResizeSuccessful, "volume %s has grown to %s", v.PV.Name, size.String())
		return nil
	case ctx.Err() != nil:
		return why // nobody failed
	}
	infeasible, later := errors.Is(why, podvolumes.ErrCannotGrow), errors.Is(why, podvolumes.ErrGrowsLater)
	e.cfg.Events.Eventf(claim, v1.EventTypeWarning, reason.VolumeResizeFailed, "volume %s cannot grow to %s: %v", v.PV.Name, size.String(), why)
	_, err := e.patch(ctx, claim, failed(claim, why, infeasible, time.Now()))
	if later && err == nil {
		log.Info("volume grows when the next pod gets it", "why", why)
		return nil
	}
	return fmt.Errorf("grow %s: %w", podvolumes.Describe(v.Name), errors.Join(why, err))
}

// patch changes a claim's status, and returns the claim as it is then. A claim
// that has changed meanwhile is an error: what follows from the newer one is found
// out at the next try.
func (e *Expander) patch(ctx context.Context, before, after *v1.PersistentVolumeClaim) (*v1.PersistentVolumeClaim, error) {
	data, err := patchOf(before, after)
	if err != nil {
		return nil, fmt.Errorf("make the patch of claim %s/%s: %w", before.Namespace, before.Name, err)
	}
	claim, err := e.cfg.Claims.PersistentVolumeClaims(before.Namespace).Patch(ctx, before.Name, types.StrategicMergePatchType, data, metav1.PatchOptions{}, "status")
	if err != nil {
		return nil, fmt.Errorf("tell claim %s/%s: %w", before.Namespace, before.Name, err)
	}
	return claim, nil
}
