package localapi

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/certificates/cleaner"
	"k8s.io/kubernetes/pkg/controller/certificates/rootcacertpublisher"
	"k8s.io/kubernetes/pkg/controller/clusterroleaggregation"
	"k8s.io/kubernetes/pkg/controller/namespace"
	"k8s.io/kubernetes/pkg/controller/serviceaccount"
	"k8s.io/kubernetes/pkg/controller/volume/ephemeral"
	"k8s.io/kubernetes/pkg/controller/volume/persistentvolume"
	"k8s.io/kubernetes/pkg/controller/volume/pvcprotection"
	"k8s.io/kubernetes/pkg/controller/volume/pvprotection"
	"k8s.io/utils/clock"

	"github.com/holdfast-dev/holdfast/internal/localapi/attachdetach"
	"github.com/holdfast-dev/holdfast/internal/localapi/binder"
	"github.com/holdfast-dev/holdfast/internal/localapi/claimexpand"
	"github.com/holdfast-dev/holdfast/internal/localapi/podgc"
)

const (
	// namespaceResync is upstream's period.
	namespaceResync = 5 * time.Minute
	// volumeResync is how soon a claim finds a volume that came after it: the
	// binder looks for one only then. Upstream's is 15 s; here a round costs
	// a look at a handful of objects in memory.
	volumeResync = 5 * time.Second
	// requestLife is how long a pod's request for a certificate stays: upstream's.
	requestLife = 15 * time.Minute
)

// A controller is a loop that runs beside the server. run blocks until ctx is
// done; to return before is a failure.
type controller struct {
	name string
	run  func(ctx context.Context) error
}

// upstream makes a controller of one of upstream's loops, which never fail.
func upstream(name string, run func(ctx context.Context)) controller {
	return controller{name, func(ctx context.Context) error {
		run(ctx)
		return ctx.Err()
	}}
}

// workers makes a loop of one that wants a number of workers.
func workers(run func(context.Context, int), n int) func(context.Context) {
	return func(ctx context.Context) { run(ctx, n) }
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
	owners, err := ownerController(ctx, a, meta)
	if err != nil {
		return nil, err
	}
	budgets, err := disruptionController(ctx, a)
	if err != nil {
		return nil, err
	}
	volumes, err := volumeControllers(ctx, a, s.log)
	if err != nil {
		return nil, err
	}
	oldRequests := cleaner.NewPCRCleanerController(a.client, a.informers.Certificates().V1().PodCertificateRequests(), clock.RealClock{}, requestLife, requestLife/3)
	return append(volumes, owners, budgets,
		upstream("podCertificateRequests", workers(oldRequests.Run, 1)),
		upstream("namespaces", workers(namespaces.Run, 2)),
		upstream("serviceAccounts", workers(accounts.Run, 1)),
		upstream("rootCA", workers(rootCA.Run, 1)),
		upstream("clusterRoleAggregation", workers(aggregation.Run, 1)),
		controller{"binder", binder.New(binder.Config{
			Client: a.client, Informers: a.informers, Node: s.cfg.NodeName, Log: s.log,
		}).Run},
		controller{"attachDetach", attachdetach.New(attachdetach.Config{Client: a.client, Informers: a.informers, Log: s.log}).Run},
		controller{"podGC", podgc.New(podgc.Config{Client: a.client, Informers: a.informers, Log: s.log}).Run},
	), nil
}

// volumeControllers bind claims to volumes and keep those in use.
func volumeControllers(ctx context.Context, a *api, log *slog.Logger) ([]controller, error) {
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
	// The claims that pods with generic ephemeral volumes own.
	own, err := ephemeral.NewController(ctx, a.client, core.Pods(), core.PersistentVolumeClaims())
	if err != nil {
		return nil, fmt.Errorf("make the controller of pods' own claims: %w", err)
	}
	expansion := claimexpand.New(claimexpand.Config{Client: a.client, Informers: a.informers, Log: log})
	return []controller{
		upstream("ephemeralVolumes", workers(own.Run, 1)),
		{"claimExpansion", expansion.Run},
		upstream("volumeBinding", binding.Run),
		upstream("claimProtection", workers(claims.Run, 1)),
		upstream("volumeProtection", workers(volumes.Run, 1)),
	}, nil
}

// runControllers makes every loop and runs it until ctx is done and all have
// ended, or one has failed. It calls started once they run. The server must
// be up: some look at it when they are made.
func (s *Server) runControllers(ctx context.Context, a *api, started func()) error {
	controllers, err := s.newControllers(ctx, a)
	if err != nil {
		return err
	}
	a.startInformers()
	group, ctx := errgroup.WithContext(ctx)
	for _, c := range controllers {
		group.Go(func() error {
			err := c.run(ctx)
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("controller %s ended: %w", c.name, err)
		})
	}
	started()
	return group.Wait()
}
