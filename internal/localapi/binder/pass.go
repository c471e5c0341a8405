package binder

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/volume"
)

// noProvisioner marks a class whose volumes somebody else makes.
const noProvisioner = "kubernetes.io/no-provisioner"

// pass looks at every pod that waits, and at every claim of a pod on the node
// that waits for its first consumer, and writes what can be written.
func (b *Binder) pass(ctx context.Context) error {
	pods, err := b.pods.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	b.forget(pods)
	waiting := waiting(pods, b.assumed)
	w, err := b.look(pods)
	if err != nil {
		return err
	}
	if w == nil {
		return b.tellAll(ctx, waiting, "no nodes available to schedule pods")
	}
	var errs []error
	// A static pod is on the node from the start: it is the first consumer of
	// its claims without ever being bound.
	for _, pod := range w.pods {
		if why, s := planClaims(pod, w); len(why) == 0 && s.pending {
			errs = append(errs, b.apply(ctx, s))
		}
	}
	for _, pod := range waiting {
		errs = append(errs, b.decide(ctx, pod, w))
	}
	return errors.Join(errs...)
}

// forget drops what was remembered of pods that are gone or seen bound.
func (b *Binder) forget(pods []*corev1.Pod) {
	unbound := map[types.UID]bool{}
	for _, pod := range pods {
		if pod.Spec.NodeName == "" {
			unbound[pod.UID] = true
		}
	}
	maps.DeleteFunc(b.assumed, func(uid types.UID, _ *corev1.Pod) bool { return !unbound[uid] })
	maps.DeleteFunc(b.told, func(uid types.UID, _ string) bool { return !unbound[uid] })
}

// waiting are the pods to bind, in the scheduler's order: by priority, then
// by age.
func waiting(pods []*corev1.Pod, assumed map[types.UID]*corev1.Pod) []*corev1.Pod {
	var out []*corev1.Pod
	for _, pod := range pods {
		if pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil && !terminal(pod) &&
			len(pod.Spec.SchedulingGates) == 0 && pod.Spec.SchedulerName == corev1.DefaultSchedulerName && assumed[pod.UID] == nil {
			out = append(out, pod)
		}
	}
	slices.SortFunc(out, func(p, q *corev1.Pod) int {
		return cmp.Or(
			cmp.Compare(priority(q), priority(p)),
			p.CreationTimestamp.Compare(q.CreationTimestamp.Time),
			cmp.Compare(p.UID, q.UID),
		)
	})
	return out
}

func priority(pod *corev1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}

// look takes the picture that one pass works from; nil if there is no node.
func (b *Binder) look(pods []*corev1.Pod) (*world, error) {
	node, err := b.nodes.Get(b.node)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	claims, claimsErr := b.claims.List(labels.Everything())
	volumes, volumesErr := b.volumes.List(labels.Everything())
	namespaces, namespacesErr := b.namespaces.List(labels.Everything())
	classes, classesErr := b.classes.List(labels.Everything())
	if err := errors.Join(err, claimsErr, volumesErr, namespacesErr, classesErr); err != nil {
		return nil, fmt.Errorf("list: %w", err)
	}
	w := &world{
		node: node, volumes: volumes, namespaces: map[string]labels.Set{}, claims: map[string]*corev1.PersistentVolumeClaim{},
		classes: map[string]bool{}, static: map[string]bool{},
	}
	for _, pod := range pods {
		if pod.Spec.NodeName == b.node && !terminal(pod) {
			w.pods = append(w.pods, pod)
		}
	}
	w.pods = slices.AppendSeq(w.pods, maps.Values(b.assumed))
	for _, c := range claims {
		w.claims[claimKey(c.Namespace, c.Name)] = c
	}
	for _, n := range namespaces {
		w.namespaces[n.Name] = n.Labels
	}
	for _, c := range classes {
		w.classes[c.Name] = c.VolumeBindingMode != nil && *c.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
		w.static[c.Name] = c.Provisioner == noProvisioner
	}
	return w, nil
}

// decide binds a pod, prepares its claims, or says why it waits.
func (b *Binder) decide(ctx context.Context, pod *corev1.Pod, w *world) error {
	why := fit(pod, w)
	if len(why) == 0 {
		var s steps
		if why, s = planClaims(pod, w); len(why) == 0 && s.pending {
			return b.apply(ctx, s) // once they are bound, the claims wake us
		}
	}
	if len(why) > 0 {
		return b.tell(ctx, pod, "0/1 nodes are available: "+join(why)+".")
	}
	return b.bind(ctx, pod, w)
}

// join writes reasons as the scheduler does, each with its number of nodes.
// What concerns no node, such as a missing claim, has no number.
func join(why []string) string {
	var parts []string
	for _, reason := range why {
		if !strings.HasPrefix(reason, "persistentvolumeclaim ") && !strings.HasPrefix(reason, "pod has ") {
			reason = "1 " + reason
		}
		if !slices.Contains(parts, reason) {
			parts = append(parts, reason)
		}
	}
	return strings.Join(parts, ", ")
}

func (b *Binder) bind(ctx context.Context, pod *corev1.Pod, w *world) error {
	err := b.client.CoreV1().Pods(pod.Namespace).Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: b.node},
	}, metav1.CreateOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // it went, or somebody else bound it
	}
	if err != nil {
		return fmt.Errorf("bind pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	b.log.Info("pod bound", "pod", pod.Namespace+"/"+pod.Name, "node", b.node)
	b.events.Eventf(pod, corev1.EventTypeNormal, "Scheduled", "Successfully assigned %s/%s to %s", pod.Namespace, pod.Name, b.node)
	onNode := pod.DeepCopy()
	onNode.Spec.NodeName = b.node
	b.assumed[pod.UID] = onNode
	w.pods = append(w.pods, onNode)
	return nil
}

// apply writes what a pod's claims need.
func (b *Binder) apply(ctx context.Context, s steps) error {
	var errs []error
	for _, v := range s.prebind {
		// A conflict means that a newer version is on its way, and wakes us.
		if _, err := b.client.CoreV1().PersistentVolumes().Update(ctx, v, metav1.UpdateOptions{}); err != nil && !apierrors.IsConflict(err) {
			errs = append(errs, fmt.Errorf("give volume %s to its claim: %w", v.Name, err))
		}
	}
	for _, c := range s.provision {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"resourceVersion": c.ResourceVersion,
			"annotations":     map[string]string{volume.AnnSelectedNode: b.node},
		}})
		if err == nil {
			_, err = b.client.CoreV1().PersistentVolumeClaims(c.Namespace).Patch(ctx, c.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		}
		if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("select the node of claim %s/%s: %w", c.Namespace, c.Name, err))
		}
	}
	return errors.Join(errs...)
}

func (b *Binder) tellAll(ctx context.Context, pods []*corev1.Pod, message string) error {
	var errs []error
	for _, pod := range pods {
		errs = append(errs, b.tell(ctx, pod, message))
	}
	return errors.Join(errs...)
}

// tell says on the pod and by an event why it waits, once for each reason.
func (b *Binder) tell(ctx context.Context, pod *corev1.Pod, message string) error {
	if b.told[pod.UID] == message {
		return nil
	}
	condition := corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		Message: message, ObservedGeneration: pod.Generation, LastTransitionTime: metav1.Now(),
	}
	if i := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodScheduled }); i >= 0 {
		old := pod.Status.Conditions[i]
		if old.Reason == condition.Reason && old.Message == message {
			b.told[pod.UID] = message // said before a restart
			return nil
		}
		if old.Status == condition.Status {
			condition.LastTransitionTime = old.LastTransitionTime
		}
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []corev1.PodCondition{condition}}})
	if err != nil {
		return fmt.Errorf("encode a condition: %w", err)
	}
	_, err = b.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("say why pod %s/%s waits: %w", pod.Namespace, pod.Name, err)
	}
	b.events.Event(pod, corev1.EventTypeWarning, "FailedScheduling", message)
	b.told[pod.UID] = message
	return nil
}
