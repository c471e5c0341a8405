package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-dev/holdfast/bench/podlife"
)

// updates measures how long it takes from the request that changes a ConfigMap
// until the file of a running pod has the new content.
func updates(ctx context.Context, o options) (took podlife.Series, err error) {
	n, err := newNode(o.bin)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.remove(ctx)) }()
	client, err := n.startReady(ctx)
	if err != nil {
		return nil, err
	}
	configMaps, pods := client.CoreV1().ConfigMaps(metav1.NamespaceDefault), client.CoreV1().Pods(metav1.NamespaceDefault)
	settings := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"key": "none"}}
	if settings, err = configMaps.Create(ctx, settings, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	var pod v1.Pod
	if err := yaml.UnmarshalStrict([]byte(podYAML("reads")), &pod); err != nil {
		return nil, err
	}
	pod.Spec.Volumes = []v1.Volume{{Name: "settings", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
		LocalObjectReference: v1.LocalObjectReference{Name: settings.Name},
	}}}}
	pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "settings", MountPath: "/settings"}}
	watched, err := pods.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=reads"})
	if err != nil {
		return nil, err
	}
	defer watched.Stop()
	made, err := pods.Create(ctx, &pod, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := await(waiting, watched, isReady); err != nil {
		return nil, fmt.Errorf("wait until pod reads is Ready: %w\n%s", err, n.log.String())
	}
	file := filepath.Join(n.root, "kubelet/pods", string(made.UID), "volumes/kubernetes.io~configmap/settings/key")
	for i := range warmUp + o.updates {
		settings.Data["key"] = strconv.Itoa(i)
		began := time.Now()
		if settings, err = configMaps.Update(ctx, settings, metav1.UpdateOptions{}); err != nil {
			return nil, err
		}
		if err := awaitContent(waiting, file, strconv.Itoa(i)); err != nil {
			return nil, fmt.Errorf("%w\n%s", err, n.log.String())
		}
		if i >= warmUp {
			took = append(took, time.Since(began))
		}
	}
	return took, nil
}

// awaitContent looks at a file every fifth of a millisecond until it has the
// content want.
func awaitContent(ctx context.Context, file, want string) error {
	ticker := time.NewTicker(200 * time.Microsecond)
	defer ticker.Stop()
	for {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if string(data) == want {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("wait until %s says %q: %w", file, want, ctx.Err())
		}
	}
}

// updatesTable is the report for people.
func updatesTable(took podlife.Series) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| ConfigMap changed → file changed in the pod (%d times), milliseconds | p50 | p90 | p99 | max |\n|---|---|---|---|---|\n| `holdfast up`", len(took))
	for _, q := range []float64{0.5, 0.9, 0.99, 1} {
		fmt.Fprintf(&b, " | %.1f", float64(took.Quantile(q))/float64(time.Millisecond))
	}
	b.WriteString(" |\n")
	return b.String()
}
