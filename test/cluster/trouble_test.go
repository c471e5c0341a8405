package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// drain empties the node of a pod that a budget protects.
func (c *cluster) drain() {
	c.kubectl("create", "poddisruptionbudget", "web", "--selector=app=web", "--min-available=4")
	pod := c.awaitPods("web", 4, nil)[0]
	c.eventually("the budget counts the pods", prints("4"), "get", "pdb", "web", "-o", "jsonpath={.status.currentHealthy}")
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace}}
	if err := c.admin.CoreV1().Pods(pod.Namespace).EvictV1(c.t.Context(), eviction); !apierrors.IsTooManyRequests(err) {
		c.t.Fatalf("evicted against the budget: %v", err)
	}
	c.kubectl("patch", "pdb", "web", "-p", `{"spec":{"minAvailable":3}}`)
	from := c.node(pod.Spec.NodeName)
	to := c.other(from)
	c.kubectl("drain", from.name, "--ignore-daemonsets", "--delete-emptydir-data", "--pod-selector=app=web", "--timeout=4m")
	c.awaitPods("web", 4, func(p v1.Pod) bool { return p.Spec.NodeName == to.name })
	c.awaitContainers(from, "nothing of web runs", func(running map[string]string) bool {
		for key := range running {
			if strings.HasPrefix(key, "default/web-") {
				return false
			}
		}
		return true
	})
	c.kubectl("uncordon", from.name)
	c.awaitReady(from)
	c.kubectl("delete", "pdb", "web")
}

// awaitContainers waits until what runs on a machine is as ok wants.
func (c *cluster) awaitContainers(m *machine, what string, ok func(running map[string]string) bool) {
	c.t.Helper()
	c.Eventually(what+" on "+m.name, func(ctx context.Context) (bool, error) {
		running, err := m.containers(ctx)
		return err == nil && ok(running), errors.Join(err, fmt.Errorf("what runs is %v", running))
	})
}

// settled returns what runs on a machine when it is what belongs there: pods of
// Jobs come and go.
func settled(running map[string]string) map[string]string {
	kept := maps.Clone(running)
	maps.DeleteFunc(kept, func(key, _ string) bool { return strings.HasPrefix(key, "default/ticks-") })
	return kept
}

// cutOff pulls a node's plug until the cluster gives it up, and puts it back. What
// the cluster makes of an absence is decided by then: longer ones change nothing.
func (c *cluster) cutOff() {
	m := c.nodes[1]
	m.must("make a folder", os.MkdirAll(m.folder(), 0o755))
	c.apply(`apiVersion: v1
kind: Pod
metadata: {name: crashes, labels: {app: crashes}}
spec:
  nodeName: ` + m.name + `
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: ` + busyboxImage + `
    imagePullPolicy: Never
    command: [sh, -c, 'until test -e /end/now; do sleep 1; done; /bin/busybox rm /end/now']
    volumeMounts: [{name: end, mountPath: /end}]
  volumes: [{name: end, hostPath: {path: ` + m.folder() + `}}]
`)
	c.awaitPods("crashes", 1, nil)
	before, err := m.containers(c.t.Context())
	m.must("ask the runtime", err)
	const crashing = "default/crashes/main"

	c.network.set(c.t, m, "down")
	m.must("tell the container to end", os.WriteFile(filepath.Join(m.folder(), "now"), nil, 0o600)) // the container ends, and starts again with nobody to tell
	c.awaitContainers(m, "the container that ended runs again", func(running map[string]string) bool {
		return running[crashing] != "" && running[crashing] != before[crashing]
	})
	c.Eventually("the cluster gives "+m.name+" up", func(ctx context.Context) (bool, error) {
		node, err := c.admin.CoreV1().Nodes().Get(ctx, m.name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		ready := condition(node, v1.NodeReady)
		return ready.Status == v1.ConditionUnknown && len(node.Spec.Taints) > 0, fmt.Errorf("%s: %s", ready.Reason, ready.Message)
	})
	c.network.set(c.t, m, "up")
	c.awaitReady(m)

	c.Eventually("the cluster hears of the restart", func(ctx context.Context) (bool, error) {
		pod, err := c.admin.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, "crashes", metav1.GetOptions{})
		if err != nil || len(pod.Status.ContainerStatuses) == 0 {
			return false, err
		}
		return pod.Status.ContainerStatuses[0].RestartCount == 1, fmt.Errorf("status %v", pod.Status.ContainerStatuses)
	})
	after, err := m.containers(c.t.Context())
	m.must("ask the runtime", err)
	delete(before, crashing)
	delete(after, crashing)
	if before, after := settled(before), settled(after); !maps.Equal(before, after) {
		c.t.Errorf("containers before %v, after %v, want the same", before, after)
	}
	c.kubectl("delete", "pod", "crashes", "--timeout=4m")
}

// death kills a node's agent for as long as it takes its pods to move.
func (c *cluster) death() {
	c.apply(`apiVersion: apps/v1
kind: Deployment
metadata: {name: mobile}
spec:
  selector: {matchLabels: {app: mobile}}
  template:
    metadata: {labels: {app: mobile}}
    spec:
      terminationGracePeriodSeconds: 1
      tolerations:
      - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 1}
      - {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 1}
      containers:
      - {name: main, image: ` + demoImage + `, imagePullPolicy: IfNotPresent, args: [serve]}
`)
	pod := c.awaitPods("mobile", 1, nil)[0]
	m := c.node(pod.Spec.NodeName)
	key := "default/" + pod.Name + "/main"
	m.killAgent()
	c.awaitPods("mobile", 1, func(p v1.Pod) bool { return p.Spec.NodeName == c.other(m).name })
	running, err := m.containers(c.t.Context())
	if err != nil || running[key] == "" {
		c.t.Errorf("on the node without an agent: %v, %v, want %s in it", running, err, key)
	}
	m.startAgent()
	c.awaitReady(m)
	c.awaitContainers(m, "the pod that moved ends", func(running map[string]string) bool { return running[key] == "" })
	c.Eventually("the API has the old pod no more", func(ctx context.Context) (bool, error) {
		_, err := c.admin.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), err
	})
}
