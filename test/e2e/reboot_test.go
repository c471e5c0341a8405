package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/instance"
)

// TestReboot takes the power from a node that has never had a network, and edits
// its manifests before it comes back.
func TestReboot(t *testing.T) {
	t.Parallel()
	network := ownNetwork(t)
	n := newNode(t)
	n.netns = network
	n.up()
	n.importBusybox()
	withFiles := func(name string) string {
		return servePod(name, "{containerPort: 8080, hostPort: 18086}") + `      volumeMounts: [{name: kept, mountPath: /kept}, {name: memory, mountPath: /memory}]
  volumes: [{name: kept, emptyDir: {}}, {name: memory, emptyDir: {medium: Memory}}]
`
	}
	settings := func(name string) string {
		return "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\ndata: {a: b}\n"
	}
	n.write("stays.yaml", withFiles("stays")+settings("stays"))
	n.write("goes.yaml", strings.ReplaceAll(withFiles("goes"), "18086", "18087")+settings("goes"))
	n.write("edited.yaml", servePod("edited"))
	n.kubectl("run", "bare", "--image=holdfast.local/demo:latest", "--", "serve")
	stays, goes, edited, bare := n.running("stays-edge-1"), n.running("goes-edge-1"), n.running("edited-edge-1"), n.running("bare")
	n.kubectl("exec", "stays-edge-1", "--", "/demo", "write", "/kept/note", "still here")
	n.kubectl("exec", "stays-edge-1", "--", "/demo", "write", "/memory/note", "gone with the power")

	in := n.reboot()
	n.remove("goes.yaml")
	n.write("edited.yaml", strings.Replace(servePod("edited"), "[serve]", "[sleep, forever]", 1))
	t.Log(n.up())

	for _, old := range []struct {
		name, uid string
	}{{"stays-edge-1", string(stays.UID)}, {"bare", string(bare.UID)}} {
		n.eventually("pod "+old.name+" has started once more", func() error {
			pod := n.running(old.name)
			if string(pod.UID) != old.uid {
				return errors.New("it has another UID")
			}
			if got := pod.Status.ContainerStatuses[0]; got.RestartCount != 1 || got.LastTerminationState.Terminated == nil {
				return fmt.Errorf("restart count %d, last state %+v; want 1, and how it ended", got.RestartCount, got.LastTerminationState)
			}
			return nil
		})
	}
	n.eventually("the edited pod is another", func() error {
		if n.running("edited-edge-1").UID == edited.UID {
			return errors.New("it has the UID of the old one")
		}
		return nil
	})
	if out := n.kubectl("exec", "stays-edge-1", "--", "/demo", "cat", "/kept/note"); !strings.Contains(out, "still here") {
		t.Errorf("the volume holds %q", out)
	}
	if out := n.kubectl("exec", "stays-edge-1", "--", "/demo", "ls", "/memory"); strings.Contains(out, "note") {
		t.Errorf("the volume in memory holds %q", out)
	}
	n.eventually("the host port leads to the pod", func() error {
		out, err := n.run("", filepath.Join(binDir, "runtime", "demo"), "get", "http://127.0.0.1:18086/")
		return errors.Join(err, wants(out, "hello from stays"))
	})

	n.eventually("nothing is left of what was removed", func() error {
		if n.pod("goes-edge-1") != nil {
			return errors.New("its mirror pod")
		}
		if out := n.kubectl("get", "configmap", "goes", "--ignore-not-found"); out != "" {
			return errors.New(out)
		}
		for _, uid := range []string{goes.Annotations["kubernetes.io/config.hash"], edited.Annotations["kubernetes.io/config.hash"]} {
			if uid == "" {
				return errors.New("a mirror pod without the static pod's UID")
			}
			for _, pattern := range []string{n.root + "/kubelet/pods/" + uid, n.root + "/logs/pods/*" + uid} {
				if found := glob(t, pattern); len(found) > 0 {
					return fmt.Errorf("%v", found)
				}
			}
		}
		return nil
	})
	if out := n.kubectl("get", "events", "--field-selector", "involvedObject.name=goes-edge-1,reason=Started"); strings.Count(out, "Started") > 1 {
		t.Errorf("a pod that was removed while the node was down was started:\n%s", out)
	}
	// An address for each pod, and no other, is taken.
	want := []string{n.running("stays-edge-1").Status.PodIP, n.running("edited-edge-1").Status.PodIP, n.running("bare").Status.PodIP}
	n.eventually("only the pods have addresses", func() error {
		if diff := cmp.Diff(leases(t, in), sorted(want)); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
}

// leases returns the addresses that the CNI plugin has given away, sorted.
func leases(t *testing.T, in *instance.Instance) []string {
	t.Helper()
	var all []string
	for _, path := range glob(t, in.Run("leases", "*", "*")) {
		if name := filepath.Base(path); strings.Count(name, ".") == 3 && !strings.HasPrefix(name, "last_") {
			all = append(all, name)
		}
	}
	return sorted(all)
}

// TestLeasesOfTheKilled kills containers and containerd together, over and over:
// each pod gets one address again, and the old ones come free.
func TestLeasesOfTheKilled(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.flags = []string{"--pod-cidr", "100.127.76.0/29"} // five pods
	n.up()
	in, err := instance.Open(n.root)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		n.write(fmt.Sprintf("web%d.yaml", i), servePod(fmt.Sprint("web", i)))
	}
	var before string
	for range 4 {
		for i := range 3 {
			n.eventually("the pod is another", func() error {
				pod := n.running(fmt.Sprintf("web%d-edge-1", i))
				if i == 0 && containers(pod) == before {
					return errors.New("not yet")
				}
				return nil
			})
		}
		before = containers(n.running("web0-edge-1"))
		kill(t, n.report().PID)
		kill(t, n.containerd())
		killAll(t, func() []int { return pidsOf(t, in.Run("containerd.sock")) })
		killAll(t, func() []int { return cgroupPIDs(t, in) })
		n.up()
	}
	n.eventually("one address a pod", func() error {
		if got := leases(t, in); len(got) != 3 {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
	if out, err := os.ReadDir(in.Run("leases")); err != nil || len(out) != 1 {
		t.Errorf("leases of more than one network: %v, %v", out, err)
	}
}

func sorted(list []string) []string {
	slices.Sort(list)
	return list
}
