package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/test/faultpoint"
)

// sleeper is a pod with one container, and how to know its process.
type sleeper struct{ name, time string }

func (n *faultNode) sleeper(name string) sleeper {
	n.t.Helper()
	s := sleeper{name, (time.Hour + time.Duration(rand.Int64N(int64(time.Hour)))).String()} //nolint:gosec // no secret
	n.write(name+".yaml", fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - {name: main, image: "holdfast.local/demo:latest", args: [sleep, %s]}
`, name, s.time))
	n.running(name + "-edge-1")
	return s
}

// restarts kills the container's process, and waits until it runs once more.
func (n *faultNode) restarts(s sleeper) {
	n.t.Helper()
	pids := pidsOf(n.t, s.time)
	if len(pids) != 1 {
		n.t.Fatalf("processes of %s: %v", s.name, pids)
	}
	kill(n.t, pids[0])
	n.eventually(s.name+" runs again", func() error {
		status := n.pod(s.name + "-edge-1").Status.ContainerStatuses[0]
		if status.RestartCount != 1 || status.State.Running == nil {
			return fmt.Errorf("%d restarts, %v", status.RestartCount, status.State)
		}
		return nil
	})
}

var missedEvents = regexp.MustCompile(`(?m)^holdfast_pleg_missed_events_total (\d+)$`)

// missed returns how many events were missing, by the node's own count.
func (n *faultNode) missed() int {
	n.t.Helper()
	found := missedEvents.FindStringSubmatch(n.kubectl("get", "--raw", "/api/v1/nodes/edge-1/proxy/metrics"))
	if found == nil {
		n.t.Fatal("the metrics do not say how many events were missing")
	}
	count, err := strconv.Atoi(found[1])
	if err != nil {
		n.t.Fatal(err)
	}
	return count
}

// TestWrongEvents has the runtime tell wrongly what its containers do, and take
// seconds for an answer. What ends is started again all the same, and what runs
// is left alone.
func TestWrongEvents(t *testing.T) {
	t.Parallel()
	n := startFaultNode(t)
	stays := n.sleeper("stays")
	before := containers(n.pod("stays-edge-1"))
	events := func(f faultpoint.Fault) {
		n.proxy.Set(func(c faultpoint.Call) faultpoint.Fault {
			if c.Stream {
				return f
			}
			return faultpoint.Fault{}
		})
	}
	for _, test := range []struct {
		name, pod string
		fault     faultpoint.Fault
	}{
		{"events doubled", "doubled", faultpoint.Fault{Twice: true}},
		{"events late", "late", faultpoint.Fault{Late: true}},
		{"events again", "again", faultpoint.Fault{Again: 2 * time.Second}},
	} {
		step(t, test.name, func(t *testing.T) {
			n.t = t
			events(test.fault)
			s := n.sleeper(test.pod)
			n.restarts(s)
			n.remove(s.name + ".yaml")
			n.eventually("it is gone", func() error {
				out, err := n.tryKubectl("", "get", "pod", s.name+"-edge-1", "--ignore-not-found")
				if err == nil && out != "" {
					err = errors.New(out)
				}
				return err
			})
		})
	}
	step(t, "events missing", func(t *testing.T) {
		n.t = t
		events(faultpoint.Fault{})
		s := n.sleeper("missing")
		was := n.missed()
		events(faultpoint.Fault{Lose: true})
		n.restarts(s)
		n.eventually("they are counted", func() error {
			if now := n.missed(); now <= was {
				return fmt.Errorf("%d missing, before %d", now, was)
			}
			return nil
		})
	})
	step(t, "an inspection of seconds", func(t *testing.T) {
		n.t = t
		n.proxy.Set(func(c faultpoint.Call) faultpoint.Fault {
			if c.Verb == "ContainerStatus" {
				return faultpoint.Fault{Delay: 3 * time.Second}
			}
			return faultpoint.Fault{}
		})
		n.restarts(n.sleeper("slow"))
	})
	step(t, "one inspection hangs", func(t *testing.T) {
		n.t = t
		events(faultpoint.Fault{})
		s := n.sleeper("beside")
		hangs := n.pod("stays-edge-1").Status.ContainerStatuses[0].ContainerID[len("containerd://"):]
		n.proxy.Set(func(c faultpoint.Call) faultpoint.Fault {
			return faultpoint.Fault{Hang: c.Verb == "ContainerStatus" && c.Names(hangs)}
		})
		n.restarts(s)
		if out, err := n.try("status"); err != nil {
			t.Errorf("the node is not well for one pod that hangs: %v\n%s", err, out)
		}
	})
	n.t = t
	events(faultpoint.Fault{})
	if after := containers(n.pod("stays-edge-1")); after != before {
		t.Errorf("%s was touched: %s, before %s", stays.name, after, before)
	}
}
