package nodestatus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/nodeaddress"
	"github.com/holdfast-dev/holdfast/internal/kubelet/nodelabels"
	"github.com/holdfast-dev/holdfast/internal/retry"
)

// The waits between attempts to register, as for the upstream kubelet.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 7 * time.Second
)

// register makes sure that the API has this node, however long that takes.
// Meanwhile others may start pods that they know of already: the runtime goes on
// being looked at.
func (r *Reporter) register(ctx context.Context) error {
	looking, done := context.WithCancel(ctx)
	var looker sync.WaitGroup
	defer looker.Wait()
	defer done()
	looker.Go(func() {
		for retry.Sleep(looking, r.lookPeriod()) {
			r.lookAtRuntime(looking)
		}
	})
	for wait, failed := firstRetry, false; ; wait = min(2*wait, lastRetry) {
		callCtx, cancel := context.WithTimeout(ctx, r.cfg.CallTimeout)
		err := r.tryRegister(callCtx)
		cancel()
		if err == nil {
			r.log.Info("Node is registered")
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !failed {
			r.log.Warn("Node is not registered, will retry", "err", err)
			failed = true
		}
		if !retry.Sleep(ctx, wait) {
			return ctx.Err()
		}
	}
}

// lookPeriod is short until the runtime can run pods.
func (r *Reporter) lookPeriod() time.Duration {
	if r.RuntimeErr() != nil || r.NetworkErr() != nil {
		return r.cfg.StartPeriod
	}
	return r.cfg.LookPeriod
}

// tryRegister creates the Node, or adopts the one that exists: the labels that say
// what this machine is and our annotations are put right, its taints and whatever else
// others gave it stay. A Node that somebody else is to make is only looked for.
func (r *Reporter) tryRegister(ctx context.Context) error {
	if r.cfg.Registration.Never {
		existing, err := r.cfg.Nodes.Get(ctx, r.cfg.Node, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("get node, which somebody else is to register (registerNode: false): %w", err)
		}
		r.keep(existing)
		return nil
	}
	node := r.newNode()
	told := r.fill(ctx, node)
	created, err := r.cfg.Nodes.Create(ctx, node, metav1.CreateOptions{})
	if err == nil {
		r.keep(created)
		r.tell(created, told)
		return nil
	}
	if !apierrors.IsAlreadyExists(err) && !apierrors.IsForbidden(err) {
		return fmt.Errorf("create node: %w", err)
	}
	// Who may not make one may have one.
	existing, errGet := r.cfg.Nodes.Get(ctx, r.cfg.Node, metav1.GetOptions{})
	if errGet != nil {
		return fmt.Errorf("get node: %w", errors.Join(errGet, err))
	}
	if existing, err = r.setMetadata(ctx, existing, nodelabels.Reconciled(node.Labels)); err != nil {
		return err
	}
	r.keep(existing)
	return nil
}

// newNode is the Node to create, without its status.
func (r *Reporter) newNode() *v1.Node {
	reg := &r.cfg.Registration
	node := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: r.cfg.Node, Labels: nodelabels.New(r.cfg.Hostname, reg.Labels), Annotations: map[string]string{}},
		Spec:       v1.NodeSpec{Taints: slices.Clone(reg.Taints), ProviderID: reg.ProviderID},
	}
	for key, value := range r.annotations() {
		if value != "" {
			node.Annotations[key] = value
		}
	}
	if reg.ExternalCloud {
		node.Spec.Taints = append(node.Spec.Taints, v1.Taint{Key: uninitialized, Value: "true", Effect: v1.TaintEffectNoSchedule})
	}
	return node
}

// uninitialized is the taint that a cloud's controller takes away.
const uninitialized = "node.cloudprovider.kubernetes.io/uninitialized"

// annotations are those that we keep; one that is empty is not to be there. The first
// says that a controller attaches volumes to this node, and not the node itself, as
// upstream's does: a cluster's leaves the node alone without.
func (r *Reporter) annotations() map[string]string {
	return map[string]string{
		"volumes.kubernetes.io/controller-managed-attach-detach": "true",
		nodeaddress.ProvidedAnnotation:                           r.cfg.Addresses.Provided(),
	}
}

// mend puts back labels and annotations that the node needs while it runs, if somebody
// took them away or the machine is another one. All others stay.
func (r *Reporter) mend(ctx context.Context, node *v1.Node) (*v1.Node, error) {
	if r.cfg.Registration.Never {
		return node, nil
	}
	return r.setMetadata(ctx, node, nodelabels.Platform())
}

func (r *Reporter) setMetadata(ctx context.Context, node *v1.Node, labels map[string]string) (*v1.Node, error) {
	data, err := metadataPatch(node, labels, r.annotations())
	if err != nil || data == nil {
		return node, err
	}
	node, err = r.cfg.Nodes.Patch(ctx, r.cfg.Node, types.StrategicMergePatchType, data, metav1.PatchOptions{})
	if err != nil {
		return nil, fmt.Errorf("patch the node's labels and annotations: %w", err)
	}
	return node, nil
}

// metadataPatch computes what is missing of labels and annotations on node, and what
// is there of annotations that are not to be; nil: nothing.
func metadataPatch(node *v1.Node, labels, annotations map[string]string) ([]byte, error) {
	missing := map[string]any{}
	if m := lacks(node.Labels, labels); len(m) > 0 {
		missing["labels"] = m
	}
	if m := lacks(node.Annotations, annotations); len(m) > 0 {
		missing["annotations"] = m
	}
	if len(missing) == 0 {
		return nil, nil
	}
	missing["uid"] = node.UID
	data, err := json.Marshal(map[string]any{"metadata": missing})
	if err != nil {
		return nil, fmt.Errorf("encode the patch of the node's labels and annotations: %w", err)
	}
	return data, nil
}

// lacks returns what of want is not in have, or is otherwise there; nil stands for
// what is to go, which is empty in want.
func lacks(have, want map[string]string) map[string]*string {
	missing := map[string]*string{}
	for key, value := range want {
		now, ok := have[key]
		switch {
		case value == "" && ok:
			missing[key] = nil
		case value != "" && now != value:
			missing[key] = &value
		}
	}
	return missing
}

func isNotFound(err error) bool { return apierrors.IsNotFound(err) }
