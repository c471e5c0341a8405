package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// TestPodFields is what pods may ask for beside a program and its volumes. The
// parts are independent of each other and share one node.
func TestPodFields(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.configure(confiningSettings)
	n.up()
	n.importBusybox()
	t.Run("users of its own", func(t *testing.T) { // first: the agent is restarted below it
		sub := *n
		sub.t = t
		testUsers(t, &sub)
	})
	for name, test := range map[string]func(*testing.T, *node){
		"all containers start again":       testRestartAll,
		"a signal of its own":              testStopSignal,
		"variables from a file":            testFileKeys,
		"read-only with all that is below": testRecursiveReadOnly,
		"seccomp":                          testSeccomp,
		"what /proc hides":                 testProcMount,
		"kernel settings":                  testSysctls,
		"groups of the image":              testGroups,
		"privileges":                       testPrivileges,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sub := *n
			sub.t = t
			test(t, &sub)
		})
	}
}

// testRestartAll has one container end as its rule says: all are started again
// from the beginning, in the same sandbox, and then stay.
func testRestartAll(t *testing.T, n *node) {
	n.kubectlIn(fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: again}
spec:
  terminationGracePeriodSeconds: 1
  restartPolicy: Never
  volumes: [{name: work, emptyDir: {}}]
  initContainers:
  - name: init
    image: %[1]s
    imagePullPolicy: Never
    command: [sh, -c, 'echo init >> /kept/order']
    volumeMounts: [{name: work, mountPath: /kept}]
  containers:
  - name: source
    image: %[1]s
    imagePullPolicy: Never
    command: [sh, -c, 'test -e /kept/came && exec sleep 1000; touch /kept/came; sleep 1; exit 42']
    restartPolicy: Never
    restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}]
    volumeMounts: [{name: work, mountPath: /kept}]
  - name: beside
    image: %[1]s
    imagePullPolicy: Never
    command: [sh, -c, 'echo beside >> /kept/order; exec sleep 1000']
    volumeMounts: [{name: work, mountPath: /kept}]
`, busyboxImage), "apply", "-f", "-")
	ip := ""
	n.eventually("all run for the second time", func() error {
		pod := n.pod("again")
		if ip == "" {
			ip = pod.Status.PodIP
		}
		if pod.Status.Phase == v1.PodFailed || pod.Status.Phase == v1.PodSucceeded {
			t.Fatalf("the pod is over: %+v", pod.Status)
		}
		if len(pod.Status.ContainerStatuses) != 2 {
			return errors.New("it has not begun")
		}
		for _, s := range append(pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses...) {
			if s.RestartCount != 1 || s.State.Running == nil && s.Name != "init" {
				return fmt.Errorf("%s: %d restarts, %+v", s.Name, s.RestartCount, s.State)
			}
			if last := s.LastTerminationState.Terminated; s.Name == "beside" && (last == nil || last.Reason != "RestartingAllContainers") {
				return fmt.Errorf("beside ended last with %+v", last)
			}
		}
		return nil
	})
	pod := n.pod("again")
	if pod.Status.PodIP != ip {
		t.Errorf("the pod has the address %s, and had %s: it is in another sandbox", pod.Status.PodIP, ip)
	}
	if !slices.ContainsFunc(pod.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.AllContainersRestarting && c.Status == v1.ConditionFalse
	}) {
		t.Errorf("conditions: got %+v, want AllContainersRestarting False", pod.Status.Conditions)
	}
	if got := n.kubectl("exec", "again", "-c", "beside", "--", "cat", "/kept/order"); got != "init\nbeside\ninit\nbeside\n" {
		t.Errorf("started in the order %q", got)
	}
	n.hasEvent("again", "killing")
	n.kubectl("delete", "pod", "again", "--timeout=3m")
}

// testStopSignal ends a container by the signal that its pod names.
func testStopSignal(t *testing.T, n *node) {
	dir := t.TempDir()
	n.busyboxPod("signal", "trap 'touch /host/usr1; exit 0' USR1; touch /host/ready; while true; do sleep 0.1; done", `    lifecycle: {stopSignal: SIGUSR1}
    volumeMounts: [{name: host, mountPath: /host}]
`, fmt.Sprintf("  os: {name: linux}\n  terminationGracePeriodSeconds: 60\n  volumes: [{name: host, hostPath: {path: %q}}]\n", dir))
	n.running("signal")
	n.eventually("it listens", func() error { _, err := os.Stat(filepath.Join(dir, "ready")); return err })
	n.eventually("the signal is told", func() error {
		if s := n.pod("signal").Status.ContainerStatuses[0].StopSignal; s == nil || *s != v1.SIGUSR1 {
			return fmt.Errorf("got %v", s)
		}
		return nil
	})
	n.kubectl("delete", "pod", "signal", "--timeout=3m")
	if _, err := os.Stat(filepath.Join(dir, "usr1")); err != nil {
		t.Errorf("it did not get SIGUSR1: %v", err)
	}
}

// testFileKeys gives a container variables that another one wrote.
func testFileKeys(t *testing.T, n *node) {
	n.busyboxPod("keys", `echo "$GREETING/$NONE/"`, `    env:
    - {name: GREETING, valueFrom: {fileKeyRef: {volumeName: work, path: sub/vars, key: GREETING}}}
    - {name: NONE, valueFrom: {fileKeyRef: {volumeName: work, path: sub/none, key: NONE, optional: true}}}
`, fmt.Sprintf(`  volumes: [{name: work, emptyDir: {}}]
  initContainers:
  - name: init
    image: %s
    imagePullPolicy: Never
    command: [sh, -c, "mkdir /kept/sub; echo \"# vars\nOTHER='x'\nGREETING='hello \\$USER' # more\" > /kept/sub/vars"]
    volumeMounts: [{name: work, mountPath: /kept}]
`, busyboxImage))
	n.eventually("it ran", func() error {
		if pod := n.pod("keys"); pod.Status.Phase != v1.PodSucceeded {
			return fmt.Errorf("%+v", pod.Status)
		}
		return nil
	})
	if got := n.kubectl("logs", "keys", "-c", "main"); got != "hello $USER//\n" {
		t.Errorf("got %q", got)
	}
	n.busyboxPod("nokey", "sleep 1000", `    env:
    - {name: A, valueFrom: {fileKeyRef: {volumeName: work, path: vars, key: A}}}
`, "  volumes: [{name: work, emptyDir: {}}]\n")
	n.eventually("it waits for its file", func() error {
		for _, s := range n.pod("nokey").Status.ContainerStatuses {
			if w := s.State.Waiting; w != nil && w.Reason == "CreateContainerConfigError" && strings.Contains(w.Message, `env file "vars" of volume "work"`) {
				return nil
			}
		}
		return fmt.Errorf("%+v", n.pod("nokey").Status)
	})
	n.kubectl("delete", "pod", "keys", "nokey", "--timeout=3m")
}

// testRecursiveReadOnly mounts a folder of the host that something else is
// mounted in.
func testRecursiveReadOnly(t *testing.T, n *node) {
	dir := t.TempDir()
	below := filepath.Join(dir, "below")
	if err := os.Mkdir(below, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", below, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(below, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	n.busyboxPod("readonly", "for m in plain maybe all; do touch /$m/x 2>&1; touch /$m/below/$m && echo $m can; done; exec sleep 1000", `    volumeMounts:
    - {name: host, mountPath: /plain, readOnly: true}
    - {name: host, mountPath: /maybe, readOnly: true, recursiveReadOnly: IfPossible}
    - {name: host, mountPath: /all, readOnly: true, recursiveReadOnly: Enabled}
`, fmt.Sprintf("  volumes: [{name: host, hostPath: {path: %q}}]\n", dir))
	pod := n.running("readonly")
	n.eventually("only /plain/below may be written", func() error { // two streams, which come in any order
		out := n.kubectl("logs", "readonly")
		if strings.Count(out, "can\n") != 1 || !strings.Contains(out, "plain can\n") || strings.Count(out, "Read-only") != 5 {
			return errors.New(out)
		}
		return nil
	})
	for _, m := range pod.Status.ContainerStatuses[0].VolumeMounts {
		want := v1.RecursiveReadOnlyEnabled
		if m.MountPath == "/plain" {
			want = v1.RecursiveReadOnlyDisabled
		}
		if strings.HasPrefix(m.MountPath, "/var/run/secrets") {
			continue
		}
		if m.RecursiveReadOnly == nil || *m.RecursiveReadOnly != want {
			t.Errorf("%s: the status says %v, want %s", m.MountPath, m.RecursiveReadOnly, want)
		}
	}
	n.kubectl("delete", "pod", "readonly", "--timeout=3m")
}

// testUsers runs two pods whose root is nobody on the host. What they mount has
// the owners that it has on the host, seen from within.
func testUsers(t *testing.T, n *node) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	n.kubectl("create", "secret", "generic", "word", "--from-literal=word=abracadabra")
	script := "cat /proc/self/uid_map; id -u; touch /host/$HOSTNAME /kept/x; cat /secret/word; echo; ls -ln /secret/..data/word /kept/x; exec sleep 1000"
	container := `    env: [{name: HOSTNAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
    volumeMounts: [{name: host, mountPath: /host}, {name: work, mountPath: /kept}, {name: secret, mountPath: /secret}]
`
	spec := fmt.Sprintf(`  hostUsers: false
  securityContext: {fsGroup: 1234}
  volumes:
  - {name: host, hostPath: {path: %q}}
  - {name: work, emptyDir: {medium: Memory}}
  - {name: secret, secret: {secretName: word, defaultMode: 0400}}
`, dir)
	first := map[string]string{}
	for _, name := range []string{"users-a", "users-b"} {
		n.busyboxPod(name, script, container, spec)
		n.running(name)
		n.eventually("it looked", func() error { return wants(n.kubectl("logs", name), "abracadabra", "/kept/x", "..data/word") })
		lines := strings.Split(n.kubectl("logs", name), "\n")
		fields := strings.Fields(lines[0])
		if len(fields) != 3 || fields[0] != "0" || fields[1] == "0" || fields[2] != "65536" || lines[1] != "0" {
			t.Errorf("%s: the users of the host, and who it is: %q", name, lines[:2])
		}
		first[fields[1]] = name
		for _, line := range lines[3:5] {
			if f := strings.Fields(line); len(f) < 4 || f[2] != "0" || f[3] != "1234" {
				t.Errorf("%s: owners seen from within: %q, want 0 and 1234", name, line)
			}
		}
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if uid := info.Sys().(*syscall.Stat_t).Uid; uid != 0 {
			t.Errorf("%s: its root's file belongs to %d on the host, want 0, as in the pod", name, uid)
		}
	}
	if len(first) != 2 {
		t.Errorf("the pods share users: %v", first)
	}
	before := containers(n.pod("users-a"))
	n.stopAgent()
	n.up()
	n.kubectl("debug", "users-a", "--image="+busyboxImage, "--image-pull-policy=Never", "-c", "later", "--", "cat", "/proc/self/uid_map")
	n.eventually("a later container has the same users", func() error {
		out, err := n.tryKubectl("", "logs", "users-a", "-c", "later")
		if err != nil {
			return err
		}
		if f := strings.Fields(out); len(f) < 2 || first[f[1]] != "users-a" {
			return fmt.Errorf("it has %q, and the pods %v", out, first)
		}
		return nil
	})
	if got := containers(n.pod("users-a")); got != before {
		t.Errorf("after a restart of the agent: containers %s, want %s", got, before)
	}
	n.kubectl("delete", "pod", "users-a", "users-b", "--timeout=3m")
	n.kubectl("delete", "secret", "word")
}
