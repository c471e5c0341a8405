package localapi

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/certificates/rootcacertpublisher"
	"k8s.io/kubernetes/pkg/controller/clusterroleaggregation"
	"k8s.io/kubernetes/pkg/controller/namespace"
	"k8s.io/kubernetes/pkg/controller/serviceaccount"
	"k8s.io/kubernetes/pkg/controller/volume/persistentvolume"
	"k8s.io/kubernetes/pkg/controller/volume/pvcprotection"
	"k8s.io/kubernetes/pkg/controller/volume/pvprotection"
)

const (
	// namespaceResync is upstream's period.
	namespaceResync = 5 * time.Minute
	// volumeResync is how soon a claim finds a volume that came after it: the
	// binder looks for one only then. Upstream's is 15 s; here a round costs
	// a look at a handful of objects in memory.
	volumeResync = 5 * time.Second
)

// A controller is one of upstream's loops. run blocks until ctx is done.
type controller struct {
	name string
	run  func(ctx context.Context)
}

// newControllers makes the loops and registers the informers that they read.
func (s *Server) newControllers(ctx context.Context, a *api) ([]controller, error) {
	logger := klog.FromContext(ctx)
	core := a.informers.Core().V1()
	meta, err := metadata.NewForConfig(a.loopback)
	if err != nil {
		return nil, fmt.Errorf("make the metadata client: %w", err)
	}
	namespaces := namespace.NewNamespaceController(ctx, a.client, meta, a.client.Discovery().ServerPreferredNamespacedResources,
		core.Namespaces(), namespaceResync, corev1.FinalizerKubernetes)
	accounts, err := serviceaccount.NewServiceAccountsController(logger, core.ServiceAccounts(), core.Namespaces(), a.client,
		serviceaccount.DefaultServiceAccountsControllerOptions())
	if err != nil {
		return nil, fmt.Errorf("make the service account controller: %w", err)
	}
	rootCA, err := rootcacertpublisher.NewPublisher(core.ConfigMaps(), core.Namespaces(), a.client, s.pki.CertPEM())
	if err != nil {
		return nil, fmt.Errorf("make the root CA publisher: %w", err)
	}
	aggregation := clusterroleaggregation.NewClusterRoleAggregation(a.informers.Rbac().V1().ClusterRoles(), a.client.RbacV1())
	volumes, err := volumeControllers(ctx, a)
	if err != nil {
		return nil, err
	}
	return append(volumes,
		controller{"namespaces", func(ctx context.Context) { namespaces.Run(ctx, 2) }},
		controller{"serviceAccounts", func(ctx context.Context) { accounts.Run(ctx, 1) }},
		controller{"rootCA", func(ctx context.Context) { rootCA.Run(ctx, 1) }},
		controller{"clusterRoleAggregation", func(ctx context.Context) { aggregation.Run(ctx, 1) }},
	), nil
}

// volumeControllers bind claims to volumes and keep those in use.
func volumeControllers(ctx context.Context, a *api) ([]controller, error) {
	core := a.informers.Core().V1()
	// No volume plugins: they would provision, delete and recycle, which is
	// the work of a provisioner. A released volume whose policy is Delete is
	// left to the provisioner that made it.
	binding, err := persistentvolume.NewController(ctx, persistentvolume.ControllerParameters{
		KubeClient:                a.client,
		SyncPeriod:                volumeResync,
		VolumeInformer:            core.PersistentVolumes(),
		ClaimInformer:             core.PersistentVolumeClaims(),
		ClassInformer:             a.informers.Storage().V1().StorageClasses(),
		PodInformer:               core.Pods(),
		NodeInformer:              core.Nodes(),
		EnableDynamicProvisioning: true,
	})
	if err != nil {
		return nil, fmt.Errorf("make the volume binder: %w", err)
	}
	logger := klog.FromContext(ctx)
	claims, err := pvcprotection.NewPVCProtectionController(logger, core.PersistentVolumeClaims(), core.Pods(), a.client)
	if err != nil {
		return nil, fmt.Errorf("make the claim protection: %w", err)
	}
	volumes, err := pvprotection.NewPVProtectionController(logger, core.PersistentVolumes(), a.client)
	if err != nil {
		return nil, fmt.Errorf("make the volume protection: %w", err)
	}
	return []controller{
		{"volumeBinding", binding.Run},
		{"claimProtection", func(ctx context.Context) { claims.Run(ctx, 1) }},
		{"volumeProtection", func(ctx context.Context) { volumes.Run(ctx, 1) }},
	}, nil
}

// runControllers makes every loop and runs it until ctx is done and all have
// ended. It calls started once they run. The server must be up: some look at
// it when they are made.
func (s *Server) runControllers(ctx context.Context, a *api, started func()) error {
	controllers, err := s.newControllers(ctx, a)
	if err != nil {
		return err
	}
	a.startInformers()
	var wg sync.WaitGroup
	for _, c := range controllers {
		wg.Go(func() {
			c.run(ctx)
			s.log.Debug("controller ended", "controller", c.name)
		})
	}
	started()
	wg.Wait()
	return nil
}
