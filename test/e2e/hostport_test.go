package e2e

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/instance"
	"github.com/holdfast-dev/holdfast/internal/ociimage"
	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// otherMachine makes a network namespace that is joined to this machine by a
// cable. Its name is for "ip netns exec", and address is this machine's end.
func otherMachine(t *testing.T) (name, address string) {
	t.Helper()
	testenv.Need(t, "root", "ip")
	name = fmt.Sprintf("hf-e2e-%d", os.Getpid())
	ours, theirs := fmt.Sprintf("hfe%d", os.Getpid()), fmt.Sprintf("hft%d", os.Getpid())
	address = "198.18.77.1"
	makeNetwork(t, name)
	t.Cleanup(func() { deleteNetwork(t, name) })
	for _, args := range [][]string{
		{"link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", name},
		{"address", "add", address + "/30", "dev", ours},
		{"link", "set", ours, "up"},
		{"-n", name, "address", "add", "198.18.77.2/30", "dev", theirs},
		{"-n", name, "link", "set", theirs, "up"},
		{"-n", name, "route", "add", "default", "via", address},
	} {
		if out, err := run(t, "", "ip", args...); err != nil {
			t.Fatalf("ip %s: %s", strings.Join(args, " "), out)
		}
	}
	return name, address
}

// importUDPEcho puts an image onto the node whose program answers on UDP port 7.
func (n *node) importUDPEcho() (image string) {
	n.t.Helper()
	testenv.Need(n.t, "go")
	path := filepath.Join(n.t.TempDir(), "udpecho")
	cmd := exec.CommandContext(n.t.Context(), "go", "build", "-o", path, "./udpecho")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		n.t.Fatalf("%v: %s", err, out)
	}
	program, err := os.ReadFile(path)
	if err != nil {
		n.t.Fatal(err)
	}
	image = "holdfast.local/udpecho:test"
	n.importImage(ociimage.Image{
		Refs: []string{image}, Files: map[string]ociimage.File{"/udpecho": {Mode: 0o755, Content: program}}, Cmd: []string{"/udpecho"},
	})
	return image
}

// askUDP sends a packet and returns the answer.
func askUDP(t *testing.T, address string) (string, error) {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "udp", address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return "", err
	}
	if _, err := conn.Write([]byte("ping")); err != nil {
		return "", err
	}
	buf := make([]byte, 100)
	count, err := conn.Read(buf)
	return string(buf[:count]), err
}

// portOfRule finds the ports of TestHostPorts: a hash in a chain's name may have
// such digits too.
var portOfRule = regexp.MustCompile(`\b1808[01]\b`)

func TestHostPorts(t *testing.T) {
	t.Parallel()
	cable, address := otherMachine(t)
	n := startNode(t)
	in, err := instance.Open(n.root)
	if err != nil {
		t.Fatal(err)
	}
	udpEcho := n.importUDPEcho()
	fromCable := func(url string) (string, error) {
		return run(t, "", "ip", "netns", "exec", cable, filepath.Join(binDir, "runtime", "demo"), "get", url)
	}
	n.write("web.yaml", servePod("web", "{containerPort: 8080, hostPort: 18080}", "{containerPort: 8080, hostPort: 18081, hostIP: 198.18.77.1}"))
	n.write("udp.yaml", strings.NewReplacer("holdfast.local/demo:latest", udpEcho, "      args: [serve]\n", "").
		Replace(servePod("udp", "{containerPort: 7, hostPort: 18080, protocol: UDP}")))
	n.write("client.yaml", strings.Replace(servePod("client"), "[serve]", "[sleep, forever]", 1))
	for _, pod := range []string{"web-edge-1", "udp-edge-1", "client-edge-1"} {
		n.running(pod)
	}

	hello := func(what string, ask func() (string, error)) {
		t.Helper()
		n.eventually(what, func() error {
			out, err := ask()
			if err == nil && !strings.Contains(out, "hello from web-edge-1") {
				err = errors.New("another answer")
			}
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
	}
	get := func(url string) func() (string, error) { return func() (string, error) { return fetch(t, url) } }
	fromPod := func(url string) func() (string, error) {
		return func() (string, error) { return n.tryKubectl("", "exec", "client-edge-1", "--", "/demo", "get", url) }
	}
	hello("from the host, over loopback", get("http://127.0.0.1:18080/"))
	hello("from the host, over an address", get("http://"+address+":18080/"))
	hello("from the host, over the bridge", get("http://"+in.Gateway().String()+":18080/"))
	hello("from another pod", fromPod("http://"+in.Gateway().String()+":18080/"))
	hello("from another pod, over another address", fromPod("http://"+address+":18080/"))
	hello("from the pod itself", func() (string, error) {
		return n.tryKubectl("", "exec", "web-edge-1", "--", "/demo", "get", "http://"+address+":18080/")
	})
	hello("from another machine", func() (string, error) { return fromCable("http://" + address + ":18080/") })
	hello("hostIP: its address", get("http://"+address+":18081/"))
	hello("hostIP: its address from another machine", func() (string, error) { return fromCable("http://" + address + ":18081/") })
	if out, err := fetch(t, "http://127.0.0.1:18081/"); err == nil {
		t.Errorf("a port of one address answers on another: %s", out)
	}
	for _, to := range []string{"127.0.0.1", address} {
		n.eventually("UDP over "+to, func() error {
			out, err := askUDP(t, to+":18080")
			return errors.Join(err, wants(out, "udp-edge-1 ping"))
		})
	}

	// The port of the pod is free again once the pod has gone, for another.
	n.remove("web.yaml")
	n.write("other.yaml", servePod("other", "{containerPort: 8080, hostPort: 18080}"))
	n.eventually("another pod has the port", func() error {
		out, err := fetch(t, "http://127.0.0.1:18080/")
		return errors.Join(err, wants(out, "hello from other-edge-1"))
	})
	n.remove("other.yaml")
	n.remove("udp.yaml")
	n.eventually("the rules of host ports go", func() error {
		for _, rule := range takeInventory(t).Rules {
			if portOfRule.MatchString(rule) {
				return errors.New(rule)
			}
		}
		return nil
	})
}

// TestHostPortOfTwoNodes wants one port of the machine for a pod of each of two
// nodes: the second waits until the first is gone.
func TestHostPortOfTwoNodes(t *testing.T) {
	t.Parallel()
	one, two := startNode(t), startNode(t)
	one.write("web.yaml", servePod("first", "{containerPort: 8080, hostPort: 18090}"))
	one.running("first-edge-1")
	two.write("web.yaml", servePod("second", "{containerPort: 8080, hostPort: 18090}"))
	in, err := instance.Open(one.root)
	if err != nil {
		t.Fatal(err)
	}
	two.eventually("the second node says why it does not start the pod", func() error {
		return wants(two.kubectl("get", "events"), "FailedCreatePodSandBox", "host TCP port 18090 is taken by a pod of another node on this machine, "+in.ID)
	})
	out, err := fetch(t, "http://127.0.0.1:18090/")
	if err := errors.Join(err, wants(out, "hello from first")); err != nil {
		t.Error(err)
	}
	// The first pod goes, with all of its node.
	one.reboot()
	two.running("second-edge-1")
	two.eventually("the second pod has the port", func() error {
		out, err := fetch(t, "http://127.0.0.1:18090/")
		return errors.Join(err, wants(out, "hello from second"))
	})

	// Somebody of this machine listens already: the user is told.
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	port := l.Addr().(*net.TCPAddr).Port
	two.write("third.yaml", servePod("third", fmt.Sprintf("{containerPort: 8080, hostPort: %d}", port)))
	two.running("third-edge-1")
	two.eventually("a warning", func() error {
		return wants(two.kubectl("get", "events"), "HostPortConflict", fmt.Sprintf("e2e.test (process %d) listens on host TCP port %d", os.Getpid(), port))
	})
	api := two.report().API
	two.write("fourth.yaml", servePod("fourth", fmt.Sprintf("{containerPort: 8080, hostPort: %s}", api[strings.LastIndex(api, ":")+1:])))
	two.eventually("the node keeps its own port", func() error { return wants(two.kubectl("get", "events"), "is the node's own") })
}
