package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestVolumeKinds is what volumes do for pods that run. The parts are
// independent of each other and share one node.
func TestVolumeKinds(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.up()
	n.importBusybox()
	for name, test := range map[string]func(*testing.T, *node){
		"mounts are seen on the other side": testPropagation,
		"parts of volumes":                  testSubPaths,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sub := *n
			sub.t = t
			test(t, &sub)
		})
	}
}

// cat returns files of a pod, one after the other; what is not there is "none".
func (n *node) cat(pod string, files ...string) (string, error) {
	n.t.Helper()
	return n.tryKubectl("", "exec", pod, "-c", "main", "--", "sh", "-c",
		"for f in "+strings.Join(files, " ")+"; do cat $f 2>/dev/null || echo -n none; echo -n ' '; done")
}

// testPropagation mounts on the host below a pod's volume, and in a privileged
// pod below the same volume, and looks on the other side.
func testPropagation(t *testing.T, n *node) {
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(syscall.Mount(dir, dir, "", syscall.MS_BIND, ""))
	t.Cleanup(func() { must(syscall.Unmount(dir, syscall.MNT_DETACH)) })
	must(syscall.Mount("", dir, "", syscall.MS_SHARED, ""))
	for _, name := range []string{"host", "pod"} {
		must(os.Mkdir(filepath.Join(dir, name), 0o755))
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
