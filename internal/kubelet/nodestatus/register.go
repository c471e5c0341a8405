package nodestatus

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	goruntime "runtime"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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

// tryRegister creates the Node, or adopts the one that exists: its labels and
// annotations are completed, its taints and whatever else others gave it stay.
func (r *Reporter) tryRegister(ctx context.Context) error {
	node := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: r.cfg.Node, Labels: r.labels(), Annotations: annotations()},
		Spec:       v1.NodeSpec{Taints: r.cfg.Taints},
	}
	if _, err := r.fill(node); err != nil {
		return err
	}
	created, err := r.cfg.Nodes.Create(ctx, node, metav1.CreateOptions{})
	if err == nil {
		r.keep(created)
		return nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create node: %w", err)
	}
	existing, err := r.cfg.Nodes.Get(ctx, r.cfg.Node, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get node: %w", err)
	}
	data, err := metadataPatch(existing, r.labels(), annotations())
	if err != nil {
		return err
	}
	if data != nil {
		existing, err = r.cfg.Nodes.Patch(ctx, r.cfg.Node, types.StrategicMergePatchType, data, metav1.PatchOptions{})
		if err != nil {
			return fmt.Errorf("patch the node's labels and annotations: %w", err)
		}
	}
	r.keep(existing)
	return nil
}

func (r *Reporter) labels() map[string]string {
	labels := map[string]string{
		v1.LabelHostname:   r.cfg.Node,
		v1.LabelOSStable:   goruntime.GOOS,
		v1.LabelArchStable: goruntime.GOARCH,
	}
	maps.Copy(labels, r.cfg.Labels)
	return labels
}

// annotations say that a controller attaches volumes to this node, and not the node
// itself, as upstream's does: a cluster's leaves the node alone without.
func annotations() map[string]string {
	return map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
}

// metadataPatch computes what is missing of labels and annotations on node; nil:
// nothing.
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

// lacks returns what of want is not in have, or is otherwise there.
func lacks(have, want map[string]string) map[string]string {
	missing := map[string]string{}
	for key, value := range want {
		if now, ok := have[key]; !ok || now != value {
			missing[key] = value
		}
	}
	return missing
}

func isNotFound(err error) bool { return apierrors.IsNotFound(err) }
