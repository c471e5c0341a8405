package nodestatus

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-dev/holdfast/internal/retry"
)

// renew renews the node's lease at a quarter of its duration until ctx is
// done. While that fails it tries more often, and says so once.
func (r *Reporter) renew(ctx context.Context) {
	var lease *coordinationv1.Lease // as last written; nil: read it first
	failing := false
	wait := firstRetry
	for {
		next, err := r.tryRenew(ctx, lease)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !failing:
			failing = true
			r.log.Warn("Node lease was not renewed, will retry", "err", err)
		case err == nil && failing:
			failing = false
			r.log.Info("Node lease is renewed again")
		}
		lease = next
		pauseFor := r.cfg.LeaseDuration / 4
		if err != nil {
			pauseFor, wait = wait, min(2*wait, lastRetry)
		} else {
			wait = firstRetry
		}
		if !retry.Sleep(ctx, pauseFor) {
			return
		}
	}
}

// tryRenew writes the lease with the present time. It returns what the next
// renewal starts from: nil after an error, which may mean that somebody else
// wrote or deleted the lease.
func (r *Reporter) tryRenew(ctx context.Context, have *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.CallTimeout)
	defer cancel()
	if have == nil {
		var err error
		have, err = r.cfg.Leases.Get(ctx, r.cfg.Node, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			created, err := r.cfg.Leases.Create(ctx, r.leaseFrom(nil), metav1.CreateOptions{})
			if err != nil {
				return nil, fmt.Errorf("create lease: %w", err)
			}
			return created, nil
		} else if err != nil {
			return nil, fmt.Errorf("get lease: %w", err)
		}
	}
	updated, err := r.cfg.Leases.Update(ctx, r.leaseFrom(have), metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("renew lease: %w", err)
	}
	return updated, nil
}

// leaseFrom is the lease to write next: it belongs to the Node, so that it
// goes with it.
func (r *Reporter) leaseFrom(have *coordinationv1.Lease) *coordinationv1.Lease {
	lease := have.DeepCopy()
	if lease == nil {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: r.cfg.Node, Namespace: "kube-node-lease"}}
	}
	if node := r.Node(); node != nil {
		lease.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}
	}
	lease.Spec.HolderIdentity = &r.cfg.Node
	lease.Spec.LeaseDurationSeconds = new(int32(r.cfg.LeaseDuration / time.Second))
	lease.Spec.RenewTime = new(metav1.NewMicroTime(time.Now()))
	return lease
}
