package objects

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-dev/holdfast/internal/manifest"
)

// errDeleting is returned for an object that somebody deletes: applying to it
// would change what is about to vanish.
var errDeleting = errors.New("the object is being deleted; it is created again once it is gone")

// apply makes the API's object what the document says.
func (a *Applier) apply(ctx context.Context, d manifest.Document) error {
	r := resources[d.Key.Kind]
	client := r.in(a.cfg.Client, d.Key.Namespace)
	old, err := client.Get(ctx, d.Key.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		old = nil
	case err != nil:
		return err
	case old.GetDeletionTimestamp() != nil:
		return errDeleting
	}
	obj, err := desired(d, mark(old))
	if err != nil {
		return err
	}
	now, err := client.Apply(ctx, d.Key.Name, obj, metav1.ApplyOptions{FieldManager: Manager, Force: true})
	if err != nil {
		return err
	}
	switch {
	case old == nil:
		a.cfg.Log.Info("created an object of the manifest folder", "object", d.Key.String(), "file", d.File)
	case old.GetResourceVersion() != now.GetResourceVersion():
		a.cfg.Log.Info("changed an object of the manifest folder", "object", d.Key.String(), "file", d.File)
	}
	return nil
}

// mark returns the label of an object: one that was there before the folder
// took it stays marked so.
func mark(old *unstructured.Unstructured) string {
	if old == nil || ours(old) && old.GetLabels()[Label] == LabelValue {
		return LabelValue
	}
	return LabelAdopted
}

// ours reports whether an object carries the folder's label and fields.
func ours(obj *unstructured.Unstructured) bool {
	label := obj.GetLabels()[Label]
	if label != LabelValue && label != LabelAdopted {
		return false
	}
	for _, m := range obj.GetManagedFields() {
		if m.Manager == Manager && m.Operation == metav1.ManagedFieldsOperationApply {
			return true
		}
	}
	return false
}

// desired returns what is applied for a document.
func desired(d manifest.Document, mark string) (*unstructured.Unstructured, error) {
	obj := &unstructured.Unstructured{}
	if err := obj.UnmarshalJSON(d.Written); err != nil {
		return nil, fmt.Errorf("read %s again: %w", d.Key, err)
	}
	if err := plainData(obj); err != nil {
		return nil, err
	}
	labels := obj.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[Label] = mark
	obj.SetLabels(labels)
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[FileAnnotation] = d.File
	obj.SetAnnotations(annotations)
	return obj, nil
}

// plainData moves a Secret's stringData to data. The API would, too, but then it
// does not know that the folder owns the keys, and would keep those that leave.
func plainData(obj *unstructured.Unstructured) error {
	if obj.GetKind() != "Secret" {
		return nil
	}
	text, found, err := unstructured.NestedStringMap(obj.Object, "stringData")
	if err != nil || !found {
		return err
	}
	data, _, err := unstructured.NestedStringMap(obj.Object, "data")
	if err != nil {
		return err
	}
	if data == nil {
		data = map[string]string{}
	}
	for name, value := range text {
		data[name] = base64.StdEncoding.EncodeToString([]byte(value))
	}
	unstructured.RemoveNestedField(obj.Object, "stringData")
	return unstructured.SetNestedStringMap(obj.Object, data, "data")
}

// prune deletes what is ours and no longer wanted. It reports whether that went
// through.
func (a *Applier) prune(ctx context.Context, docs []manifest.Document) bool {
	wanted := map[manifest.Key]bool{}
	for _, d := range docs {
		wanted[d.Key] = true
	}
	// Whoever deleted it, it is to be made again if it comes back.
	maps.DeleteFunc(a.applied, func(key manifest.Key, _ manifest.Document) bool { return !wanted[key] })
	done := true
	for _, kind := range slices.Backward(kinds) { // what needs others goes before them
		list, err := resources[kind].in(a.cfg.Client, "").List(ctx, metav1.ListOptions{LabelSelector: Label})
		if err != nil {
			a.logPrune(ctx, kind, err)
			done = false
			continue
		}
		for _, obj := range list.Items {
			key := manifest.Key{Group: resources[kind].Group, Kind: kind, Namespace: obj.GetNamespace(), Name: obj.GetName()}
			if wanted[key] || !ours(&obj) || obj.GetDeletionTimestamp() != nil {
				continue
			}
			if err := a.remove(ctx, key, &obj); err != nil {
				a.logPrune(ctx, key.String(), err)
				done = false
			}
		}
	}
	return done
}

func (a *Applier) logPrune(ctx context.Context, what string, err error) {
	if ctx.Err() == nil {
		a.cfg.Log.Warn("delete what left the manifest folder", "object", what, "err", err)
	}
}

// remove deletes an object that the folder made, and gives up the fields of one
// that it adopted.
func (a *Applier) remove(ctx context.Context, key manifest.Key, obj *unstructured.Unstructured) error {
	client := resources[key.Kind].in(a.cfg.Client, key.Namespace)
	if obj.GetLabels()[Label] == LabelAdopted {
		empty := &unstructured.Unstructured{}
		empty.SetGroupVersionKind(obj.GroupVersionKind())
		empty.SetName(key.Name)
		empty.SetNamespace(key.Namespace)
		if _, err := client.Apply(ctx, key.Name, empty, metav1.ApplyOptions{FieldManager: Manager, Force: true}); err != nil {
			return err
		}
		a.cfg.Log.Info("gave up an object that was there before the manifest folder took it", "object", key.String())
		return nil
	}
	uid, background := obj.GetUID(), metav1.DeletePropagationBackground
	err := client.Delete(ctx, key.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid}, PropagationPolicy: &background,
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	a.cfg.Log.Info("deleted an object that left the manifest folder", "object", key.String())
	return nil
}
