package localapi

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	coreinformers "k8s.io/client-go/informers/core/v1"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/scale"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller/disruption"
)

// disruptionController is upstream's: it counts the pods of each
// PodDisruptionBudget, and so says how many may be evicted now.
func disruptionController(ctx context.Context, a *api) (controller, error) {
	mapper := a.mapper()
	scales, err := scale.NewForConfig(a.loopback, mapper, dynamic.LegacyAPIPathResolverFunc, scale.NewDiscoveryScaleKindResolver(a.client.Discovery()))
	if err != nil {
		return controller{}, fmt.Errorf("make the disruption controller: %w", err)
	}
	pods := &laterPods{PodInformer: a.informers.Core().V1().Pods()}
	budgets := disruption.NewDisruptionController(ctx,
		pods, a.informers.Policy().V1().PodDisruptionBudgets(),
		absentRCs{absent(&corev1.ReplicationController{})}, absentReplicaSets{absent(&appsv1.ReplicaSet{})},
		absentDeployments{absent(&appsv1.Deployment{})}, absentStatefulSets{absent(&appsv1.StatefulSet{})},
		a.client, mapper, scales, a.client.Discovery())
	if err := pods.register(); err != nil {
		return controller{}, fmt.Errorf("make the disruption controller: %w", err)
	}
	return upstream("disruptionBudgets", workers(budgets.Run, 1)), nil
}

// laterPods holds the handlers of pods back until register is called. Upstream's
// constructor registers them before it has made all that they use, which is too
// early where the informer runs already, as here.
type laterPods struct {
	coreinformers.PodInformer

	handlers []cache.ResourceEventHandler
}

// Informer is that of upstream's typed informers.
func (p *laterPods) Informer() cache.SharedIndexInformer {
	return laterInformer{p.PodInformer.Informer(), p}
}

func (p *laterPods) register() error {
	for _, handler := range p.handlers {
		if _, err := p.PodInformer.Informer().AddEventHandler(handler); err != nil {
			return fmt.Errorf("watch pods: %w", err)
		}
	}
	return nil
}

type laterInformer struct {
	cache.SharedIndexInformer

	later *laterPods
}

// AddEventHandler is that of a cache.SharedIndexInformer; the registration is nil.
func (i laterInformer) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	i.later.handlers = append(i.later.handlers, handler)
	return nil, nil
}

// absentInformer stands for the informer of a kind that is not served: it has
// seen all that there is.
type absentInformer struct{ cache.SharedIndexInformer }

func absent(example runtime.Object) absentInformer {
	return absentInformer{cache.NewSharedIndexInformer(nil, example, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})}
}

// HasSynced is that of a cache.SharedIndexInformer.
func (absentInformer) HasSynced() bool { return true }

type (
	absentRCs          struct{ absentInformer }
	absentReplicaSets  struct{ absentInformer }
	absentDeployments  struct{ absentInformer }
	absentStatefulSets struct{ absentInformer }
)

// Informer is that of upstream's typed informers.
func (i absentInformer) Informer() cache.SharedIndexInformer { return i }

// Lister finds nothing.
func (i absentRCs) Lister() corelisters.ReplicationControllerLister {
	return corelisters.NewReplicationControllerLister(i.GetIndexer())
}

// Lister finds nothing.
func (i absentReplicaSets) Lister() appslisters.ReplicaSetLister {
	return appslisters.NewReplicaSetLister(i.GetIndexer())
}

// Lister finds nothing.
func (i absentDeployments) Lister() appslisters.DeploymentLister {
	return appslisters.NewDeploymentLister(i.GetIndexer())
}

// Lister finds nothing.
func (i absentStatefulSets) Lister() appslisters.StatefulSetLister {
	return appslisters.NewStatefulSetLister(i.GetIndexer())
}
