// Package attachdetach has the volumes of CSI drivers attached to the node whose
// pods use them, and detached when nobody does.
//
// It reads pods, nodes, claims, volumes, CSIDrivers and VolumeAttachments from
// informers that its caller starts, and makes and deletes VolumeAttachments
// through the API: the driver's own controller acts upon those. Its rules are
// those of upstream's attach/detach controller, which is not used because it
// brings in all of upstream's volume plugins, but for one: nothing is ever
// detached by force. A volume that a node's status says is in use stays attached,
// however long that takes.
//
// All of it is done by one goroutine, that of Run.
package attachdetach

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/holdfast-dev/holdfast/internal/localapi/passes"
)

// Config says what to attach.
type Config struct {
	// Client writes, and is asked once more before anything is detached. Required.
	Client kubernetes.Interface
	// Informers read. New registers what it needs; the caller starts them.
	// Required.
	Informers informers.SharedInformerFactory
	// Log gets what is attached and detached (info) and failures (warn). Required.
	Log *slog.Logger
}

// A Controller makes and deletes VolumeAttachments.
type Controller struct {
	client kubernetes.Interface
	log    *slog.Logger

	pods        corelisters.PodLister
	nodes       corelisters.NodeLister
	claims      corelisters.PersistentVolumeClaimLister
	volumes     corelisters.PersistentVolumeLister
	drivers     storagelisters.CSIDriverLister
	attachments storagelisters.VolumeAttachmentLister
	informers   []cache.SharedIndexInformer
}

// New makes a Controller and registers its informers.
func New(cfg Config) *Controller {
	core, storage := cfg.Informers.Core().V1(), cfg.Informers.Storage().V1()
	return &Controller{
		client: cfg.Client, log: cfg.Log,
		pods: core.Pods().Lister(), nodes: core.Nodes().Lister(),
		claims: core.PersistentVolumeClaims().Lister(), volumes: core.PersistentVolumes().Lister(),
		drivers: storage.CSIDrivers().Lister(), attachments: storage.VolumeAttachments().Lister(),
		informers: []cache.SharedIndexInformer{
			core.Pods().Informer(), core.Nodes().Informer(), core.PersistentVolumeClaims().Informer(),
			core.PersistentVolumes().Informer(), storage.CSIDrivers().Informer(), storage.VolumeAttachments().Informer(),
		},
	}
}

// Run attaches and detaches until ctx is done.
func (c *Controller) Run(ctx context.Context) error {
	return passes.Loop{What: "attach and detach volumes", Log: c.log, Informers: c.informers, Matters: matters, Pass: c.pass}.Run(ctx)
}

// matters reports whether an update may change what is to be attached.
func matters(before, after any) bool {
	switch after := after.(type) {
	case *corev1.Pod:
		before := before.(*corev1.Pod)
		return before.Spec.NodeName != after.Spec.NodeName || terminal(before) != terminal(after)
	case *corev1.Node:
		return !equality.Semantic.DeepEqual(before.(*corev1.Node).Status.VolumesInUse, after.Status.VolumesInUse)
	default: // few, and rarely updated
		return true
	}
}

// pass brings the VolumeAttachments to what the pods use.
func (c *Controller) pass(ctx context.Context) error {
	w, err := c.look()
	if err != nil {
		return err
	}
	attach, detach := decide(w)
	var errs []error
	for _, a := range attach {
		_, err := c.client.StorageV1().VolumeAttachments().Create(ctx, a, metav1.CreateOptions{})
		switch {
		case err == nil:
			c.log.Info("volume is to be attached", "volume", *a.Spec.Source.PersistentVolumeName, "node", a.Spec.NodeName)
		case !apierrors.IsAlreadyExists(err): // else the informer is behind
			errs = append(errs, fmt.Errorf("attach %s: %w", *a.Spec.Source.PersistentVolumeName, err))
		}
	}
	for _, a := range detach {
		if err := c.detach(ctx, w, a); err != nil {
			errs = append(errs, fmt.Errorf("detach %s: %w", *a.Spec.Source.PersistentVolumeName, err))
		}
	}
	return errors.Join(errs...)
}

func (c *Controller) look() (world, error) {
	pods, err := c.pods.List(labels.Everything())
	nodes, errNodes := c.nodes.List(labels.Everything())
	claims, errClaims := c.claims.List(labels.Everything())
	volumes, errVolumes := c.volumes.List(labels.Everything())
	drivers, errDrivers := c.drivers.List(labels.Everything())
	attachments, errAttachments := c.attachments.List(labels.Everything())
	return newWorld(pods, nodes, claims, volumes, drivers, attachments),
		errors.Join(err, errNodes, errClaims, errVolumes, errDrivers, errAttachments)
}

// detach deletes an attachment if the API itself, and not only the informers,
// says that nobody uses the volume.
func (c *Controller) detach(ctx context.Context, w world, a *storagev1.VolumeAttachment) error {
	node, err := c.client.CoreV1().Nodes().Get(ctx, a.Spec.NodeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	pods, err := c.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", a.Spec.NodeName).String()})
	if err != nil {
		return err
	}
	w.pods, w.nodes = nil, map[string]*corev1.Node{node.Name: node}
	for i := range pods.Items {
		w.pods = append(w.pods, &pods.Items[i])
	}
	w.attachments = map[string]*storagev1.VolumeAttachment{a.Name: a}
	if _, still := decide(w); len(still) == 0 {
		return nil
	}
	uid := a.UID
	err = c.client.StorageV1().VolumeAttachments().Delete(ctx, a.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		c.log.Info("volume is to be detached", "volume", *a.Spec.Source.PersistentVolumeName, "node", a.Spec.NodeName)
	}
	return err
}
