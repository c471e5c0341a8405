package localapi

import (
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
)

// storages remembers every storage that is made. Upstream's providers make
// those of resources that are not served too, and nobody closes them: their
// connections would keep the store from stopping.
type storages struct {
	generic.RESTOptionsGetter

	mu      sync.Mutex
	destroy []factory.DestroyFunc // guarded by mu
}

// GetRESTOptions returns options whose storage is remembered.
func (s *storages) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := s.RESTOptionsGetter.GetRESTOptions(resource, example)
	if err != nil || options.Decorator == nil {
		return options, err
	}
	decorate := options.Decorator
	options.Decorator = func(
		config *storagebackend.ConfigForResource, prefix string, key func(runtime.Object) (string, error),
		newObject, newList func() runtime.Object, attrs storage.AttrFunc, trigger storage.IndexerFuncs, indexers *cache.Indexers,
	) (storage.Interface, factory.DestroyFunc, error) {
		made, destroy, err := decorate(config, prefix, key, newObject, newList, attrs, trigger, indexers)
		if err == nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.destroy = append(s.destroy, destroy)
		}
		return made, destroy, err
	}
	return options, nil
}

// close closes every storage; those that are closed already do not mind.
func (s *storages) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, destroy := range s.destroy {
		destroy()
	}
}
