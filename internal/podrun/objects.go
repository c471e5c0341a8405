package podrun

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/holdfast-dev/holdfast/internal/manifest"
)

// manager owns the fields of what is made here.
const manager = "holdfast-run"

// accountLimit is how long a namespace may take to get its service account.
const accountLimit = 10 * time.Second

// accountPause is between two looks for it.
const accountPause = 50 * time.Millisecond

// clusterWideFirst puts namespaces, classes and volumes before what needs them.
func clusterWideFirst(docs []manifest.Document) {
	rank := func(d manifest.Document) int {
		if d.Key.Namespace == "" {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(docs, func(a, b manifest.Document) int { return cmp.Compare(rank(a), rank(b)) })
}

// makeObjects makes what the pod needs, and returns what it has made.
func (r *Runner) makeObjects(ctx context.Context) ([]manifest.Document, error) {
	var made []manifest.Document
	for _, d := range r.docs {
		obj := &unstructured.Unstructured{}
		if err := obj.UnmarshalJSON(d.Written); err != nil {
			return made, failf(CodeInvalid, "%s:%d: %s: %w", d.File, d.Line, d.Key, err)
		}
		if _, err := r.resource(d).Create(ctx, obj, metav1.CreateOptions{FieldManager: manager}); err != nil {
			return made, notMade(ctx, d, err)
		}
		made = append(made, d)
	}
	return made, nil
}

// makePod makes the pod. The service account of a new namespace comes a moment
// after it.
func (r *Runner) makePod(ctx context.Context) (*v1.Pod, error) {
	d := r.pod
	pod := d.Object.(*v1.Pod).DeepCopy()
	limit, cancel := context.WithTimeout(ctx, accountLimit)
	defer cancel()
	for {
		made, err := r.cfg.Client.CoreV1().Pods(d.Key.Namespace).Create(ctx, pod, metav1.CreateOptions{FieldManager: manager})
		if err == nil {
			return made, nil
		}
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "error looking up service account") {
			return nil, notMade(ctx, d, err)
		}
		select {
		case <-limit.Done():
			return nil, notMade(ctx, d, err)
		case <-time.After(accountPause):
		}
	}
}

// notMade says why an object was not made, and what to do.
func notMade(ctx context.Context, d manifest.Document, err error) error {
	where := fmt.Sprintf("%s:%d: %s", d.File, d.Line, d.Key)
	var status apierrors.APIStatus
	answered := errors.As(err, &status)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case apierrors.IsAlreadyExists(err) && d.Key.Kind == "Pod":
		return failf(CodeInvalid, "%s is there already: delete it, or use generateName instead of name", where)
	case apierrors.IsAlreadyExists(err):
		return failf(CodeInvalid, "%s is there already, and is not changed: leave it out of the file, or give it another name", where)
	case answered && status.Status().Code < 500:
		return failf(CodeInvalid, "%s: the API did not take it: %w", where, err)
	default:
		return failf(CodeFailed, "%s: make it: %w", where, err)
	}
}

// removeLimit bounds the removal of objects.
const removeLimit = 30 * time.Second

// removeObjects deletes what was made, the last first.
func (r *Runner) removeObjects(ctx context.Context, made []manifest.Document) error {
	ctx, cancel := context.WithTimeout(ctx, removeLimit)
	defer cancel()
	var errs []error
	for _, d := range slices.Backward(made) {
		err := r.resource(d).Delete(ctx, d.Key.Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, failf(CodeFailed, "remove %s: %w", d.Key, err))
		}
	}
	return errors.Join(errs...)
}

func (r *Runner) resource(d manifest.Document) dynamic.ResourceInterface {
	plural, _ := meta.UnsafeGuessKindToResource(d.GVK) // right for every kind that a file may hold
	if d.Key.Namespace == "" {
		return r.cfg.Objects.Resource(plural)
	}
	return r.cfg.Objects.Resource(plural).Namespace(d.Key.Namespace)
}

// deletePod asks for the end of a pod, and reports whether it is gone already.
func deletePod(ctx context.Context, client kubernetes.Interface, pod *v1.Pod) (gone bool, err error) {
	err = client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // another has its name
		return true, nil
	}
	if err != nil {
		return false, failf(CodeFailed, "remove pod %s: %w", name(pod), err)
	}
	return false, nil
}
