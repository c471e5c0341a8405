package objects

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/holdfast-dev/holdfast/internal/kubelet/fault"
	"github.com/holdfast-dev/holdfast/internal/retry"
)

// servicesPatience is how long a reader waits for the first answer.
const servicesPatience = 5 * time.Second

var errNoServices = errors.New("the API server has not answered yet")

// services are the services of all namespaces. They are watched from the first
// read on: a node whose containers all run already never asks for them.
type services struct {
	log   *slog.Logger
	store *serviceStore
	known chan struct{} // closed at the first answer, good or bad

	patience time.Duration // of a reader, with the first answer

	mu     sync.Mutex // guards the fields below
	wanted bool       // somebody has asked
	begun  bool       // the watch was started
	synced bool       // the store holds what the API server said, if ever so long ago
	err    error      // why the last try failed; nil: it did not
	since  time.Time  // since when tries fail, with err
}

// serviceStore is an index of services that tells when it was filled.
type serviceStore struct {
	cache.Indexer
	filled  func()
	edition atomic.Int64 // counts changes
}

// Add takes in a service.
func (s *serviceStore) Add(object any) error {
	defer s.edition.Add(1)
	return s.Indexer.Add(object)
}

// Update takes in a service that is known.
func (s *serviceStore) Update(object any) error {
	defer s.edition.Add(1)
	return s.Indexer.Update(object)
}

// Delete takes in that a service is gone.
func (s *serviceStore) Delete(object any) error {
	defer s.edition.Add(1)
	return s.Indexer.Delete(object)
}

// Replace replaces everything.
func (s *serviceStore) Replace(objects []any, version string) error {
	if err := s.Indexer.Replace(objects, version); err != nil {
		return err
	}
	s.edition.Add(1)
	s.filled()
	return nil
}

func newServices(log *slog.Logger) *services {
	s := &services{log: log.With("object", "services"), known: make(chan struct{}), patience: servicesPatience}
	index := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	s.store = &serviceStore{Indexer: index, filled: func() { s.settle(nil) }}
	return s
}

// Services returns the services that a pod of a namespace may be told about by
// its environment: those of the namespace, and the API server's own. They are
// those that were last seen; before the first answer of the API server it waits
// a few seconds and returns an error then.
func (s *Store) Services(ctx context.Context, namespace string) ([]*v1.Service, error) {
	if s.services.want() {
		s.wake.Ring()
	}
	list, err := s.services.get(ctx, namespace)
	if err == nil || s.cfg.Memory == nil || !silent(err) || ctx.Err() != nil {
		return list, err
	}
	list, kept := s.cfg.Memory.Services(namespace)
	if kept != nil {
		return nil, both(err, kept)
	}
	return list, nil
}

// want notes that services are read, and reports whether that is news.
func (s *services) want() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	news := !s.wanted
	s.wanted = true
	return news
}

// begin reports, once, that the watch has to be started.
func (s *services) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.wanted || s.begun {
		return false
	}
	s.begun = true
	return true
}

func (s *services) get(ctx context.Context, namespace string) ([]*v1.Service, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.patience, errNoServices)
	defer cancel()
	select {
	case <-s.known:
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the list of services: %w", context.Cause(ctx))
	}
	s.mu.Lock()
	synced, err := s.synced, s.err
	s.mu.Unlock()
	if !synced {
		return nil, err
	}
	return s.of(namespace)
}

func (s *services) isSynced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.synced
}

// of returns the services that pods of a namespace may be told of, as last seen.
func (s *services) of(namespace string) ([]*v1.Service, error) {
	found, err := s.store.ByIndex(cache.NamespaceIndex, namespace)
	if err != nil {
		return nil, err
	}
	if namespace != v1.NamespaceDefault {
		if api, ok, _ := s.store.GetByKey(v1.NamespaceDefault + "/kubernetes"); ok {
			found = append(found, api)
		}
	}
	list := make([]*v1.Service, 0, len(found))
	for _, object := range found {
		if service, ok := object.(*v1.Service); ok {
			list = append(list, service)
		}
	}
	slices.SortFunc(list, func(a, b *v1.Service) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return list, nil
}

// settle records an answer, or that there was none.
func (s *services) settle(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	failing := s.err != nil
	s.err = err
	s.synced = s.synced || err == nil
	switch {
	case err != nil && !failing:
		s.since = time.Now()
		s.log.Warn("services cannot be watched; using what was last seen", "err", err)
	case err == nil && failing:
		s.log.Info("services are watched again")
	}
	select {
	case <-s.known:
	default:
		close(s.known)
	}
}

func (s *services) faults() []fault.Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		return nil
	}
	return []fault.Fault{{Object: "Services", Message: s.err.Error(), Since: s.since}}
}

// watch follows the services until ctx is done.
func (s *services) watch(ctx context.Context, client kubernetes.Interface, longest time.Duration) {
	all := client.CoreV1().Services(metav1.NamespaceAll)
	lw := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			return all.List(ctx, opts)
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			return all.Watch(ctx, opts)
		},
	}, client)
	reflector := cache.NewReflectorWithOptions(lw, &v1.Service{}, s.store, cache.ReflectorOptions{Name: "services"})
	pause := firstRetry
	for ctx.Err() == nil {
		began := time.Now()
		err := reflector.ListAndWatchWithContext(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			s.settle(fmt.Errorf("watch services: %w", err))
		}
		if err == nil || time.Since(began) > longest {
			pause = firstRetry
		}
		if !retry.Sleep(ctx, pause) {
			return
		}
		pause = min(2*pause, longest)
	}
}
