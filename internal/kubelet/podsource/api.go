package podsource

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/holdfast-dev/holdfast/internal/kubelet/desired"
	"github.com/holdfast-dev/holdfast/internal/kubelet/fault"
	"github.com/holdfast-dev/holdfast/internal/kubelet/staticpod"
)

// APIConfig configures the source `api`.
type APIConfig struct {
	// Node is this node's name.
	Node string
	// Client lists and watches pods.
	Client kubernetes.Interface
	// Ready, if given, is closed when pods may be asked for: upstream waits until
	// the node object is known, without which pods cannot be admitted.
	Ready   <-chan struct{}
	Deliver Deliver
	Log     *slog.Logger
}

// API follows the pods that are bound to this node.
type API struct {
	cfg   APIConfig
	pods  *latest[[]*corev1.Pod]
	state outage
}

// NewAPI returns the source. It starts nothing.
func NewAPI(cfg APIConfig) *API {
	return &API{cfg: cfg, pods: newLatest[[]*corev1.Pod](), state: outage{log: cfg.Log.With("source", staticpod.SourceAPI)}}
}

// Faults tells while pods cannot be read from the API.
func (a *API) Faults() []fault.Fault { return a.state.faults() }

// Run delivers the full set at first and after each change until ctx is done. It
// returns nil then. While the server does not answer nothing is delivered: what
// ran stays.
func (a *API) Run(ctx context.Context) error {
	if a.cfg.Ready != nil {
		select {
		case <-a.cfg.Ready:
		case <-ctx.Done():
			return nil
		}
	}
	lw := cache.ToListWatcherWithWatchListSemantics(a.listWatch(), a.cfg.Client)
	store := cache.NewUndeltaStore(func(objs []any) {
		a.state.end()
		a.pods.put(podsOf(objs))
	}, cache.MetaNamespaceKeyFunc)
	reflector := cache.NewReflectorWithOptions(lw, &corev1.Pod{}, store, cache.ReflectorOptions{
		Name: "podsource",
	})
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { a.follow(ctx, reflector) })
	for {
		pods, ok := a.pods.get(ctx)
		if !ok {
			return nil
		}
		a.cfg.Deliver(ctx, desired.Delivery{Source: staticpod.SourceAPI, Pods: pods})
	}
}

func (a *API) listWatch() *cache.ListWatch {
	pods := a.cfg.Client.CoreV1().Pods(corev1.NamespaceAll)
	mine := fields.OneTermEqualSelector("spec.nodeName", a.cfg.Node).String()
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			opts.FieldSelector = mine
			return pods.List(ctx, opts)
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			opts.FieldSelector = mine
			return pods.Watch(ctx, opts)
		},
	}
}

// follow lists and watches again and again, with a growing pause while the
// server does not answer.
func (a *API) follow(ctx context.Context, r *cache.Reflector) {
	const first, most = 200 * time.Millisecond, 10 * time.Second
	pause := first
	for {
		began := time.Now()
		err := r.ListAndWatchWithContext(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			a.state.begin(err)
		}
		if err == nil || time.Since(began) > most {
			pause = first
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, most)
	}
}

// podsOf returns the pods ordered by namespace and name.
func podsOf(objs []any) []*corev1.Pod {
	pods := make([]*corev1.Pod, 0, len(objs))
	for _, o := range objs {
		if pod, ok := o.(*corev1.Pod); ok {
			pods = append(pods, pod)
		}
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return slices.Compare([]string{a.Namespace, a.Name}, []string{b.Namespace, b.Name})
	})
	return pods
}

// An outage is logged when it begins and when it ends.
type outage struct {
	log *slog.Logger

	mu    sync.Mutex // guards the fields below
	err   error      // nil: there is none
	since time.Time  // with err
}

func (o *outage) begin(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		o.since = time.Now()
		o.log.Warn("pods cannot be read from the API: what ran stays", "err", err)
	}
	o.err = err
}

func (o *outage) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		o.err = nil
		o.log.Info("pods are read from the API again")
	}
}

func (o *outage) faults() []fault.Fault {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		return nil
	}
	return []fault.Fault{{Object: "Pods", Message: fmt.Sprintf("cannot be read from the API: %v; what ran stays", o.err), Since: o.since}}
}
