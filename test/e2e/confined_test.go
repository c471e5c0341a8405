package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/ociimage"
)

// confiningSettings have the node confine pods more, and less, than by default.
const confiningSettings = `  seccompDefault: true
  allowedUnsafeSysctls: [net.core.somaxconn, "user.*"]
`

// printed runs a pod's script to its end and returns what it printed.
func (n *node) printed(name, script, container, spec string) string {
	n.t.Helper()
	n.busyboxPod(name, script+"; echo done", container, spec)
	n.eventually(name+" ends", func() error {
		out, err := n.tryKubectl("", "logs", name, "-c", "main")
		if err == nil {
			err = wants(out, "done\n")
		}
		return err
	})
	out := n.kubectl("logs", name, "-c", "main")
	n.kubectl("delete", "pod", name, "--wait=false")
	return strings.TrimSuffix(out, "done\n")
}

// testSeccomp has each profile that a pod can name in force, and the node's
// default where it names none.
func testSeccomp(t *testing.T, n *node) {
	const profile = `{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO"}]}`
	if err := os.WriteFile(filepath.Join(n.root, "kubelet", "seccomp", "no-folders.json"), []byte(profile), 0o600); err != nil {
		t.Fatal(err)
	}
	const script = `cat /proc/self/status | while read a b; do test "$a" = Seccomp: && echo $b; done; mkdir /tmp/x 2>/dev/null && echo made`
	for name, test := range map[string]struct{ profile, want string }{
		"none":       {"{}", "2\nmade\n"}, // as seccompDefault says
		"unconfined": {"{seccompProfile: {type: Unconfined}}", "0\nmade\n"},
		"runtimes":   {"{seccompProfile: {type: RuntimeDefault}}", "2\nmade\n"},
		"ours":       {"{seccompProfile: {type: Localhost, localhostProfile: no-folders.json}}", "2\n"},
	} {
		if got := n.printed("seccomp-"+name, script, "    securityContext: "+test.profile+"\n", ""); got != test.want {
			t.Errorf("profile %s: got %q, want %q", name, got, test.want)
		}
	}
	n.busyboxPod("seccomp-missing", "sleep 1000", "    securityContext: {seccompProfile: {type: Localhost, localhostProfile: none.json}}\n", "")
	n.eventually("the pod says which profile is missing", func() error {
		return wants(n.kubectl("get", "pod", "seccomp-missing", "-o", "jsonpath={.status.containerStatuses[0].state.waiting}"), "CreateContainerError", "none.json")
	})
	n.kubectl("delete", "pod", "seccomp-missing", "--wait=false")
}

// testProcMount has the kernel's files hidden, unless a pod with users of its
// own wants them.
func testProcMount(t *testing.T, n *node) {
	const script = `cat /proc/mounts | while read a b c d; do case $b in /proc/*) echo $b;; esac; done`
	masked := n.printed("proc-masked", script, "", "")
	if err := wants(masked, "/proc/sys\n", "/proc/irq\n", "/proc/interrupts\n"); err != nil {
		t.Error(err)
	}
	if got := n.printed("proc-unmasked", script, "    securityContext: {procMount: Unmasked}\n", "  hostUsers: false\n"); got != "" {
		t.Errorf("in /proc there is mounted:\n%s", got)
	}
}

// testSysctls sets kernel settings: one that is safe, one that the node allows,
// and one of the pod's own users.
func testSysctls(t *testing.T, n *node) {
	got := n.printed("sysctls", "cat /proc/sys/kernel/shm_rmid_forced /proc/sys/net/core/somaxconn", "",
		"  securityContext: {sysctls: [{name: kernel.shm_rmid_forced, value: \"1\"}, {name: net/core/somaxconn, value: \"1234\"}]}\n")
	if got != "1\n1234\n" {
		t.Errorf("got %q", got)
	}
	n.busyboxPod("sysctl-refused", "sleep 1000", "", "  securityContext: {sysctls: [{name: user.max_net_namespaces, value: \"1\"}]}\n")
	n.eventually("a setting of the host's users is refused", func() error {
		return wants(n.kubectl("get", "pod", "sysctl-refused", "-o", "jsonpath={.status.reason} {.status.message}"),
			"SysctlForbidden", `"user.max_net_namespaces" not allowed with host User enabled`)
	})
	n.kubectl("delete", "pod", "sysctl-refused", "--wait=false")
}

// testGroups has a user whom the image puts into a group.
func testGroups(t *testing.T, n *node) {
	program, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Fatal(err)
	}
	const image = "holdfast.local/groups:test"
	n.importImage(ociimage.Image{Refs: []string{image}, Env: []string{"PATH=/bin"}, Files: map[string]ociimage.File{
		"/bin/id":     {Mode: 0o755, Content: program},
		"/etc/passwd": {Mode: 0o644, Content: []byte("alice:x:1000:1000::/:/bin/sh\n")},
		"/etc/group":  {Mode: 0o644, Content: []byte("alice:x:1000:\nimages:x:50000:alice\n")},
	}})
	for policy, want := range map[string]string{"Merge": "1000 50000 60000", "Strict": "1000 60000"} {
		name := "groups-" + strings.ToLower(policy)
		n.kubectlIn(fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  restartPolicy: Never
  securityContext: {runAsUser: 1000, runAsGroup: 1000, supplementalGroups: [60000], supplementalGroupsPolicy: %s}
  containers: [{name: main, image: %q, imagePullPolicy: Never, command: [id, -G]}]
`, name, policy, image), "apply", "-f", "-")
		n.eventually(name+" ends", func() error {
			out, err := n.tryKubectl("", "logs", name)
			if err != nil || out == "" {
				return fmt.Errorf("%q, %w", out, err)
			}
			groups := strings.Fields(out)
			slices.Sort(groups)
			if got := strings.Join(groups, " "); got != want {
				t.Fatalf("%s: groups %s, want %s", policy, got, want)
			}
			return nil
		})
		n.eventually("the status says it of "+name, func() error {
			told := n.kubectl("get", "pod", name, "-o", "jsonpath={.status.containerStatuses[0].user.linux}")
			if strings.Contains(told, "50000") != (policy == "Merge") || !strings.Contains(told, "60000") {
				return errors.New(told)
			}
			return nil
		})
		n.kubectl("delete", "pod", name, "--wait=false")
	}
}

// testPrivileges looks at what a container may do, and whose things it sees.
func testPrivileges(t *testing.T, n *node) {
	const script = `cat /proc/self/status | while read a b; do case $a in CapEff:|NoNewPrivs:) echo $a $b;; esac; done`
	own, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(own), "CapEff:\t")
	all, _, _ := strings.Cut(after, "\n")
	for name, test := range map[string]struct{ context, want string }{
		"default":    {"{}", "CapEff: 00000000a80425fb\nNoNewPrivs: 0\n"},
		"one":        {"{capabilities: {drop: [ALL], add: [NET_ADMIN]}, allowPrivilegeEscalation: false}", "CapEff: 0000000000001000\nNoNewPrivs: 1\n"},
		"privileged": {"{privileged: true}", "CapEff: " + all + "\nNoNewPrivs: 0\n"},
	} {
		if got := n.printed("can-"+name, script, "    securityContext: "+test.context+"\n", ""); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
	for _, shared := range []bool{true, false} {
		got := n.printed(fmt.Sprintf("sees-%v", shared), "ls -l /proc/self/ns", "", fmt.Sprintf("  hostPID: %[1]v\n  hostIPC: %[1]v\n  hostNetwork: %[1]v\n", shared))
		for _, namespace := range []string{"pid", "ipc", "net"} {
			host, err := os.Readlink("/proc/thread-self/ns/" + namespace) // the process's first thread may be in a network of another test
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(got, host) != shared {
				t.Errorf("%s, asked for the host's: %v; the host's is %s, and the container's\n%s", namespace, shared, host, got)
			}
		}
	}
}
