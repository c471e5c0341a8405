package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/instance"
)

// servePod is the manifest of a pod that answers HTTP on a port of its own; ports
// are lines of its list "ports", which may be none.
func servePod(name string, ports ...string) string {
	text := fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 2
  containers:
    - name: main
      image: holdfast.local/demo:latest
      args: [serve]
`, name)
	if len(ports) > 0 {
		text += "      ports:\n"
	}
	for _, p := range ports {
		text += "        - " + p + "\n"
	}
	return text
}

// TestThreeNodes starts three nodes of one machine at the same moment, one of
// them in a folder of a very long name, and takes one away.
func TestThreeNodes(t *testing.T) {
	nodes := []*node{newNode(t), newNode(t), newNode(t)}
	long := filepath.Join(nodes[2].root, strings.Repeat("a-long-name-", 16), "node")
	if err := os.MkdirAll(long, 0o755); err != nil {
		t.Fatal(err)
	}
	nodes[2] = newNodeIn(t, long)
	var starts sync.WaitGroup
	for _, n := range nodes {
		starts.Go(func() {
			if out, err := n.tryUp(); err != nil {
				t.Errorf("up: %v\n%s", err, out)
			}
		})
	}
	starts.Wait()
	if t.Failed() {
		return
	}
	instances := map[*node]*instance.Instance{}
	for i, n := range nodes {
		in, err := instance.Open(n.root)
		if err != nil {
			t.Fatal(err)
		}
		for _, other := range instances {
			if other.Subnet.Overlaps(in.Subnet) || other.ID == in.ID {
				t.Errorf("two nodes share %s or %s", in.Subnet, in.ID)
			}
		}
		instances[n] = in
		n.write("web.yaml", servePod("web"))
		ip := n.running("web-edge-1").Status.PodIP
		if !strings.HasPrefix(ip, strings.TrimSuffix(in.Subnet.Masked().Addr().String(), "0")) {
			t.Errorf("node %d: the pod has %s, its node %s", i, ip, in.Subnet)
		}
		reach(t, ip+":8080")
	}

	gone, others := nodes[0], nodes[1:]
	var before []string
	for _, n := range others {
		before = append(before, containers(n.pod("web-edge-1")))
	}
	host := takeInventory(t)
	gone.holdfast("uninstall", "--yes")
	for i, n := range others {
		pod := n.running("web-edge-1")
		if got := containers(pod); got != before[i] {
			t.Errorf("containers of another node changed:\n%swant\n%s", got, before[i])
		}
		reach(t, pod.Status.PodIP+":8080")
	}
	after, id := takeInventory(t), instances[gone].ID
	for _, list := range []struct {
		name        string
		had, has    []string
		mustHaveOne bool
	}{
		{"rules", host.Rules, after.Rules, true},
		{"links", host.Links, after.Links, true},
		{"cgroups", host.Cgroups, after.Cgroups, true},
		{"run folders", host.RunDirs, after.RunDirs, true},
	} {
		lost := slices.DeleteFunc(slices.Clone(list.had), func(line string) bool { return slices.Contains(list.has, line) })
		if list.mustHaveOne && len(lost) == 0 {
			t.Errorf("%s: nothing of the removed node was seen", list.name)
		}
		for _, line := range lost {
			for n, in := range instances {
				if n != gone && (strings.Contains(line, in.ID) || strings.Contains(line, in.Subnet.String())) {
					t.Errorf("%s: the removed node took %q with it, another's", list.name, line)
				}
			}
		}
		for _, line := range list.has {
			// A chain of host ports does not say whose it is, and subnets are used again.
			ours := strings.Contains(line, instances[gone].Subnet.String()) && !strings.HasPrefix(line, "-A CNI-DN-")
			if strings.Contains(line, id) || ours {
				t.Errorf("%s: the removed node left %q", list.name, line)
			}
		}
	}
}

// TestSubnetOfANodeThatIsDown makes a second node while nothing but its folder
// tells of the first.
func TestSubnetOfANodeThatIsDown(t *testing.T) {
	t.Parallel()
	one, two := newNode(t), newNode(t)
	one.up()
	in := one.reboot()
	two.up()
	other, err := instance.Open(two.root)
	if err != nil {
		t.Fatal(err)
	}
	if other.Subnet.Overlaps(in.Subnet) {
		t.Errorf("the second node took %s, the first had %s and is down", other.Subnet, in.Subnet)
	}
	two.holdfast("down")

	taken := newNode(t)
	taken.flags = []string{"--pod-cidr", in.Subnet.String()}
	out, err := taken.tryUp()
	if err == nil || wants(out, in.Subnet.String()+" overlaps", "the node in "+one.root) != nil {
		t.Errorf("a subnet that a node has, which is down: %v\n%s", err, out)
	}

	two.flags = []string{"--pod-cidr", "100.127.77.0/28"}
	two.up()
	two.write("web.yaml", servePod("web"))
	if ip := two.running("web-edge-1").Status.PodIP; !strings.HasPrefix(ip, "100.127.77.") {
		t.Errorf("the pod has %s", ip)
	}
	kill(t, two.report().PID)
	two.flags = []string{"--pod-cidr", "100.127.78.0/28"}
	if out, err = two.tryUp(); err == nil || wants(out, "stop them first") != nil {
		t.Errorf("another subnet while pods run: %v\n%s", err, out)
	}
}

// reach asks a pod that serves HTTP until it answers.
func reach(t *testing.T, address string) {
	t.Helper()
	(&node{t: t}).eventually(address+" answers", func() error {
		body, err := fetch(t, "http://"+address+"/")
		if err == nil && !strings.Contains(body, "hello from") {
			err = errors.New(body)
		}
		return err
	})
}
