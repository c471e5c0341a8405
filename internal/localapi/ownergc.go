package localapi

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
)

// ownedKinds are those whose objects go when their owner does. Each is one
// that the informers hold anyway; for the other kinds an informer would be
// kept for objects that hardly ever have an owner.
var ownedKinds = []schema.GroupResource{
	{Resource: "pods"},
	{Resource: "configmaps"},
	{Resource: "secrets"},
	{Resource: "serviceaccounts"},
	{Resource: "services"},
	{Resource: "persistentvolumeclaims"},
	{Resource: "persistentvolumes"},
	{Resource: "nodes"},
	{Resource: "namespaces"},
	{Group: "rbac.authorization.k8s.io", Resource: "roles"},
	{Group: "rbac.authorization.k8s.io", Resource: "rolebindings"},
	{Group: "rbac.authorization.k8s.io", Resource: "clusterroles"},
	{Group: "rbac.authorization.k8s.io", Resource: "clusterrolebindings"},
	{Group: "storage.k8s.io", Resource: "storageclasses"},
}

const (
	ownerWorkers     = 2
	ownerSyncTimeout = time.Minute
	// ownerSyncPeriod is how often it asks which kinds are served, for a
	// cluster where that changes. Upstream's is 30 s.
	ownerSyncPeriod = time.Hour
)

// ownerController is upstream's garbage collector for ownedKinds.
func ownerController(ctx context.Context, a *api, meta metadata.Interface) (controller, error) {
	served, err := garbagecollector.GetDeletableResources(ctx, discovery.ToServerResourcesInterfaceWithContext(a.client.Discovery()))
	if err != nil {
		return controller{}, fmt.Errorf("find the kinds that may have owners: %w", err)
	}
	ignored := map[schema.GroupResource]struct{}{}
	for gvr := range served {
		ignored[gvr.GroupResource()] = struct{}{}
	}
	for _, kind := range ownedKinds {
		delete(ignored, kind)
	}
	started := make(chan struct{})
	close(started) // each informer is started when it is added
	informers := informerfactory.NewInformerFactory(a.informers, metadatainformer.NewSharedInformerFactory(meta, 0))
	gc, err := garbagecollector.NewGarbageCollector(ctx, a.client, meta, a.mapper(), ignored, informers, started)
	if err != nil {
		return controller{}, fmt.Errorf("make the garbage collector: %w", err)
	}
	return upstream("owners", func(ctx context.Context) {
		var wg sync.WaitGroup
		wg.Go(func() { gc.Sync(ctx, a.client.Discovery(), ownerSyncPeriod) })
		gc.Run(ctx, ownerWorkers, ownerSyncTimeout)
		wg.Wait()
	}), nil
}
