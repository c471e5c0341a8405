package localapi

import (
	"errors"
	"fmt"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// storages makes the storage of every resource upon one client that calls the
// store in this process. Upstream's factory makes a connection for each
// resource, with buffers and a dozen goroutines at either end.
//
// It also remembers what it made. Upstream's providers make the storages of
// resources that are not served too, and nobody closes those.
type storages struct {
	generic.RESTOptionsGetter
	client    *kubernetes.Client
	compactor compactor

	mu      sync.Mutex
	destroy []factory.DestroyFunc // guarded by mu
}

// compactor is upstream's own unexported compactor, which bounds the history.
type compactor interface {
	etcd3.Compactor
	Stop()
}

// newStorages makes storages upon a client of the store, which it owns from
// then on. The options for each resource are getter's, but for its storage.
func newStorages(getter generic.RESTOptionsGetter, client *clientv3.Client, guard *guard) *storages {
	// So that a slow request's trace says how long the store took.
	client.KV = etcd3.NewETCDLatencyTracker(client.KV)
	shared := &kubernetes.Client{Client: client}
	shared.Kubernetes = guarded{shared, guard}
	return &storages{
		RESTOptionsGetter: getter,
		client:            shared,
		compactor:         etcd3.NewCompactor(client, compactInterval, clock.RealClock{}, nil),
	}
}

// GetRESTOptions returns options whose storage is made by s.
func (s *storages) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := s.RESTOptionsGetter.GetRESTOptions(resource, example)
	options.Decorator = s.newStorage
	return options, err
}

// newStorage is a generic.StorageDecorator that adds nothing: no watch cache.
func (s *storages) newStorage(
	cfg *storagebackend.ConfigForResource, prefix string, _ func(runtime.Object) (string, error),
	newObject, newList func() runtime.Object, _ storage.AttrFunc, _ storage.IndexerFuncs, _ *cache.Indexers,
) (storage.Interface, factory.DestroyFunc, error) {
	transformer := cfg.Transformer
	if transformer == nil {
		transformer = identity.NewEncryptCheckTransformer()
	}
	versioner := storage.APIObjectVersioner{}
	made, err := etcd3.New(s.client, s.compactor, cfg.Codec, newObject, newList, cfg.Prefix, prefix, cfg.GroupResource,
		transformer, cfg.LeaseManagerConfig, etcd3.NewDefaultDecoder(cfg.Codec, versioner), versioner)
	if err != nil {
		return nil, nil, fmt.Errorf("make the storage of %s: %w", cfg.GroupResource, err)
	}
	destroy := sync.OnceFunc(made.Close) // subresources share a storage, and each of them destroys it
	s.mu.Lock()
	defer s.mu.Unlock()
	s.destroy = append(s.destroy, destroy)
	return made, destroy, nil
}

// close closes every storage and the client.
func (s *storages) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, destroy := range s.destroy {
		destroy()
	}
	s.compactor.Stop()
	// A closed client answers that its own context was canceled.
	if err := s.client.Close(); !errors.Is(err, s.client.Ctx().Err()) {
		return fmt.Errorf("close the store's client: %w", err)
	}
	return nil
}
