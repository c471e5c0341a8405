// Package podgc deletes pods that nobody else will: the oldest of those that
// ended, when there are too many, and those of nodes that are no more, as
// after a change of the node's name.
//
// It reads pods and nodes from informers that its caller starts, and deletes
// pods through the API. Its rules are those of the upstream pod garbage
// collector, which is not used because it brings in the whole upstream
// kubelet.
//
// All of it is done by one goroutine, that of Run.
package podgc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

const (
	defaultKeep = 200
	// period is between two looks. A pod whose node is missing in two looks
	// running is an orphan: upstream waits 40 s.
	period = time.Minute
)

// Config says what to collect.
type Config struct {
	// Client deletes. Required.
	Client kubernetes.Interface
	// Informers read. New registers what it needs; the caller starts them.
	// Required.
	Informers informers.SharedInformerFactory
	// Keep is how many pods that ended stay. Default: 200 (upstream's 12,500
	// is a cluster's number).
	Keep int
	// Log gets deletions (info) and failures (warn). Required.
	Log *slog.Logger
}

// A Collector deletes pods.
type Collector struct {
	client kubernetes.Interface
	keep   int
	log    *slog.Logger
	pods   corelisters.PodLister
	nodes  corelisters.NodeLister
	synced []cache.InformerSynced
	// suspects are the pods whose node was missing at the last look.
	suspects map[types.UID]bool
}

// New makes a Collector and registers its informers.
func New(cfg Config) *Collector {
	core := cfg.Informers.Core().V1()
	if cfg.Keep == 0 {
		cfg.Keep = defaultKeep
	}
	return &Collector{
		client: cfg.Client, keep: cfg.Keep, log: cfg.Log,
		pods: core.Pods().Lister(), nodes: core.Nodes().Lister(),
		synced: []cache.InformerSynced{core.Pods().Informer().HasSynced, core.Nodes().Informer().HasSynced},
	}
}

// Run collects until ctx is done.
func (c *Collector) Run(ctx context.Context) error {
	if !cache.WaitForCacheSync(ctx.Done(), c.synced...) {
		return ctx.Err()
	}
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		if err := c.look(ctx); err != nil && ctx.Err() == nil {
			c.log.Warn("collect pods: will try again", "err", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (c *Collector) look(ctx context.Context) error {
	pods, err := c.pods.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	nodes, err := c.nodes.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	missing := withoutNode(pods, nodes)
	var errs []error
	suspects := map[types.UID]bool{}
	for _, pod := range missing {
		suspects[pod.UID] = true
		if c.suspects[pod.UID] {
			errs = append(errs, c.delete(ctx, pod, "its node is gone"))
		}
	}
	c.suspects = suspects
	for _, pod := range surplus(pods, c.keep) {
		errs = append(errs, c.delete(ctx, pod, "it ended, and newer ones did"))
	}
	return errors.Join(errs...)
}

// withoutNode are the pods bound to a node that is not there.
func withoutNode(pods []*corev1.Pod, nodes []*corev1.Node) []*corev1.Pod {
	there := map[string]bool{"": true}
	for _, n := range nodes {
		there[n.Name] = true
	}
	return slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool { return there[p.Spec.NodeName] })
}

// surplus are the pods to delete of those that ended, so that keep stay: the
// evicted first, then the oldest.
func surplus(pods []*corev1.Pod, keep int) []*corev1.Pod {
	ended := slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool {
		return p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed || p.DeletionTimestamp != nil
	})
	if len(ended) <= keep {
		return nil
	}
	slices.SortFunc(ended, func(p, q *corev1.Pod) int {
		if pe, qe := evicted(p), evicted(q); pe != qe {
			if pe {
				return -1
			}
			return 1
		}
		if t := p.CreationTimestamp.Compare(q.CreationTimestamp.Time); t != 0 {
			return t
		}
		return strings.Compare(p.Namespace+"/"+p.Name, q.Namespace+"/"+q.Name)
	})
	return ended[:len(ended)-keep]
}

func evicted(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed && p.Status.Reason == "Evicted"
}

// delete removes a pod at once: there is nothing to stop.
func (c *Collector) delete(ctx context.Context, pod *corev1.Pod, why string) error {
	name := pod.Namespace + "/" + pod.Name
	err := c.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64), Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete pod %s: %w", name, err)
	}
	c.log.Info("pod deleted", "pod", name, "node", pod.Spec.NodeName, "why", why)
	return nil
}
