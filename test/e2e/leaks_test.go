package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/instance"
	"github.com/holdfast-dev/holdfast/test/leaks"
)

// leakNode returns the node as package leaks wants it.
func (n *node) leakNode(in *instance.Instance) leaks.Node {
	l := leaks.Node{Instance: in, Ctr: ctrBin, NetNS: n.netns}
	if i := slices.Index(n.flags, "--container-runtime-endpoint"); i >= 0 {
		l.Endpoint = n.flags[i+1]
	}
	return l
}

// uids returns the UIDs by which the node knows the pods of the API: a mirror
// stands for the static pod that it names.
func (n *node) uids() ([]types.UID, error) {
	n.t.Helper()
	pods, err := n.podsOf(metav1.NamespaceAll, "")
	if err != nil {
		return nil, err
	}
	uids := make([]types.UID, 0, len(pods))
	for i := range pods {
		p := &pods[i]
		if hash := p.Annotations[v1.MirrorPodAnnotationKey]; hash != "" {
			uids = append(uids, types.UID(hash))
			continue
		}
		uids = append(uids, p.UID)
	}
	return uids, nil
}

// left returns what a running node has for no pod of its API.
func (n *node) left() ([]string, error) {
	n.t.Helper()
	in, err := instance.Open(n.root)
	if err != nil {
		return nil, err
	}
	uids, err := n.uids()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(n.t.Context()), patience)
	defer cancel()
	return leaks.Left(ctx, n.leakNode(in), uids)
}

// leaksNothing fails the test if a running node keeps having things of pods that
// are gone. Every test of a node ends with it.
func (n *node) leaksNothing() {
	n.t.Helper()
	if in, err := instance.Open(n.root); err != nil || leaks.Agent(in) == 0 {
		return // the test took the node down
	}
	n.settles("nothing is left of pods that are gone", func() ([]string, error) { return n.left() })
}

// isGone fails the test if anything of a node is left on the machine.
func (n *node) isGone() {
	n.t.Helper()
	for _, in := range n.instances {
		n.settles("nothing is left of the node", func() ([]string, error) {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(n.t.Context()), patience)
			defer cancel()
			return leaks.Gone(ctx, n.leakNode(in))
		})
	}
}

// settles waits until list returns nothing. Unlike eventually, it lets the test
// go on, which has to clean up.
func (n *node) settles(what string, list func() ([]string, error)) {
	n.t.Helper()
	var left []string
	err := await(func() (err error) {
		if left, err = list(); err == nil && len(left) > 0 {
			err = errors.New("there is more")
		}
		return err
	})
	if err != nil {
		n.t.Errorf("%s: not within %v: %v\n%s", what, patience, err, strings.Join(left, "\n"))
	}
}

// TestLeaksAreFound leaves things behind as a careless node would: if the checks
// at the end of every test see nothing, it is not because they do not look.
func TestLeaksAreFound(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	n.write("web.yaml", servePod("web", "{containerPort: 8080, hostPort: 18071}"))
	n.running("web-edge-1")
	n.leaksNothing()
	in, err := instance.Open(n.root)
	if err != nil {
		t.Fatal(err)
	}
	id, uid := strings.Repeat("0123456789abcdef", 4), "00000000-1111-2222-3333-444444444444"
	rule := []string{"-j", "RETURN", "-m", "comment", "--comment", fmt.Sprintf("dnat name: \"holdfast-%s\" id: %q", in.ID, id)}
	iptables := func(do string) {
		t.Helper()
		if out, err := n.run("", "iptables", append([]string{"-w", "-t", "nat", do, "OUTPUT"}, rule...)...); err != nil {
			t.Fatal(out)
		}
	}
	volume := in.Path("kubelet", "pods", uid, "volumes", "v")
	group := filepath.Join("/sys/fs/cgroup/memory", in.CgroupParent(), "kubepods", "pod"+uid)
	task := in.Run("containerd", "io.containerd.runtime.v2.task", "k8s.io", id)
	lease := in.Run("leases", "holdfast-"+in.ID, "10.0.0.99")
	logs := in.Path("logs", "pods", "default_gone_"+uid)
	err = errors.Join(os.MkdirAll(volume, 0o755), syscall.Mount("tmpfs", volume, "tmpfs", 0, "size=64k"), os.Mkdir(group, 0o755),
		os.Mkdir(task, 0o755), os.WriteFile(lease, []byte(id+"\neth0"), 0o600), os.Mkdir(logs, 0o755))
	if err != nil {
		t.Fatal(err)
	}
	iptables("-A")
	found, err := n.left()
	if err != nil {
		t.Fatal(err)
	}
	if err := wants(strings.Join(found, "\n"), "mount "+volume, "folder "+filepath.Dir(filepath.Dir(volume)), "cgroup "+group,
		"folder "+task, "lease 10.0.0.99", "folder "+logs, "firewall: -A OUTPUT"); err != nil {
		t.Error(err)
	}
	iptables("-D")
	if err := errors.Join(syscall.Unmount(volume, 0), os.RemoveAll(filepath.Dir(filepath.Dir(volume))), os.Remove(task), os.Remove(lease)); err != nil {
		t.Fatal(err)
	}
	_ = errors.Join(os.Remove(group), os.Remove(logs)) // the node may have been faster

	// A pod whose file is gone while nobody looks is a leak as a whole.
	kill(t, n.report().PID)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	found, err = leaks.Left(ctx, n.leakNode(in), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := wants(strings.Join(found, "\n"), "sandbox ", "container ", "folder ", "cgroup ", "mount ", "lease ", "firewall: ", "a shim of",
		"network namespaces: 1 for 0", "links of the bridge: 1 for 0", "snapshot ", "containerd's container "); err != nil {
		t.Error(err)
	}
	if found, err = leaks.Gone(ctx, n.leakNode(in)); err != nil {
		t.Fatal(err)
	}
	if err := wants(strings.Join(found, "\n"), "mount ", "process ", "firewall: ", "link ", in.Run(), in.Path("kubelet"), "/sys/fs/cgroup"); err != nil {
		t.Error(err)
	}
	n.up()
}
