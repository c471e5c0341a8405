// Package claimexpand makes larger claims the node's business: when somebody asks
// for more storage than a claim has, it gives the PersistentVolume the new
// capacity and says in the claim's status that the node is to grow the filesystem.
//
// It does for local volumes what upstream's expand controller does for volumes
// that are expanded on the node alone; volumes of CSI drivers are left to their
// own resizers. That controller is not used because no plugin of its serves a
// local volume.
//
// It reads claims and volumes from informers that its caller starts. All of it is
// done by one goroutine, that of Run.
package claimexpand

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/holdfast-dev/holdfast/internal/localapi/passes"
)

// Config says what to work with. All is required.
type Config struct {
	Client    kubernetes.Interface
	Informers informers.SharedInformerFactory // New registers what it needs; the caller starts them
	Log       *slog.Logger                    // gets expansions (info) and failures (warn)
}

// A Controller passes expansions on to the node.
type Controller struct {
	client    kubernetes.Interface
	log       *slog.Logger
	claims    corelisters.PersistentVolumeClaimLister
	volumes   corelisters.PersistentVolumeLister
	informers []cache.SharedIndexInformer
}

// New makes a Controller and registers its informers.
func New(cfg Config) *Controller {
	core := cfg.Informers.Core().V1()
	c := &Controller{
		client: cfg.Client, log: cfg.Log,
		claims: core.PersistentVolumeClaims().Lister(), volumes: core.PersistentVolumes().Lister(),
		informers: []cache.SharedIndexInformer{core.PersistentVolumeClaims().Informer(), core.PersistentVolumes().Informer()},
	}
	return c
}

// Run works until ctx is done.
func (c *Controller) Run(ctx context.Context) error {
	return passes.Loop{What: "expand claims", Log: c.log, Informers: c.informers, Pass: c.look}.Run(ctx)
}

// look does what is to do for every claim.
func (c *Controller) look(ctx context.Context) error {
	claims, err := c.claims.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list claims: %w", err)
	}
	var errs []error
	for _, claim := range claims {
		pv, err := c.volumes.Get(claim.Spec.VolumeName)
		if err != nil {
			continue // not bound, or its volume comes later
		}
		if size, ok := expansion(claim, pv); ok {
			// After a conflict the informers are behind, and tell when they no longer are.
			if err := c.expand(ctx, claim, pv, size); err != nil && !apierrors.IsConflict(err) {
				errs = append(errs, fmt.Errorf("claim %s/%s: %w", claim.Namespace, claim.Name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// expansion returns the size that a claim is to have, if that is to be passed on.
func expansion(claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) (size resource.Quantity, ok bool) {
	if ref := pv.Spec.ClaimRef; pv.Spec.Local == nil || claim.Status.Phase != corev1.ClaimBound || ref == nil || ref.UID != claim.UID {
		return resource.Quantity{}, false
	}
	size = claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if has := claim.Status.Capacity[corev1.ResourceStorage]; size.Cmp(has) <= 0 {
		return resource.Quantity{}, false
	}
	told := claim.Status.AllocatedResources[corev1.ResourceStorage]
	switch claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage] {
	case corev1.PersistentVolumeClaimNodeResizeInProgress:
		return resource.Quantity{}, false // the node is at work: another size comes after this one
	case corev1.PersistentVolumeClaimNodeResizePending, corev1.PersistentVolumeClaimNodeResizeInfeasible:
		return size, told.Cmp(size) != 0
	default:
		return size, true
	}
}

// expand passes an expansion on. The node begins when both are told, in whichever
// order it hears of them.
func (c *Controller) expand(ctx context.Context, claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume, size resource.Quantity) error {
	if has := pv.Spec.Capacity[corev1.ResourceStorage]; has.Cmp(size) != 0 {
		patch, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"resourceVersion": pv.ResourceVersion},
			"spec":     map[string]any{"capacity": map[string]any{"storage": size.String()}},
		})
		if err != nil {
			return fmt.Errorf("make the patch of its volume: %w", err)
		}
		if _, err := c.client.CoreV1().PersistentVolumes().Patch(ctx, pv.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("give its volume the capacity %s: %w", size.String(), err)
		}
	}
	after := pending(claim, size, time.Now())
	if _, err := c.client.CoreV1().PersistentVolumeClaims(claim.Namespace).UpdateStatus(ctx, after, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("say that it is the node's turn: %w", err)
	}
	c.log.Info("the node is to grow a volume", "namespace", claim.Namespace, "object", claim.Name, "volume", pv.Name, "bytes", size.Value())
	return nil
}

// pending returns the claim with the note that it is the node's turn.
func pending(claim *corev1.PersistentVolumeClaim, size resource.Quantity, now time.Time) *corev1.PersistentVolumeClaim {
	out := claim.DeepCopy()
	status := &out.Status
	if status.AllocatedResources == nil {
		status.AllocatedResources = corev1.ResourceList{}
	}
	if status.AllocatedResourceStatuses == nil {
		status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{}
	}
	status.AllocatedResources[corev1.ResourceStorage] = size
	status.AllocatedResourceStatuses[corev1.ResourceStorage] = corev1.PersistentVolumeClaimNodeResizePending
	status.Conditions = slices.DeleteFunc(status.Conditions, func(c corev1.PersistentVolumeClaimCondition) bool {
		switch c.Type {
		case corev1.PersistentVolumeClaimResizing, corev1.PersistentVolumeClaimFileSystemResizePending,
			corev1.PersistentVolumeClaimControllerResizeError, corev1.PersistentVolumeClaimNodeResizeError:
			return true
		default:
			return false
		}
	})
	status.Conditions = append(status.Conditions, corev1.PersistentVolumeClaimCondition{
		Type: corev1.PersistentVolumeClaimFileSystemResizePending, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now),
		Message: "the node grows the filesystem when a pod uses the volume",
	})
	return out
}
