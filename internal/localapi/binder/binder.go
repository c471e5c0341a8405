// Package binder gives pods that name no node to the only node.
//
// It reads pods, nodes, claims, volumes, storage classes and namespaces from
// informers that its caller starts, and writes, through the API: bindings,
// the condition PodScheduled and the events Scheduled and FailedScheduling of
// pods that cannot run, and, for claims that wait for their first consumer,
// the volume they get or the node that their provisioner is to use.
//
// It stands where a cluster has its scheduler, and keeps the scheduler's
// names and messages. With one node there is nothing to rank: the question is
// whether a pod may run there, and why not. It answers as the scheduler does
// for the node's name, selector and affinity, taints, resources, host ports,
// affinity among pods and volumes. There is no preemption: a pod of higher
// priority goes first among those that wait. Pods with scheduling gates, and
// pods of another scheduler, are left alone.
//
// All decisions are made by one goroutine, that of Run.
package binder

import (
	"context"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/holdfast-dev/holdfast/internal/localapi/passes"
)

// Config says what to bind to what.
type Config struct {
	// Client writes. Required.
	Client kubernetes.Interface
	// Informers read. New registers what it needs; the caller starts them.
	// Required.
	Informers informers.SharedInformerFactory
	// Node is the name of the only node. Required.
	Node string
	// Log gets bindings (info) and failed writes (warn). Required.
	Log *slog.Logger
}

// A Binder binds pods. Its methods are for one goroutine.
type Binder struct {
	node   string
	client kubernetes.Interface
	log    *slog.Logger

	pods       corelisters.PodLister
	nodes      corelisters.NodeLister
	claims     corelisters.PersistentVolumeClaimLister
	volumes    corelisters.PersistentVolumeLister
	namespaces corelisters.NamespaceLister
	classes    storagelisters.StorageClassLister
	informers  []cache.SharedIndexInformer

	events record.EventRecorder
	// assumed are pods that were bound and that the informer still shows
	// unbound: they take room on the node already.
	assumed map[types.UID]*corev1.Pod
	// told is the last message about each pod that waits.
	told map[types.UID]string
}

// New makes a Binder and registers its informers.
func New(cfg Config) *Binder {
	core, storage := cfg.Informers.Core().V1(), cfg.Informers.Storage().V1()
	return &Binder{
		node: cfg.Node, client: cfg.Client, log: cfg.Log,
		pods: core.Pods().Lister(), nodes: core.Nodes().Lister(),
		claims: core.PersistentVolumeClaims().Lister(), volumes: core.PersistentVolumes().Lister(),
		namespaces: core.Namespaces().Lister(), classes: storage.StorageClasses().Lister(),
		informers: []cache.SharedIndexInformer{
			core.Pods().Informer(), core.Nodes().Informer(), core.PersistentVolumeClaims().Informer(),
			core.PersistentVolumes().Informer(), core.Namespaces().Informer(), storage.StorageClasses().Informer(),
		},
		assumed: map[types.UID]*corev1.Pod{},
		told:    map[types.UID]string{},
	}
}

// Run binds until ctx is done.
func (b *Binder) Run(ctx context.Context) error {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: b.client.CoreV1().Events("")})
	b.events = broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: corev1.DefaultSchedulerName})

	return passes.Loop{What: "bind pods", Log: b.log, Informers: b.informers, Matters: matters, Pass: b.pass}.Run(ctx)
}
