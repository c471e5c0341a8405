package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// TestTwoNodes holds that two nodes and a control plane are a cluster: what users
// run there runs, their commands work, and pods outlive what happens to nodes. The
// parts follow each other on one cluster.
func TestTwoNodes(t *testing.T) {
	c := newCluster(t)
	c.apply(cronJob) // it has as long as the other parts take
	for _, part := range []struct {
		name string
		run  func(*cluster)
	}{
		{"workloads run, and pods reach each other", (*cluster).workloads},
		{"kubectl works", (*cluster).commands},
		{"objects and tokens reach pods", (*cluster).objects},
		{"a budget holds evictions back, and a drained node is left", (*cluster).drain},
		{"a node that is cut off loses nothing", (*cluster).cutOff},
		{"pods leave a node that died, and are ended when it is back", (*cluster).death},
		{"a CronJob has run", (*cluster).cron},
		{"nothing that a node asked was forbidden", (*cluster).allowed},
	} {
		if !t.Run(part.name, func(t *testing.T) { part.run(c.in(t)) }) {
			return // the next part is on the same cluster
		}
	}
}

const cronJob = `apiVersion: batch/v1
kind: CronJob
metadata: {name: ticks}
spec:
  schedule: "* * * * *"
  jobTemplate:
    spec:
      template:
        spec:
          restartPolicy: Never
          containers: [{name: main, image: ` + demoImage + `, imagePullPolicy: IfNotPresent, args: [echo, tick]}]
`

const workloads = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 2
      containers:
      - name: main
        image: ` + demoImage + `
        imagePullPolicy: IfNotPresent
        args: [serve]
        env: [{name: RELEASE, value: one}]
        readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: each}
spec:
  selector: {matchLabels: {app: each}}
  template:
    metadata: {labels: {app: each}}
    spec:
      terminationGracePeriodSeconds: 2
      containers:
      - {name: main, image: ` + demoImage + `, imagePullPolicy: IfNotPresent, args: [serve]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: once}
spec:
  completions: 3
  parallelism: 2
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: ` + demoImage + `, imagePullPolicy: IfNotPresent, args: [echo, done]}]
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: local}
provisioner: kubernetes.io/no-provisioner
volumeBindingMode: WaitForFirstConsumer
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: store}
spec:
  replicas: 2
  serviceName: store
  selector: {matchLabels: {app: store}}
  template:
    metadata: {labels: {app: store}}
    spec:
      terminationGracePeriodSeconds: 2
      affinity:
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
          - {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: store}}}
      containers:
      - name: main
        image: ` + busyboxImage + `
        imagePullPolicy: Never
        command: [sh, -c, 'echo -n "$0" >> /data/names; exec sleep 100000', $(NAME)]
        env: [{name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
        volumeMounts: [{name: data, mountPath: /data}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec:
      storageClassName: local
      accessModes: [ReadWriteOnce]
      resources: {requests: {storage: 1Mi}}
`

const localVolume = `apiVersion: v1
kind: PersistentVolume
metadata: {name: disk-%[1]s}
spec:
  capacity: {storage: 1Mi}
  accessModes: [ReadWriteOnce]
  storageClassName: local
  persistentVolumeReclaimPolicy: Retain
  local: {path: %[2]s}
  nodeAffinity:
    required:
      nodeSelectorTerms:
      - matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [%[1]s]}]
`

const staticPod = `apiVersion: v1
kind: Pod
metadata: {name: of-a-file, labels: {app: static}}
spec:
  containers: [{name: main, image: ` + demoImage + `, imagePullPolicy: IfNotPresent, args: [sleep, forever]}]
`

// workloads runs one of each kind.
func (c *cluster) workloads() {
	for _, m := range c.nodes {
		disk := m.in.Path("disk")
		m.must("make a disk", os.MkdirAll(disk, 0o755))
		c.apply(fmt.Sprintf(localVolume, m.name, disk))
	}
	first := c.nodes[0]
	first.must("write a static pod", os.WriteFile(filepath.Join(first.staticPods(), "pod.yaml"), []byte(staticPod), 0o644))
	c.apply(workloads)

	c.kubectl("rollout", "status", "deployment/web", "--timeout=4m")
	c.kubectl("scale", "deployment/web", "--replicas=4")
	c.awaitPods("web", 4, nil)
	c.kubectl("set", "env", "deployment/web", "RELEASE=two")
	c.kubectl("rollout", "status", "deployment/web", "--timeout=4m")
	web := c.awaitPods("web", 4, func(p v1.Pod) bool { return p.Spec.Containers[0].Env[0].Value == "two" })
	c.Eventually("the status of a pod is of its last generation", func(ctx context.Context) (bool, error) {
		pod, err := c.admin.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, web[0].Name, metav1.GetOptions{})
		return err == nil && pod.Generation > 0 && pod.Status.ObservedGeneration == pod.Generation, err
	})

	each := c.awaitPods("each", 2, nil)
	slices.SortFunc(each, func(a, b v1.Pod) int { return strings.Compare(a.Spec.NodeName, b.Spec.NodeName) })
	if each[0].Spec.NodeName == each[1].Spec.NodeName {
		c.t.Errorf("both pods of the DaemonSet are on %s", each[0].Spec.NodeName)
	}
	for i, from := range each {
		to := each[1-i]
		if out := c.kubectl("exec", from.Name, "--", "/demo", "get", "http://"+to.Status.PodIP+":8080/healthz"); !strings.Contains(out, "ok") {
			c.t.Errorf("from %s to %s: got %q, want ok", from.Spec.NodeName, to.Spec.NodeName, out)
		}
	}

	c.kubectl("wait", "--for=condition=Complete", "job/once", "--timeout=4m")
	c.kubectl("rollout", "status", "statefulset/store", "--timeout=4m")
	for _, p := range c.awaitPods("store", 2, nil) {
		names, err := os.ReadFile(c.node(p.Spec.NodeName).in.Path("disk", "names"))
		if err != nil || string(names) != p.Name {
			c.t.Errorf("on the disk of %s: %q, %v, want %q", p.Spec.NodeName, names, err, p.Name)
		}
	}
	static := c.awaitPods("static", 1, nil)[0]
	if want := "of-a-file-" + first.name; static.Name != want || static.Annotations[v1.MirrorPodAnnotationKey] == "" {
		c.t.Errorf("got mirror %s %v, want %s", static.Name, static.Annotations, want)
	}
}

// objects has a ConfigMap changed under a pod, and uses a pod's token.
func (c *cluster) objects() {
	c.kubectl("create", "configmap", "settings", "--from-literal=mode=slow")
	c.apply(`apiVersion: v1
kind: Pod
metadata: {name: reader, labels: {app: reader}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: ` + busyboxImage + `
    imagePullPolicy: Never
    command: [sleep, "100000"]
    volumeMounts: [{name: settings, mountPath: /settings}]
  volumes: [{name: settings, configMap: {name: settings}}]
`)
	c.awaitPods("reader", 1, nil)
	read := []string{"exec", "reader", "--", "cat", "/settings/mode"}
	c.eventually("the pod has the ConfigMap", prints("slow"), read...)
	c.kubectl("patch", "configmap", "settings", "-p", `{"data":{"mode":"fast"}}`)
	c.eventually("the pod has what was changed", prints("fast"), read...)

	token := c.kubectl("exec", "reader", "--", "cat", "/var/run/secrets/kubernetes.io/serviceaccount/token")
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host: c.URL(), BearerToken: strings.TrimSpace(token), TLSClientConfig: rest.TLSClientConfig{CAData: c.CA()},
	})
	if err != nil {
		c.t.Fatal(err)
	}
	who, err := client.AuthenticationV1().SelfSubjectReviews().Create(c.t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if want := "system:serviceaccount:default:default"; err != nil || who.Status.UserInfo.Username != want {
		c.t.Fatalf("with the pod's token: %v, %v, want %s", who, err, want)
	}
	if got := who.Status.UserInfo.Extra["authentication.kubernetes.io/pod-name"]; len(got) != 1 || got[0] != "reader" {
		c.t.Errorf("the token is of pod %q, want reader", got)
	}
	c.kubectl("delete", "pod", "reader", "--timeout=4m")
}

// cron waits for the CronJob's first run.
func (c *cluster) cron() {
	c.eventually("the CronJob has run", func(out string) bool { return strings.TrimSpace(out) != "" },
		"get", "cronjob", "ticks", "-o", "jsonpath={.status.lastSuccessfulTime}")
}

// allowed looks whether the node authorizer and NodeRestriction let nodes do all
// that they did.
func (c *cluster) allowed() {
	for _, request := range c.refused() {
		c.t.Errorf("forbidden: %s", request)
	}
}
