package controlplane

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A netns is another network namespace, with a cable to this one.
type netns struct {
	name      string
	here, far string // the addresses of the two ends
}

// newNetns makes a namespace that is removed when t ends. index tells the
// ranges of several apart.
func newNetns(t *testing.T, index int) netns {
	t.Helper()
	name := fmt.Sprintf("cp-%d-%d", os.Getpid(), index)
	// 198.18.0.0/15 is set aside for tests; the process id keeps runs apart.
	prefix := fmt.Sprintf("198.%d.%d.%d", 18+os.Getpid()>>8&1, os.Getpid()&255, index*4)
	base := net.ParseIP(prefix).To4()
	n := netns{name, address(base, 1), address(base, 2)}
	link := name + "h"
	ip(t, "netns", "add", name)
	t.Cleanup(func() {
		if out, err := exec.Command("ip", "netns", "delete", name).CombinedOutput(); err != nil { // and the cable with it
			t.Errorf("remove the network namespace: %v: %s", err, out)
		}
	})
	ip(t, "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
	ip(t, "address", "add", n.here+"/30", "dev", link)
	ip(t, "link", "set", link, "up")
	ip(t, "-n", name, "address", "add", n.far+"/30", "dev", "eth0")
	ip(t, "-n", name, "link", "set", "eth0", "up")
	return n
}

func address(base net.IP, host byte) string {
	return net.IPv4(base[0], base[1], base[2], base[3]+host).String()
}

func ip(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// do calls f in the namespace. Sockets that f makes stay there.
func (n netns) do(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		file, err := os.Open("/run/netns/" + n.name)
		if err != nil {
			done <- err
			return
		}
		defer file.Close()
		if err := unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter network namespace %s: %w", n.name, err)
			return
		}
		done <- f()
	}()
	return <-done
}

func (n netns) dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = n.do(func() error {
		conn, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}
