package e2e

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/holdfast-dev/holdfast/internal/instance"
)

// TestKubectl is the API as a user of kubectl meets it. Its parts are
// independent of each other and share one node.
func TestKubectl(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	for name, test := range map[string]func(*testing.T, *node){
		"run, wait, logs, delete":         testRun,
		"apply, describe, explain":        testApply,
		"logs -f ends with container":     testFollow,
		"exec with input":                 testExecInput,
		"restart policies":                testRestartPolicies,
		"images that are not there":       testImages,
		"anonymous is refused":            testAnonymous,
		"secrets, tokens, env":            testVolumes,
		"claims and volumes":              testClaims,
		"pods reach each other":           testNetwork,
		"a host that lets nothing in":     testFirewall,
		"the kubectl inside":              testOwnKubectl,
		"a pod that nothing can run":      testUnsupported,
		"probes":                          testProbes,
		"init containers run in order":    testInit,
		"graceful end":                    testGrace,
		"namespaces are emptied":          testNamespace,
		"other credentials, fewer rights": testRBAC,
	} {
		t.Run(name, func(t *testing.T) {
			sub := *n
			sub.t = t
			test(t, &sub)
		})
	}
}

// demoPod returns a manifest of a pod that runs the demo image. spec is more
// of the pod's specification, indented by two.
func demoPod(name, args, spec string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  name: %s
spec:
  terminationGracePeriodSeconds: 2
  containers:
  - name: main
    image: holdfast.local/demo:latest
    imagePullPolicy: IfNotPresent
    args: [%s]
%s`, name, args, spec)
}

func testRun(t *testing.T, n *node) {
	n.kubectl("run", "quick", "--image=holdfast.local/demo:latest", "--", "serve")
	n.kubectl("wait", "--for=condition=Ready", "pod/quick", "--timeout=3m")
	pod := n.pod("quick")
	if pod.Spec.NodeName != "edge-1" {
		t.Errorf("bound to %q", pod.Spec.NodeName)
	}
	if pod.Status.Phase != v1.PodRunning || pod.Status.PodIP == "" || pod.Status.HostIP == "" || pod.Status.QOSClass != v1.PodQOSBestEffort {
		t.Errorf("status: %+v", pod.Status)
	}
	n.eventually("its log", func() error { return wants(n.kubectl("logs", "quick"), "8080") })
	n.eventually("its events", func() error {
		return wants(n.kubectl("events", "--for", "pod/quick"), "Scheduled", "Pulled", "Created", "Started")
	})
	n.kubectl("delete", "pod", "quick", "--timeout=3m")
	if n.pod("quick") != nil {
		t.Error("the pod is still there")
	}
}

func testApply(t *testing.T, n *node) {
	out := n.kubectlIn(demoPod("applied", "serve", ""), "apply", "--server-side", "-f", "-")
	if err := wants(out, "serverside-applied"); err != nil {
		t.Error(err)
	}
	n.running("applied")
	n.eventually("describe has its events", func() error {
		return wants(n.kubectl("describe", "pod", "applied"), "Node:", "edge-1", "PodReadyToStartContainers", "Container started")
	})
	if err := wants(n.kubectl("explain", "pod.spec.containers.image"), "FIELD: image"); err != nil {
		t.Error(err)
	}
	if err := wants(n.kubectl("get", "pods", "-o", "wide"), "NOMINATED NODE", "applied"); err != nil {
		t.Error(err)
	}
	if err := wants(n.kubectl("describe", "node", "edge-1"), "KubeletReady", "Allocatable", "containerd://"); err != nil {
		t.Error(err)
	}
	n.kubectl("annotate", "pod", "applied", "note=hello")
	if got := n.pod("applied").Annotations["note"]; got != "hello" {
		t.Errorf("annotation: %q", got)
	}
	n.kubectl("delete", "pod", "applied", "--timeout=3m")
}

func testFollow(t *testing.T, n *node) {
	n.importBusybox()
	n.kubectl("run", "talker", "--image="+busyboxImage, "--restart=Never", "--", "sh", "-c", "for i in 1 2 3; do echo line $i; sleep 0.3; done")
	n.eventually("started", func() error {
		_, err := n.tryKubectl("", "logs", "talker")
		return err
	})
	if got, want := n.kubectl("logs", "-f", "talker"), "line 1\nline 2\nline 3\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := n.kubectl("logs", "--tail=1", "talker"), "line 3\n"; got != want {
		t.Errorf("--tail=1: got %q, want %q", got, want)
	}
	n.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/talker", "--timeout=3m")
	n.kubectl("delete", "pod", "talker")
}

func testExecInput(t *testing.T, n *node) {
	n.importBusybox()
	n.kubectl("run", "reader", "--image="+busyboxImage, "--", "sleep", "1000")
	n.running("reader")
	if got, want := n.kubectlIn("from stdin", "exec", "-i", "reader", "--", "cat"), "from stdin"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	n.kubectl("delete", "pod", "reader", "--grace-period=1", "--timeout=3m")
}

func testRestartPolicies(_ *testing.T, n *node) {
	for _, test := range []struct {
		name, policy, args string
		phase              v1.PodPhase
		restarts           bool
	}{
		{"ends-well", "Never", "exit, '0'", v1.PodSucceeded, false},
		{"ends-badly", "Never", "exit, '3'", v1.PodFailed, false},
		{"retries", "OnFailure", "exit, '3'", v1.PodRunning, true},
		{"again", "Always", "exit, '0'", v1.PodRunning, true},
	} {
		n.kubectlIn(demoPod(test.name, test.args, "  restartPolicy: "+test.policy+"\n"), "apply", "-f", "-")
		n.eventually(test.name, func() error {
			pod := n.pod(test.name)
			if len(pod.Status.ContainerStatuses) != 1 {
				return errors.New("no status yet")
			}
			c := pod.Status.ContainerStatuses[0]
			switch {
			case test.restarts && c.RestartCount == 0:
				return fmt.Errorf("not restarted: %+v", c)
			case !test.restarts && (pod.Status.Phase != test.phase || c.State.Terminated == nil || c.RestartCount != 0):
				return fmt.Errorf("phase %s, container %+v", pod.Status.Phase, c)
			}
			return nil
		})
	}
	n.eventually("CrashLoopBackOff", func() error {
		return wants(n.kubectl("get", "pods"), "CrashLoopBackOff", "Completed", "Error")
	})
	n.kubectl("delete", "pod", "ends-well", "ends-badly", "retries", "again", "--timeout=3m")
}

func testImages(_ *testing.T, n *node) {
	n.kubectl("run", "absent", "--image=127.0.0.1:1/none:1")
	n.kubectl("run", "never", "--image=holdfast.local/none:1", "--image-pull-policy=Never")
	n.eventually("reasons", func() error {
		return wants(n.kubectl("get", "pods"), "ImagePullBackOff", "ErrImageNeverPull")
	})
	n.eventually("status names them", func() error {
		out, _ := n.try("status")
		return wants(out, "absent", "never")
	})
	n.kubectl("delete", "pod", "absent", "never", "--timeout=3m")
}

// api returns the API's address from the administrator's kubeconfig.
func (n *node) api() string {
	n.t.Helper()
	cfg, err := clientcmd.LoadFromFile(filepath.Join(n.root, "admin.kubeconfig"))
	if err != nil {
		n.t.Fatal(err)
	}
	return cfg.Clusters[cfg.Contexts[cfg.CurrentContext].Cluster].Server
}

// ask sends one request with a token, or none, and returns status and body.
func ask(t *testing.T, url, token string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // the answer is what is tested, not the certificate
	}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func testAnonymous(t *testing.T, n *node) {
	kubelet := fmt.Sprintf("https://127.0.0.1:%s", strings.TrimSpace(n.kubectl("get", "node", "edge-1", "-o", "jsonpath={.status.daemonEndpoints.kubeletEndpoint.Port}")))
	for _, url := range []string{n.api() + "/api/v1/pods", n.api() + "/version", kubelet + "/pods", kubelet + "/containerLogs/a/b/c"} {
		if code, body := ask(t, url, ""); code != http.StatusUnauthorized {
			t.Errorf("%s: %d %s", url, code, body)
		}
		if code, body := ask(t, url, "wrong"); code != http.StatusUnauthorized {
			t.Errorf("%s with a wrong token: %d %s", url, code, body)
		}
	}
}

func testVolumes(t *testing.T, n *node) {
	n.kubectl("create", "secret", "generic", "key", "--from-literal=password=s3cret")
	n.kubectl("create", "configmap", "settings", "--from-literal=COLOR=green")
	n.kubectlIn(demoPod("volumes", "serve", `    env:
    - name: NODE
      valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
    - name: PASSWORD
      valueFrom: {secretKeyRef: {name: key, key: password}}
    - name: BOTH
      value: $(NODE)-$(PASSWORD)
    envFrom:
    - configMapRef: {name: settings}
    volumeMounts:
    - {name: key, mountPath: /key}
    - {name: info, mountPath: /info}
    - {name: memory, mountPath: /memory}
    - {name: host, mountPath: /host, readOnly: true}
  volumes:
  - name: key
    secret: {secretName: key, defaultMode: 0400}
  - name: info
    downwardAPI:
      items:
      - path: name
        fieldRef: {fieldPath: metadata.name}
  - name: memory
    emptyDir: {medium: Memory, sizeLimit: 1Mi}
  - name: host
    hostPath: {path: /etc, type: Directory}
`), "apply", "-f", "-")
	n.running("volumes")
	demo := func(args ...string) string {
		return n.kubectl(append([]string{"exec", "volumes", "--", "/demo"}, args...)...)
	}
	if err := wants(demo("env"), "BOTH=edge-1-s3cret", "COLOR=green", "KUBERNETES_SERVICE_HOST=", "KUBERNETES_SERVICE_PORT="); err != nil {
		t.Error(err)
	}
	if err := wants(demo("cat", "/key/password", "/info/name"), "s3cret", "volumes"); err != nil {
		t.Error(err)
	}
	mounts := demo("mounts")
	for _, path := range []string{"/key", "/memory"} {
		if !regexp.MustCompile(`(?m)^.* ` + path + ` .* - tmpfs `).MatchString(mounts) {
			t.Errorf("%s is no tmpfs:\n%s", path, mounts)
		}
	}
	if out, err := n.tryKubectl("", "exec", "volumes", "--", "/demo", "write", "/host/holdfast-test", "x"); err == nil {
		t.Errorf("wrote to a read-only mount: %s", out)
	}
	if out, err := n.tryKubectl("", "exec", "volumes", "--", "/demo", "burn", "disk", "/memory/big", "2Mi"); err == nil {
		t.Errorf("wrote 2 MiB into a volume of 1 MiB: %s", out)
	}
	// A pod's own credentials work at the API, as that account and no more.
	token := strings.TrimSpace(demo("cat", "/var/run/secrets/kubernetes.io/serviceaccount/token"))
	if code, body := ask(t, n.api()+"/api/v1/namespaces/default/pods", token); code != http.StatusForbidden || !strings.Contains(body, "system:serviceaccount:default:default") {
		t.Errorf("with the pod's token: %d %s", code, body)
	}
	if err := wants(demo("cat", "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"), "BEGIN CERTIFICATE"); err != nil {
		t.Error(err)
	}
	n.kubectl("create", "secret", "generic", "key", "--from-literal=password=changed", "--dry-run=client", "-o", "yaml")
	n.kubectl("patch", "secret", "key", "-p", `{"stringData":{"password":"changed"}}`)
	n.eventually("the secret changes in the pod", func() error { return wants(demo("cat", "/key/password"), "changed") })
	n.kubectl("delete", "pod/volumes", "secret/key", "configmap/settings", "--timeout=3m")
}

func testClaims(t *testing.T, n *node) {
	dir := t.TempDir()
	n.kubectlIn(fmt.Sprintf(`apiVersion: v1
kind: PersistentVolume
metadata: {name: disk}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  storageClassName: ""
  hostPath: {path: %s}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec:
  accessModes: [ReadWriteOnce]
  storageClassName: ""
  resources: {requests: {storage: 1Gi}}
---
%s`, dir, demoPod("claimer", "serve", `    volumeMounts:
    - {name: data, mountPath: /data}
  volumes:
  - name: data
    persistentVolumeClaim: {claimName: data}
`)), "apply", "-f", "-")
	n.running("claimer")
	n.kubectl("exec", "claimer", "--", "/demo", "write", "/data/file", "on disk")
	if got, err := os.ReadFile(filepath.Join(dir, "file")); err != nil || string(bytes.TrimSpace(got)) != "on disk" {
		t.Errorf("got %q, %v", got, err)
	}
	n.kubectl("delete", "pod/claimer", "pvc/data", "pv/disk", "--timeout=3m")
	if _, err := os.Stat(filepath.Join(dir, "file")); err != nil {
		t.Errorf("the data went with the pod: %v", err)
	}
}

func testNetwork(t *testing.T, n *node) {
	n.kubectlIn(demoPod("server", "serve", "")+"---\n"+demoPod("host-server", "serve, --addr, ':18085'", "  hostNetwork: true\n"), "apply", "-f", "-")
	server, host := n.running("server"), n.running("host-server")
	n.kubectl("run", "client", "--image=holdfast.local/demo:latest", "--image-pull-policy=IfNotPresent", "--", "sleep", "1000")
	n.running("client")
	if host.Status.PodIP != host.Status.HostIP {
		t.Errorf("pod on the host's network: pod IP %s, host IP %s", host.Status.PodIP, host.Status.HostIP)
	}
	for _, url := range []string{
		"http://" + server.Status.PodIP + ":8080/healthz",
		"http://" + server.Status.HostIP + ":18085/healthz",
	} {
		n.eventually(url+" answers", func() error { // a container that runs may not listen yet
			out, err := n.tryKubectl("", "exec", "client", "--", "/demo", "get", url)
			return errors.Join(err, wants(out, "ok"))
		})
	}
	resp, err := http.Get("http://" + server.Status.PodIP + ":8080/healthz")
	if err != nil {
		t.Fatalf("from the node: %v", err)
	}
	if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("from the node: %s, %v", resp.Status, err)
	}
	n.kubectl("delete", "pod", "server", "host-server", "client", "--grace-period=1", "--timeout=3m")
}

// A host's firewall may drop what is not accepted; pods reach the API and the
// kubelet all the same.
func testFirewall(t *testing.T, n *node) {
	n.kubectl("run", "inside", "--image=holdfast.local/demo:latest", "--image-pull-policy=IfNotPresent", "--", "sleep", "1000")
	address := n.running("inside").Status.HostIP
	in, err := instance.Open(n.root)
	if err != nil {
		t.Fatal(err)
	}
	iptables := func(action string) {
		if out, err := run(t, "", "iptables", "-w", action, "INPUT", "-i", in.Bridge(), "-j", "DROP"); err != nil {
			t.Fatal(err, out)
		}
	}
	iptables("-A") // behind our jump, as a firewall's last word is
	defer iptables("-D")
	_, api, _ := strings.Cut(strings.TrimPrefix(n.api(), "https://"), ":")
	kubelet := strings.TrimSpace(n.kubectl("get", "node", "edge-1", "-o", "jsonpath={.status.daemonEndpoints.kubeletEndpoint.Port}"))
	for _, port := range []string{api, kubelet} {
		out, err := n.tryKubectl("", "exec", "inside", "--", "/demo", "get", "https://"+net.JoinHostPort(address, port)+"/healthz")
		// An answer that the program does not trust is an answer.
		if err == nil || !strings.Contains(out, "certificate") {
			t.Errorf("port %s: got %q, %v; want a complaint about the certificate", port, out, err)
		}
	}
	n.kubectl("delete", "pod", "inside", "--grace-period=1", "--timeout=3m")
}

func testOwnKubectl(t *testing.T, n *node) {
	if err := wants(n.holdfast("kubectl", "get", "nodes"), "edge-1"); err != nil {
		t.Error(err)
	}
	out, err := n.try("kubectl", "get", "pod", "none")
	if err == nil || !strings.Contains(out, `pods "none" not found`) {
		t.Errorf("got %v, %s", err, out)
	}
}

func testUnsupported(_ *testing.T, n *node) {
	n.kubectlIn(demoPod("unsupported", "serve", "  resourceClaims:\n  - {name: gpu, resourceClaimName: gpu}\n"), "apply", "-f", "-")
	n.eventually("refused by name", func() error {
		pod := n.pod("unsupported")
		if pod.Status.Phase != v1.PodFailed {
			return fmt.Errorf("phase %s", pod.Status.Phase)
		}
		return wants(pod.Status.Reason+" "+pod.Status.Message, "UnsupportedField", "spec.resourceClaims")
	})
	n.kubectl("delete", "pod", "unsupported", "--timeout=3m")
}

func testProbes(t *testing.T, n *node) {
	n.kubectlIn(demoPod("unready", "serve", `    readinessProbe:
      exec: {command: [/demo, cat, /tmp/ready]}
      periodSeconds: 1
    volumeMounts:
    - {name: tmp, mountPath: /tmp}
  volumes:
  - name: tmp
    emptyDir: {}
`)+"---\n"+demoPod("unlively", "sleep, '1000'", `    livenessProbe:
      httpGet: {port: 8080, path: /healthz}
      periodSeconds: 1
      failureThreshold: 2
`), "apply", "-f", "-")
	n.eventually("Unhealthy", func() error {
		return wants(n.kubectl("get", "events"), "Readiness probe failed", "Liveness probe failed")
	})
	n.eventually("restarted for its liveness", func() error {
		pod := n.pod("unlively")
		if len(pod.Status.ContainerStatuses) == 0 || pod.Status.ContainerStatuses[0].RestartCount == 0 {
			return fmt.Errorf("status: %+v", pod.Status.ContainerStatuses)
		}
		return nil
	})
	if pod := n.pod("unready"); pod.Status.ContainerStatuses[0].Ready || pod.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("status: %+v", pod.Status.ContainerStatuses)
	}
	n.kubectl("exec", "unready", "--", "/demo", "write", "/tmp/ready", "yes")
	n.running("unready")
	n.kubectl("delete", "pod", "unready", "unlively", "--timeout=3m")
}

func testInit(t *testing.T, n *node) {
	const volume = "    volumeMounts:\n    - {name: shared, mountPath: /shared}\n"
	n.kubectlIn(demoPod("inits", "cat, /shared/second", volume+`  initContainers:
  - name: first
    image: holdfast.local/demo:latest
    imagePullPolicy: IfNotPresent
    args: [write, /shared/first, one]
`+volume+`  - name: second
    image: holdfast.local/demo:latest
    imagePullPolicy: IfNotPresent
    command: [/demo]
    args: [write, /shared/second, two]
`+volume+`  restartPolicy: Never
  volumes:
  - name: shared
    emptyDir: {}
`), "apply", "-f", "-")
	n.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/inits", "--timeout=3m")
	if got, want := n.kubectl("logs", "inits", "-c", "main"), "two\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	pod := n.pod("inits")
	first, second := pod.Status.InitContainerStatuses[0].State.Terminated, pod.Status.InitContainerStatuses[1].State.Terminated
	if first == nil || second == nil || second.StartedAt.Before(&first.FinishedAt) {
		t.Errorf("init containers: %+v", pod.Status.InitContainerStatuses)
	}
	n.kubectl("delete", "pod", "inits", "--timeout=3m")
}

func testGrace(t *testing.T, n *node) {
	n.importBusybox()
	dir := t.TempDir()
	script := `trap 'echo ended > /out/ended; exit 0' TERM; touch /out/started; while :; do sleep 0.1; done`
	spec := map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "graceful"},
		"spec": map[string]any{
			"containers": []any{map[string]any{
				"name": "main", "image": busyboxImage, "command": []string{"sh", "-c", script},
				"volumeMounts": []any{map[string]any{"name": "out", "mountPath": "/out"}},
			}},
			"volumes": []any{map[string]any{"name": "out", "hostPath": map[string]any{"path": dir}}},
		},
	}
	manifest, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	n.kubectlIn(string(manifest), "apply", "-f", "-")
	n.running("graceful")
	n.eventually("started", func() error { _, err := os.Stat(filepath.Join(dir, "started")); return err })
	n.kubectl("delete", "pod", "graceful", "--timeout=3m")
	if _, err := os.Stat(filepath.Join(dir, "ended")); err != nil {
		t.Errorf("the container was not asked to end: %v", err)
	}
}

func testNamespace(_ *testing.T, n *node) {
	n.kubectl("create", "namespace", "team")
	n.eventually("its default account", func() error {
		_, err := n.tryKubectl("", "get", "serviceaccount", "default", "-n", "team")
		return err
	})
	n.eventually("the authority's certificate", func() error {
		out, err := n.tryKubectl("", "get", "configmap", "kube-root-ca.crt", "-n", "team", "-o", "yaml")
		return errors.Join(err, wants(out, "BEGIN CERTIFICATE"))
	})
	n.kubectlIn(demoPod("member", "serve", ""), "apply", "-n", "team", "-f", "-")
	n.kubectl("wait", "--for=condition=Ready", "pod/member", "-n", "team", "--timeout=3m")
	n.kubectl("delete", "namespace", "team", "--timeout=3m")
}

func testRBAC(t *testing.T, n *node) {
	n.kubectl("create", "serviceaccount", "viewer")
	n.kubectl("create", "rolebinding", "viewer", "--clusterrole=view", "--serviceaccount=default:viewer")
	token := strings.TrimSpace(n.kubectl("create", "token", "viewer"))
	if code, body := ask(t, n.api()+"/api/v1/namespaces/default/pods", token); code != http.StatusOK {
		t.Errorf("view pods: %d %s", code, body)
	}
	if code, body := ask(t, n.api()+"/api/v1/namespaces/default/secrets", token); code != http.StatusForbidden {
		t.Errorf("view secrets: %d %s", code, body)
	}
	n.kubectl("delete", "serviceaccount/viewer", "rolebinding/viewer")
}
