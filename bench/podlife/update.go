package podlife

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	settings = "podlife-settings" // the ConfigMap that is changed
	key      = "key"
	updates  = 2 // how often; a slow agent takes a minute or two each time
)

// update changes a ConfigMap that Half pods have as a volume, and waits until each
// pod's file says so.
func (l *Life) update(ctx context.Context, n Node, w *follower) (err error) {
	if n.Pods == "" {
		return nil
	}
	n.Say("%d pods with a ConfigMap", Half)
	api := n.Client.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	object := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: settings}, Data: map[string]string{key: "none"}}
	if err := api.Delete(ctx, settings, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if object, err = api.Create(ctx, object, metav1.CreateOptions{}); err != nil {
		return err
	}
	n.configMap = true
	names := crowd("reads", Half)
	if _, err := n.start(ctx, w, names); err != nil {
		return err
	}
	files, err := n.files(ctx, names)
	if err != nil {
		return err
	}
	for i := range updates {
		n.Say("change %d of %d of the ConfigMap", i+1, updates)
		object.Data[key] = strconv.Itoa(i)
		began := time.Now()
		if object, err = api.Update(ctx, object, metav1.UpdateOptions{}); err != nil {
			return err
		}
		took, err := seen(ctx, files, object.Data[key], began)
		if err != nil {
			return err
		}
		l.Update = append(l.Update, took...)
	}
	_, err = n.remove(ctx, w, names)
	return errors.Join(err, api.Delete(ctx, settings, metav1.DeleteOptions{}))
}

// files returns where the host has the pods' files, by the pods' names.
func (n Node) files(ctx context.Context, names []string) (map[string]string, error) {
	files := map[string]string{}
	for _, name := range names {
		pod, err := n.Client.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		files[name] = filepath.Join(n.Pods, string(pod.UID), "volumes/kubernetes.io~configmap", settings, key)
	}
	return files, nil
}

// seen returns how long after began each file has the content want. It looks as
// often as a fiftieth of the time that has passed is, a millisecond at first, so
// that looking takes little of the machine.
func seen(ctx context.Context, files map[string]string, want string, began time.Time) (took Series, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	waiting := maps.Clone(files)
	for len(waiting) > 0 {
		for name, file := range waiting {
			data, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			if string(data) == want {
				took = append(took, time.Since(began))
				delete(waiting, name)
			}
		}
		select {
		case <-time.After(max(time.Millisecond, time.Since(began)/50)):
		case <-ctx.Done():
			return nil, fmt.Errorf("wait until the files of %d of %d pods say %q: %w", len(waiting), len(files), want, ctx.Err())
		}
	}
	return took, nil
}
