// Package csinode tells the API which CSI drivers are on this node: for the
// scheduler, which asks how many volumes fit and where they can be reached, and
// for the drivers' own controllers.
//
// It writes one CSINode, and the Node's annotation csi.volume.kubernetes.io/nodeid
// and its topology labels. A driver is entered when it registers and taken out
// when its socket goes; one that was entered before this process started stays,
// since it registers again at any moment. One goroutine writes, that of Run, and
// tries again what failed; another has drivers asked again that want it.
package csinode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/fault"
	"github.com/holdfast-dev/holdfast/internal/retry"
	"github.com/holdfast-dev/holdfast/internal/wake"
)

// nodes is the part of the API's Node client that is used.
type nodes interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*v1.Node, error)
	Patch(ctx context.Context, name string, kind types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string) (*v1.Node, error)
}

// csiNodes is the part of the API's CSINode client that is used.
type csiNodes interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*storagev1.CSINode, error)
	Create(ctx context.Context, node *storagev1.CSINode, opts metav1.CreateOptions) (*storagev1.CSINode, error)
	Update(ctx context.Context, node *storagev1.CSINode, opts metav1.UpdateOptions) (*storagev1.CSINode, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
}

// A Driver is what a driver says of this node.
type Driver struct {
	Name       string
	NodeID     string
	Topology   map[string]string
	MaxVolumes int64 // 0: it does not say
}

// Config says which node this is.
type Config struct {
	Node     string
	Nodes    nodes
	CSINodes csiNodes
	// Registered is closed once the API has the Node.
	Registered <-chan struct{}
	// Refresh asks drivers that want it again what they say of this node, and returns
	// when it is to be called again; what is new it tells by Set. nil: none is asked.
	Refresh func(ctx context.Context) time.Duration
	Log     *slog.Logger

	CallTimeout time.Duration // of one look at the API and what follows; default: 10s
	// FirstRetry and MaxRetry bound the pauses between tries. Default 500 ms, 1 minute.
	FirstRetry, MaxRetry time.Duration
}

func (c Config) withDefaults() Config {
	c.CallTimeout = cmp.Or(c.CallTimeout, 10*time.Second)
	c.FirstRetry = cmp.Or(c.FirstRetry, 500*time.Millisecond)
	c.MaxRetry = cmp.Or(c.MaxRetry, time.Minute)
	return c
}

// A Publisher keeps the API's picture of the node's drivers true.
type Publisher struct {
	cfg  Config
	wake wake.Bell

	mu struct {
		sync.Mutex
		drivers map[string]*Driver // nil: gone since the start
		err     error
		failing time.Time // since when, with err
	}
}

// New makes a Publisher. It writes nothing before Run.
func New(cfg Config) *Publisher {
	p := &Publisher{cfg: cfg.withDefaults(), wake: wake.NewBell()}
	p.mu.drivers = map[string]*Driver{}
	return p
}

// Set says which drivers are registered now. It never blocks.
func (p *Publisher) Set(drivers []Driver) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name := range p.mu.drivers {
		p.mu.drivers[name] = nil
	}
	for _, d := range drivers {
		p.mu.drivers[d.Name] = &d
	}
	p.wake.Ring()
}

// Run publishes until ctx is done.
func (p *Publisher) Run(ctx context.Context) error {
	select {
	case <-p.cfg.Registered:
	case <-ctx.Done():
		return nil
	}
	var refresher sync.WaitGroup
	defer refresher.Wait()
	if p.cfg.Refresh != nil {
		refresher.Go(func() {
			for retry.Sleep(ctx, p.cfg.Refresh(ctx)) {
			}
		})
	}
	failures := 0
	for {
		var again <-chan time.Time
		if err := p.publish(ctx); err != nil && ctx.Err() == nil {
			failures++
			again = time.After(retry.Pause(failures, p.cfg.FirstRetry, p.cfg.MaxRetry))
			p.settle(err)
		} else {
			failures = 0
			p.settle(nil)
		}
		select {
		case <-p.wake:
		case <-again:
		case <-ctx.Done():
			return nil
		}
	}
}

func (p *Publisher) settle(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil && p.mu.err == nil {
		p.mu.failing = time.Now()
		p.cfg.Log.Warn("CSI drivers are not published; trying again", "err", err)
	}
	p.mu.err = err
}

// Faults returns why the API does not know the node's drivers.
func (p *Publisher) Faults() []fault.Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.err == nil {
		return nil
	}
	return []fault.Fault{{Object: "CSINode " + p.cfg.Node, Message: p.mu.err.Error(), Since: p.mu.failing}}
}

// publish writes what is not as it should be.
func (p *Publisher) publish(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.CallTimeout)
	defer cancel()
	p.mu.Lock()
	drivers := maps.Clone(p.mu.drivers)
	p.mu.Unlock()
	node, err := p.cfg.Nodes.Get(ctx, p.cfg.Node, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get node: %w", err)
	}
	// As upstream: a driver whose labels contradict the node's is not entered.
	patch, refused, err := nodePatch(node, drivers)
	if err != nil {
		return err
	}
	for name := range refused {
		delete(drivers, name)
	}
	if patch != nil {
		if _, err := p.cfg.Nodes.Patch(ctx, p.cfg.Node, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("patch node: %w", err)
		}
	}
	errs := []error{p.enter(ctx, node, drivers)}
	for _, err := range refused {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// enter makes the CSINode say which drivers there are.
func (p *Publisher) enter(ctx context.Context, node *v1.Node, drivers map[string]*Driver) error {
	have, err := p.cfg.CSINodes.Get(ctx, p.cfg.Node, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		have = nil
	case err != nil:
		return fmt.Errorf("get CSINode: %w", err)
	case !ownedBy(have, node):
		// Of a node of this name that is no more; its drivers were others.
		uid := have.UID
		err := p.cfg.CSINodes.Delete(ctx, have.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete CSINode of an earlier node: %w", err)
		}
		have = nil
	}
	if have == nil {
		made := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{
			Name:            node.Name,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}},
		}}
		merge(made, drivers)
		if _, err := p.cfg.CSINodes.Create(ctx, made, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create CSINode: %w", err)
		}
		return nil
	}
	wanted := have.DeepCopy()
	if !merge(wanted, drivers) {
		return nil
	}
	if _, err := p.cfg.CSINodes.Update(ctx, wanted, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("update CSINode: %w", err)
	}
	p.cfg.Log.Info("CSI drivers are published", "count", len(wanted.Spec.Drivers))
	return nil
}
