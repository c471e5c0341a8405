package objects

import (
	"context"
	"errors"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

// ClusterTrustBundles are held all together, as one list: pods choose among them
// by signer and labels.

// errNoBundles is returned by TrustBundles where the API server does not know
// the kind, which is to be told apart from one bundle that is not there.
var errNoBundles = errors.New("the API server does not serve ClusterTrustBundles of certificates.k8s.io/v1")

// TrustBundles returns all ClusterTrustBundles, as GetConfigMap a ConfigMap.
func (s *Store) TrustBundles(ctx context.Context) (*certificatesv1.ClusterTrustBundleList, error) {
	list, err := get[*certificatesv1.ClusterTrustBundleList](ctx, s, podvolumes.TrustBundles)
	if apierrors.IsNotFound(err) {
		return nil, errNoBundles
	}
	return list, err
}

// bundlesClient reads and watches all of them.
func bundlesClient(typed api[*certificatesv1.ClusterTrustBundle, *certificatesv1.ClusterTrustBundleList]) client {
	list := func(ctx context.Context) ([]runtime.Object, string, error) {
		list, err := typed.List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, "", err
		}
		items, err := meta.ExtractList(list)
		return items, list.GetResourceVersion(), err
	}
	return client{
		get: func(ctx context.Context) (runtime.Object, error) {
			items, _, err := list(ctx)
			if err != nil {
				return nil, err
			}
			return bundles(items), nil
		},
		list: list,
		watch: func(ctx context.Context, version string) (watch.Interface, error) {
			return typed.Watch(ctx, metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true})
		},
	}
}

// bundles makes a list of bundles.
func bundles(items []runtime.Object) *certificatesv1.ClusterTrustBundleList {
	list := &certificatesv1.ClusterTrustBundleList{}
	for _, item := range items {
		if b, ok := item.(*certificatesv1.ClusterTrustBundle); ok {
			b.ManagedFields = nil
			list.Items = append(list.Items, *b)
		}
	}
	return list
}

// bundleEvent records that a bundle came, changed or went. Who has the list of
// before keeps it.
func (s *Store) bundleEvent(e *entry, what watch.EventType, bundle *certificatesv1.ClusterTrustBundle) {
	s.mu.Lock()
	before, _ := e.object.(*certificatesv1.ClusterTrustBundleList)
	s.mu.Unlock()
	after := &certificatesv1.ClusterTrustBundleList{}
	if before != nil {
		after.Items = slices.DeleteFunc(slices.Clone(before.Items), func(b certificatesv1.ClusterTrustBundle) bool { return b.Name == bundle.Name })
	}
	if what != watch.Deleted {
		bundle.ManagedFields = nil
		after.Items = append(after.Items, *bundle)
	}
	s.seen(e, after)
}
