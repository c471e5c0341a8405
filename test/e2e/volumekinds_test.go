package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// TestVolumeKinds is what volumes do for pods that run. The parts are
// independent of each other and share one node, whose folder shares its mounts as
// all of a machine does where systemd runs.
func TestVolumeKinds(t *testing.T) {
	t.Parallel()
	testenv.Need(t, "root")
	root := sharedFolder(t)
	n := newNodeIn(t, root)
	n.up()
	n.importBusybox()
	for name, test := range map[string]func(*testing.T, *node){
		"content follows its objects":       testLiveContent,
		"mounts are seen on the other side": testPropagation,
		"parts of volumes":                  testSubPaths,
		"what a pod leaves mounted":         testLeftMounts,
		"a claim of the pod's own":          testOwnClaim,
		"files given to a group":            testGroup,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sub := *n
			sub.t = t
			test(t, &sub)
		})
	}
}

// sharedFolder returns a folder that is a mount with shared propagation.
func sharedFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "holdfast-e2e-") //nolint:usetesting // a node is uninstalled after the test's own clean-up
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := syscall.Mount(dir, dir, "", syscall.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if err := syscall.Mount("", dir, "", syscall.MS_SHARED, ""); err != nil {
		t.Fatal(err)
	}
	return dir
}

// cat returns files of a pod, one after the other; what is not there is "none".
func (n *node) cat(pod string, files ...string) (string, error) {
	n.t.Helper()
	return n.tryKubectl("", "exec", pod, "-c", "main", "--", "sh", "-c",
		"for f in "+strings.Join(files, " ")+"; do cat $f 2>/dev/null || echo -n none; echo -n ' '; done")
}

// testLiveContent changes what the volumes of a running pod are made of, has an
// optional object appear, and leaves an immutable one alone.
func testLiveContent(t *testing.T, n *node) {
	const objects = `apiVersion: v1
kind: ConfigMap
metadata: {name: live}
data: {key: "%[1]s"}
---
apiVersion: v1
kind: Secret
metadata: {name: live}
stringData: {key: "%[1]s"}
`
	n.kubectlIn(fmt.Sprintf(objects, "1"), "apply", "-f", "-")
	n.kubectlIn("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: fixed}\nimmutable: true\ndata: {key: fixed}\n", "apply", "-f", "-")
	n.kubectlIn(fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: live, labels: {says: "1"}}
spec:
  terminationGracePeriodSeconds: 1
  securityContext: {fsGroup: 4711}
  containers:
  - name: main
    image: %s
    imagePullPolicy: Never
    command: [sleep, "1000"]
    volumeMounts:
    - {name: map, mountPath: /map}
    - {name: secret, mountPath: /secret}
    - {name: all, mountPath: /all}
    - {name: labels, mountPath: /labels}
    - {name: fixed, mountPath: /fixed}
    - {name: later, mountPath: /later}
  volumes:
  - {name: map, configMap: {name: live}}
  - {name: secret, secret: {secretName: live, defaultMode: 0400, items: [{key: key, path: sub/key, mode: 0440}]}}
  - {name: all, projected: {sources: [{configMap: {name: live}}, {secret: {name: live, items: [{key: key, path: hidden}]}}, {downwardAPI: {items: [{path: says, fieldRef: {fieldPath: "metadata.labels['says']"}}]}}]}}
  - {name: labels, downwardAPI: {items: [{path: says, fieldRef: {fieldPath: "metadata.labels['says']"}}]}}
  - {name: fixed, configMap: {name: fixed}}
  - {name: later, configMap: {name: later, optional: true}}
`, busyboxImage), "apply", "-f", "-")
	n.running("live")
	files := []string{"/map/key", "/secret/sub/key", "/all/key", "/all/hidden", "/all/says", "/labels/says", "/fixed/key", "/later/key"}
	says := func(want string) func() error {
		return func() error {
			got, err := n.cat("live", files...)
			if err == nil && got != want {
				err = errors.New("the files say " + got)
			}
			return err
		}
	}
	n.eventually("the files are there", says("1 1 1 1 1 1 fixed none "))
	if got := n.kubectl("exec", "live", "--", "busybox", "stat", "-L", "-c", "%a %g", "/secret/sub/key"); got != "440 4711\n" {
		t.Errorf("the secret's file has mode and group %q", got)
	}
	if got := n.kubectl("exec", "live", "--", "busybox", "stat", "-f", "-c", "%T", "/secret"); got != "tmpfs\n" {
		t.Errorf("the secret is on %q", got)
	}
	n.kubectlIn(fmt.Sprintf(objects, "2"), "apply", "-f", "-")
	n.kubectl("label", "--overwrite", "pod", "live", "says=2")
	n.kubectlIn("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: later}\ndata: {key: came}\n", "apply", "-f", "-")
	n.eventually("the files follow", says("2 2 2 2 2 2 fixed came "))
	n.kubectl("delete", "pod", "live", "--timeout=60s")
}

// testPropagation mounts on the host below a pod's volume, and in a privileged
// pod below the same volume, and looks on the other side.
func testPropagation(t *testing.T, n *node) {
	dir := sharedFolder(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"host", "pod"} {
		must(os.Mkdir(filepath.Join(dir, name), 0o755))
	}
	const unprivileged = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"unprivileged"},"spec":{"containers":[{"name":"c","image":"i",
		"volumeMounts":[{"name":"v","mountPath":"/v","mountPropagation":"Bidirectional"}]}],"volumes":[{"name":"v","emptyDir":{}}]}}`
	if out, err := n.tryKubectl(unprivileged, "apply", "-f", "-"); err == nil || !strings.Contains(out, "available only to privileged containers") {
		t.Errorf("a pod that may mount for the host without privileges: %v, %s", err, out)
	}
	n.busyboxPod("propagation", "sleep 1000", `    securityContext: {privileged: true}
    volumeMounts:
    - {name: shared, mountPath: /none}
    - {name: shared, mountPath: /in, mountPropagation: HostToContainer}
    - {name: shared, mountPath: /both, mountPropagation: Bidirectional}
`, fmt.Sprintf("  volumes: [{name: shared, hostPath: {path: %q}}]\n", dir))
	n.running("propagation")
	must(syscall.Mount("tmpfs", filepath.Join(dir, "host"), "tmpfs", 0, "size=64k"))
	t.Cleanup(func() { must(syscall.Unmount(filepath.Join(dir, "host"), syscall.MNT_DETACH)) })
	must(os.WriteFile(filepath.Join(dir, "host", "file"), []byte("host"), 0o644))
	if got, err := n.cat("propagation", "/none/host/file", "/in/host/file", "/both/host/file"); err != nil || got != "none host host " {
		t.Errorf("a mount of the host is seen as %q, %v", got, err)
	}
	n.kubectl("exec", "propagation", "--", "sh", "-c", "busybox mount -t tmpfs -o size=64k tmpfs /both/pod && echo -n pod > /both/pod/file")
	if got, err := n.cat("propagation", "/none/pod/file", "/in/pod/file"); err != nil || got != "none pod " {
		t.Errorf("a mount of the pod is seen beside it as %q, %v", got, err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "pod", "file")); err != nil || string(got) != "pod" {
		t.Errorf("a mount of the pod is seen on the host as %q, %v", got, err)
	}
	must(syscall.Unmount(filepath.Join(dir, "pod"), 0))
	n.kubectl("delete", "pod", "propagation", "--timeout=60s")
}

// testLeftMounts has a pod mount something in its volume, where the host has it
// too, and end without unmounting it. Another volume is mounted there by the runtime.
func testLeftMounts(_ *testing.T, n *node) {
	n.busyboxPod("leaves", "mkdir /both/own && busybox mount -t tmpfs -o size=64k tmpfs /both/own && touch /both/own/file && sleep 1000", `    securityContext: {privileged: true}
    volumeMounts:
    - {name: own, mountPath: /both, mountPropagation: Bidirectional}
    - {name: other, mountPath: /both/other}
    - {name: memory, mountPath: /memory, mountPropagation: Bidirectional}
    - {name: other, mountPath: /memory/other}
`, "  volumes: [{name: own, emptyDir: {}}, {name: other, emptyDir: {}}, {name: memory, emptyDir: {medium: Memory}}]\n")
	pod := n.running("leaves")
	folder := filepath.Join(n.root, "kubelet/pods", string(pod.UID))
	own := filepath.Join(folder, "volumes/kubernetes.io~empty-dir/own/own/file")
	n.eventually("its mount is on the host", func() error { _, err := os.Stat(own); return err })
	n.kubectl("delete", "pod", "leaves", "--timeout=3m")
	n.eventually("nothing of the pod is left", func() error {
		if _, err := os.Lstat(folder); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s: %w", folder, err)
		}
		return nil
	})
}

// localVolume is a PersistentVolume of a class that is a folder of the node.
func localVolume(name, folder string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: PersistentVolume
metadata: {name: %[1]s}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  storageClassName: %[1]s
  local: {path: %[2]q}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [edge-1]}]}]}}
`, name, folder)
}

// testOwnClaim gives a pod a volume by a claim that is made for it and goes with it.
func testOwnClaim(t *testing.T, n *node) {
	dir := t.TempDir()
	n.kubectlIn(localVolume("own", dir), "apply", "-f", "-")
	n.busyboxPod("owner", "echo -n written > /data/file; sleep 1000", "    volumeMounts: [{name: data, mountPath: /data}]\n",
		"  volumes: [{name: data, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], storageClassName: own, resources: {requests: {storage: 1Gi}}}}}}]\n")
	pod := n.running("owner")
	want := fmt.Sprintf("Bound own %s", pod.UID)
	if got := n.kubectl("get", "pvc", "owner-data", "-o", "jsonpath={.status.phase} {.spec.volumeName} {.metadata.ownerReferences[0].uid}"); got != want {
		t.Errorf("the claim: got %q, want %q", got, want)
	}
	n.eventually("it wrote", func() error {
		if got, err := os.ReadFile(filepath.Join(dir, "file")); err != nil || string(got) != "written" {
			return fmt.Errorf("%q, %w", got, err)
		}
		return nil
	})
	n.kubectl("delete", "pod", "owner", "--timeout=3m")
	n.eventually("the claim is gone and its volume released", func() error {
		if out, err := n.tryKubectl("", "get", "pvc", "owner-data"); err == nil {
			return errors.New(out)
		}
		return wants(n.kubectl("get", "pv", "own", "-o", "jsonpath={.status.phase}"), "Released")
	})
	if _, err := os.Stat(filepath.Join(dir, "file")); err != nil {
		t.Errorf("the volume's data: %v", err)
	}
}

// testGroup gives a folder of the host to the fsGroup of pods, one after the other:
// a policy of OnRootMismatch looks at the top alone, and who may only read changes nothing.
func testGroup(t *testing.T, n *node) {
	dir := t.TempDir()
	file := filepath.Join(dir, "sub/file")
	if err := errors.Join(os.Mkdir(filepath.Dir(file), 0o755), os.WriteFile(file, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	n.kubectlIn(localVolume("group", dir)+`---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: group}
spec: {accessModes: [ReadWriteOnce], storageClassName: group, resources: {requests: {storage: 1Gi}}}
`, "apply", "-f", "-")
	for i, start := range []struct {
		policy, readOnly, want string
	}{
		{"OnRootMismatch", "false", "4711 660 written"},
		{"OnRootMismatch", "false", "0 600 written"}, // the file alone is another's again
		{"Always", "true", "0 600 refused"},
		{"Always", "false", "4711 660 written"},
	} {
		if err := errors.Join(os.Chown(file, 0, 0), os.Chmod(file, 0o600)); err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprint("group-", i)
		n.busyboxPod(name, "sleep 1000", "    volumeMounts: [{name: data, mountPath: /data}]\n", fmt.Sprintf(
			"  securityContext: {fsGroup: 4711, fsGroupChangePolicy: %s}\n  volumes: [{name: data, persistentVolumeClaim: {claimName: group, readOnly: %s}}]\n", start.policy, start.readOnly))
		n.running(name)
		got := n.kubectl("exec", name, "--", "sh", "-c", "busybox stat -c '%g %a' /data/sub/file; touch /data/new 2>/dev/null && echo written || echo refused")
		if got = strings.Join(strings.Fields(got), " "); got != start.want {
			t.Errorf("%s, read-only %s: got %q, want %q", start.policy, start.readOnly, got, start.want)
		}
		n.kubectl("delete", "pod", name, "--timeout=3m")
	}
}

// testSubPaths gives containers parts of volumes: by name, by a variable, and of
// a Secret. A container that starts again sees what its part is then, and a link
// that leads out of the volume keeps it from starting.
func testSubPaths(t *testing.T, n *node) {
	n.kubectlIn("apiVersion: v1\nkind: Secret\nmetadata: {name: part}\nstringData: {key: first}\n", "apply", "-f", "-")
	n.kubectlIn(fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: parts}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: %[1]s
    imagePullPolicy: Never
    command: [sh, -c, 'echo $(cat /key) >> /logs/starts; while ! test -e /whole/end; do sleep 0.1; done; busybox rm /whole/end']
    env: [{name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
    volumeMounts:
    - {name: work, mountPath: /whole}
    - {name: work, mountPath: /logs, subPathExpr: logs/$(NAME)}
    - {name: secret, mountPath: /key, subPath: key}
  volumes:
  - {name: work, emptyDir: {}}
  - {name: secret, secret: {secretName: part}}
`, busyboxImage), "apply", "-f", "-")
	n.running("parts")
	starts := func(want string) func() error {
		return func() error {
			got, err := n.cat("parts", "/whole/logs/parts/starts")
			if err == nil && got != want {
				err = fmt.Errorf("starts: %q", got)
			}
			return err
		}
	}
	n.eventually("it started", starts("first\n "))
	n.kubectlIn("apiVersion: v1\nkind: Secret\nmetadata: {name: part}\nstringData: {key: second}\n", "apply", "-f", "-")
	secret := filepath.Join(n.root, "kubelet/pods", string(n.pod("parts").UID), "volumes/kubernetes.io~secret/secret/key")
	n.eventually("the volume follows", func() error {
		if got, err := os.ReadFile(secret); err != nil || string(got) != "second" {
			return fmt.Errorf("%q, %w", got, err)
		}
		return nil
	})
	if got, err := n.cat("parts", "/key"); err != nil || got != "first " {
		t.Errorf("the part changed under the container: %q, %v", got, err)
	}
	n.kubectl("exec", "parts", "--", "touch", "/whole/end")
	n.eventually("it started again, with the part of now", starts("first\nsecond\n "))

	n.kubectl("exec", "parts", "--", "sh", "-c", "busybox rm -r /whole/logs && busybox ln -s / /whole/logs && touch /whole/end")
	n.eventually("it does not start with a part that is a link out of the volume", func() error {
		return wants(n.kubectl("get", "pod", "parts", "-o", "jsonpath={.status.containerStatuses[0].state.waiting}"), "CreateContainerConfigError", "failed to prepare subPath")
	})
	n.kubectl("delete", "pod", "parts", "--timeout=60s")
}
