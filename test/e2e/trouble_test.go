package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/holdfast-dev/holdfast/test/faultpoint"
)

// crowdSize is how many pods of the folder come and go while there is trouble.
const crowdSize = 5

// crowdPod is one of them: each has an init container, a sidecar and a hook, so
// that trouble may come at many points of its life.
const crowdPod = `apiVersion: v1
kind: Pod
metadata: {name: crowd-%d, labels: {crowd: "yes"}}
spec:
  terminationGracePeriodSeconds: 2
  initContainers:
  - {name: first, image: "holdfast.local/demo:latest", args: [echo, ready]}
  - {name: side, image: "holdfast.local/demo:latest", args: [sleep, 61m7s], restartPolicy: Always}
  containers:
  - name: main
    image: holdfast.local/demo:latest
    args: [sleep, 61m7s]
    lifecycle: {preStop: {exec: {command: [/demo, echo, bye]}}}
    volumeMounts: [{name: fast, mountPath: /fast}]
  volumes:
  - {name: fast, emptyDir: {medium: Memory}}
`

func (n *node) crowdComes() {
	n.t.Helper()
	for i := range crowdSize {
		n.write(fmt.Sprintf("crowd-%d.yaml", i), fmt.Sprintf(crowdPod, i))
	}
}

func (n *node) crowdGoes() {
	n.t.Helper()
	for i := range crowdSize {
		n.remove(fmt.Sprintf("crowd-%d.yaml", i))
	}
}

// crowdIs returns nil once so many pods of the crowd are there, all ready, and
// nothing is left of others.
func (n *node) crowdIs(size int) error {
	n.t.Helper()
	pods, err := n.podsOf(v1.NamespaceDefault, "crowd=yes")
	if err != nil {
		return err
	}
	for i := range pods {
		if p := &pods[i]; !podutil.IsPodReady(p) {
			return fmt.Errorf("pod %s is not ready: %+v", p.Name, p.Status)
		}
	}
	if len(pods) != size {
		return fmt.Errorf("%d pods, want %d", len(pods), size)
	}
	left, err := n.left()
	if err == nil && len(left) > 0 {
		err = errors.New("left: " + strings.Join(left, "\n"))
	}
	return err
}

// A trouble is made while pods come or go, and ends with the returned call.
type trouble struct {
	name string
	make func(n *faultNode, random *rand.Rand) (end func())
	long bool // left to HOLDFAST_FAULTS=all
}

var troubles = []trouble{
	{"containerd is killed", killContainerd, false},
	{"containerd is killed again and again", func(n *faultNode, random *rand.Rand) func() {
		for range 3 {
			killContainerd(n, random)
			time.Sleep(time.Duration(random.Int64N(int64(2 * time.Second))))
		}
		return func() {}
	}, true},
	{"containerd hangs for a while", func(n *faultNode, _ *rand.Rand) func() {
		pid := n.stopContainerd()
		time.Sleep(3 * time.Second)
		return func() { _ = syscall.Kill(pid, syscall.SIGCONT) }
	}, true},
	{"containerd hangs until it is replaced", func(n *faultNode, _ *rand.Rand) func() {
		pid := n.stopContainerd()
		n.eventually("another containerd", func() error {
			if now := pidsOf(n.t, filepath.Join(n.root, "containerd", "config.toml")); len(now) != 1 || now[0] == pid {
				return fmt.Errorf("processes %v", now)
			}
			return nil
		})
		return func() {}
	}, true},
}

func killContainerd(n *faultNode, _ *rand.Rand) func() {
	var pid int
	n.eventually("there is a containerd", func() error {
		pids := pidsOf(n.t, filepath.Join(n.root, "containerd", "config.toml"))
		if len(pids) != 1 {
			return fmt.Errorf("processes %v", pids)
		}
		pid = pids[0]
		return nil
	})
	kill(n.t, pid)
	return func() {}
}

func (n *node) stopContainerd() (pid int) {
	n.t.Helper()
	pid = n.containerd()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		n.t.Fatal(err)
	}
	return pid
}

// proxied are the troubles that a proxy before the runtime makes.
var proxied = []trouble{
	{"every call takes its time", func(n *faultNode, random *rand.Rand) func() {
		var mu sync.Mutex // guards random: calls ask at the same time
		n.proxy.Set(func(faultpoint.Call) faultpoint.Fault {
			mu.Lock()
			defer mu.Unlock()
			return faultpoint.Fault{Delay: time.Duration(random.Int64N(int64(700 * time.Millisecond)))}
		})
		return func() {}
	}, true},
}

// TestRuntimeTroubleUnderWork has the runtime die, hang and be slow while pods
// start and while they end. They get there, nothing is left, and a pod that only
// runs is not touched. Most of it needs HOLDFAST_FAULTS=all.
func TestRuntimeTroubleUnderWork(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.configure("  runtimeRequestTimeout: 5s\n")
	n.up()
	random := seeded(t)
	n.write("stays.yaml", servePod("stays"))
	before := containers(n.running("stays-edge-1"))
	f := &faultNode{node: n}
	for _, tr := range troubles {
		f.underWork(t, tr, random)
	}
	f = n.behindProxy()
	for _, tr := range proxied {
		f.underWork(t, tr, random)
	}
	f.proxy.Set(func(faultpoint.Call) faultpoint.Fault { return faultpoint.Fault{} })
	step(t, "the start of one pod hangs", func(t *testing.T) {
		n.t = t
		f.oneHangs("RunPodSandbox", "crowd-0", "FailedCreatePodSandBox", func() { n.crowdComes() }, crowdSize-1, crowdSize)
	})
	if os.Getenv("HOLDFAST_FAULTS") == "all" {
		step(t, "the end of one pod hangs", func(t *testing.T) {
			n.t = t
			id := strings.TrimPrefix(n.pod("crowd-0-edge-1").Status.ContainerStatuses[0].ContainerID, "containerd://")
			f.oneHangs("StopContainer", id, "FailedKillPod", func() { n.crowdGoes() }, 0, 0)
		})
	}
	n.t = t
	if after := containers(n.running("stays-edge-1")); after != before {
		t.Errorf("a pod that only ran was touched: %s, before %s", after, before)
	}
}

// underWork makes trouble some time after the crowd begins to come, and again
// after it begins to go.
func (n *faultNode) underWork(t *testing.T, tr trouble, random *rand.Rand) {
	t.Helper()
	if tr.long && os.Getenv("HOLDFAST_FAULTS") != "all" {
		return
	}
	step(t, tr.name, func(t *testing.T) {
		n.t = t
		for _, work := range []struct {
			name  string
			begin func()
			size  int
		}{{"pods come", n.crowdComes, crowdSize}, {"pods go", n.crowdGoes, 0}} {
			work.begin()
			after := time.Duration(random.Int64N(int64(1500 * time.Millisecond)))
			t.Logf("%s: after %v", work.name, after)
			time.Sleep(after)
			end := tr.make(n, random)
			end()
			n.eventually(work.name, func() error { return n.crowdIs(work.size) })
		}
	})
}

// oneHangs has a call of one pod hang, while others are at work. They do not wait
// for it, what hangs is shown, and it goes on when the runtime does.
func (n *faultNode) oneHangs(verb, names, event string, begin func(), beside, then int) {
	n.t.Helper()
	n.proxy.Set(func(c faultpoint.Call) faultpoint.Fault {
		return faultpoint.Fault{Hang: c.Verb == verb && c.Names(names)}
	})
	begin()
	n.eventually("the others do not wait", func() error {
		pods, err := n.podsOf(v1.NamespaceDefault, "crowd=yes")
		if err != nil {
			return err
		}
		ready, there := 0, false
		for i := range pods {
			switch {
			case pods[i].Name == "crowd-0-edge-1":
				there = true
			case podutil.IsPodReady(&pods[i]):
				ready++
			}
		}
		if ready != beside || !there {
			return fmt.Errorf("%d are ready, want %d; the one that hangs is there: %v", ready, beside, there)
		}
		return nil
	})
	n.eventually("the event says what hangs", func() error {
		out, err := n.tryKubectl("", "get", "events", "--field-selector", "type="+v1.EventTypeWarning+",involvedObject.name=crowd-0-edge-1")
		return errors.Join(err, wants(out, event, "context deadline exceeded"))
	})
	n.eventually("the status says what hangs", func() error {
		out, err := n.try("status")
		if err == nil {
			return errors.New("status exits 0")
		}
		return wants(out, "Pod default/crowd-0-edge-1", "deadline exceeded")
	})
	n.proxy.Set(func(faultpoint.Call) faultpoint.Fault { return faultpoint.Fault{} })
	n.eventually("it goes on", func() error { return n.crowdIs(then) })
}
