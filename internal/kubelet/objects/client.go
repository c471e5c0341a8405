package objects

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

// client is how one object is read and watched.
type client struct {
	get   func(context.Context) (runtime.Object, error)
	list  func(context.Context) (items []runtime.Object, resourceVersion string, err error)
	watch func(ctx context.Context, resourceVersion string) (watch.Interface, error)
}

// api is what client-go's typed clients have in common.
type api[T runtime.Object, L interface {
	runtime.Object
	metav1.ListInterface
}] interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (T, error)
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

func (s *Store) client(ref podvolumes.Ref) client {
	core := s.cfg.Client.CoreV1()
	switch ref.Kind {
	case podvolumes.RefConfigMap:
		return clientOf(core.ConfigMaps(ref.Namespace), ref.Name)
	case podvolumes.RefSecret:
		return clientOf(core.Secrets(ref.Namespace), ref.Name)
	case podvolumes.RefClaim:
		return clientOf(core.PersistentVolumeClaims(ref.Namespace), ref.Name)
	case podvolumes.RefPersistentVolume:
		return clientOf(core.PersistentVolumes(), ref.Name)
	case podvolumes.RefTrustBundle:
		return bundlesClient(s.cfg.Client.CertificatesV1().ClusterTrustBundles())
	case podvolumes.RefCSIDriver:
		return clientOf(s.cfg.Client.StorageV1().CSIDrivers(), ref.Name)
	case podvolumes.RefRuntimeClass:
		return clientOf(s.cfg.Client.NodeV1().RuntimeClasses(), ref.Name)
	default:
		panic(fmt.Sprintf("objects: nobody holds a %s", ref.Kind))
	}
}

func clientOf[T runtime.Object, L interface {
	runtime.Object
	metav1.ListInterface
}](typed api[T, L], name string) client {
	// A node of a cluster may list and watch only by name.
	selector := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	return client{
		get: func(ctx context.Context) (runtime.Object, error) {
			return typed.Get(ctx, name, metav1.GetOptions{})
		},
		list: func(ctx context.Context) ([]runtime.Object, string, error) {
			list, err := typed.List(ctx, metav1.ListOptions{FieldSelector: selector})
			if err != nil {
				return nil, "", err
			}
			items, err := meta.ExtractList(list)
			return items, list.GetResourceVersion(), err
		},
		watch: func(ctx context.Context, version string) (watch.Interface, error) {
			return typed.Watch(ctx, metav1.ListOptions{FieldSelector: selector, ResourceVersion: version, AllowWatchBookmarks: true})
		},
	}
}
