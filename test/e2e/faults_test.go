package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/holdfast-dev/holdfast/internal/instance"
	"github.com/holdfast-dev/holdfast/internal/kubelet/cri"
	"github.com/holdfast-dev/holdfast/test/faultpoint"
	"github.com/holdfast-dev/holdfast/test/leaks"
)

// everything is a pod with one of each thing that has to be made and taken away.
const everything = `apiVersion: v1
kind: ConfigMap
metadata: {name: all}
data: {version: "%[1]s"}
---
apiVersion: v1
kind: Secret
metadata: {name: all}
data: {key: aGlkZGVu}
---
apiVersion: v1
kind: Pod
metadata: {name: all}
spec:
  terminationGracePeriodSeconds: 30
  initContainers:
    - {name: first, image: "holdfast.local/demo:latest", args: [echo, ready]}
    - {name: side, image: "holdfast.local/demo:latest", args: [sleep, 1h], restartPolicy: Always}
  containers:
    - name: main
      image: holdfast.local/demo:latest
      args: [serve]
      env: [{name: VERSION, value: "%[1]s"}]
      ports: [{containerPort: 8080, hostPort: %[3]d}]
      readinessProbe: {httpGet: {port: 8080, path: /healthz}, periodSeconds: 1}
      lifecycle: {preStop: {exec: {command: [/demo, write, /out/note, "%[1]s"]}}}
      volumeMounts:
        - {name: config, mountPath: /config}
        - {name: secret, mountPath: /secret}
        - {name: fast, mountPath: /fast}
        - {name: out, mountPath: /out}
    - {name: second, image: "holdfast.local/demo:latest", args: [sleep, 1h]}
  volumes:
    - {name: config, configMap: {name: all}}
    - {name: secret, secret: {secretName: all}}
    - {name: fast, emptyDir: {medium: Memory}}
    - {name: out, hostPath: {path: %[2]s}}
`

// debugged is a pod of the API with what that of the folder does not have: a hook
// on each kind of container, and room for an ephemeral one.
const debugged = `apiVersion: v1
kind: Pod
metadata: {name: debugged}
spec:
  terminationGracePeriodSeconds: 30
  initContainers:
    - {name: first, image: "holdfast.local/demo:latest", args: [echo, ready]}
    - name: side
      image: holdfast.local/demo:latest
      args: [sleep, 1h]
      restartPolicy: Always
      startupProbe: {exec: {command: [/demo, echo]}, periodSeconds: 1}
      lifecycle: {preStop: {exec: {command: [/demo, write, /out/side, bye]}}}
      volumeMounts: [{name: out, mountPath: /out}]
  containers:
    - name: main
      image: holdfast.local/demo:latest
      args: [sleep, 1h]
      lifecycle:
        postStart: {exec: {command: [/demo, write, /out/main, hello]}}
        preStop: {sleep: {seconds: 1}}
      volumeMounts: [{name: out, mountPath: /out}]
  volumes:
    - {name: out, emptyDir: {}}
`

// debugger is the ephemeral container that comes later.
const debugger = `{"spec": {"ephemeralContainers": [{"name": "look", "image": "holdfast.local/demo:latest", "args": ["sleep", "1h"], "targetContainerName": "main"}]}}`

func (n *faultNode) createDebugged() error {
	out, err := n.tryKubectl(debugged, "apply", "-f", "-")
	return errors.Join(err, wants(out, "pod/debugged"))
}

func (n *faultNode) debuggedIsReady() error {
	if err := n.podIs("debugged", func(p *v1.Pod) string { return fmt.Sprint("ready ", podutil.IsPodReady(p)) }, "ready true"); err != nil {
		return err
	}
	return n.nothingLeft()
}

func (n *faultNode) debug() error {
	out, err := n.tryKubectl("", "patch", "pod", "debugged", "--subresource", "ephemeralcontainers", "-p", debugger)
	return errors.Join(err, wants(out, "pod/debugged"))
}

func (n *faultNode) debuggerRuns() error {
	runs := func(p *v1.Pod) (out string) {
		for _, c := range p.Status.EphemeralContainerStatuses {
			out += fmt.Sprintf("%s %d %v", c.Name, c.RestartCount, c.State.Running != nil)
		}
		return out
	}
	if err := n.podIs("debugged", runs, "look 0 true"); err != nil {
		return err
	}
	return n.debuggedIsReady()
}

func (n *faultNode) deleteDebugged() error {
	_, err := n.tryKubectl("", "delete", "pod", "debugged", "--ignore-not-found", "--wait=false")
	return err
}

func (n *faultNode) debuggedIsGone() error {
	if err := n.podIs("debugged", func(p *v1.Pod) string { return p.Name }, ""); err != nil {
		return err
	}
	return n.nothingLeft()
}

// changes are the verbs that change something in the runtime.
var changes = []string{
	"RunPodSandbox", "CreateContainer", "StartContainer", "ExecSync",
	"StopContainer", "StopPodSandbox", "RemoveContainer", "RemovePodSandbox",
}

// A faultNode is a node whose runtime is reached through a proxy, and the pod
// "all" on it.
type faultNode struct {
	*node
	in    *instance.Instance
	proxy *faultpoint.Proxy
	cri   runtimeapi.RuntimeServiceClient // past the proxy
	out   string                          // where the preStop hook writes
	port  int                             // the host's, of the pod "all"
}

// startFaultNode returns a node that is ready, behind a proxy.
func startFaultNode(t *testing.T) *faultNode {
	t.Helper()
	return startNode(t).behindProxy()
}

// behindProxy puts the proxy into the place of containerd's socket: a socket
// that was renamed is still listened at. The agent meets it at its next start.
func (n *node) behindProxy() *faultNode {
	n.t.Helper()
	t := n.t
	in, err := instance.Open(n.root)
	if err != nil {
		t.Fatal(err)
	}
	kill(t, leaks.Agent(in))
	socket, behind := in.Run("containerd.sock"), in.Run("behind.sock")
	if err := os.Rename(socket, behind); err != nil {
		t.Fatal(err)
	}
	proxy := faultpoint.New(socket, behind)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- proxy.Run(ctx, func() { close(ready) }) }()
	<-ready
	conn, err := cri.Dial(behind)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-ended, conn.Close(), os.Rename(behind, socket)); err != nil {
			t.Error(err)
		}
	})
	n.up()
	return &faultNode{node: n, in: in, proxy: proxy, cri: runtimeapi.NewRuntimeServiceClient(conn), out: t.TempDir()}
}

// A phase is a change of a pod and what it has to come to. The change is made
// again where the API was not there to take it.
type phase struct {
	name    string
	change  func(n *faultNode) error
	reached func(n *faultNode) error
}

// A subject is a pod with the phases of its life.
type subject struct {
	name   string
	phases []phase
}

var subjects = []subject{
	{"a pod of the folder", []phase{staticPhase("start", "v1"), staticPhase("update", "v2"), staticPhase("delete", "")}},
	{"a pod of the API", []phase{
		{"create", (*faultNode).createDebugged, (*faultNode).debuggedIsReady},
		{"debug", (*faultNode).debug, (*faultNode).debuggerRuns},
		{"delete", (*faultNode).deleteDebugged, (*faultNode).debuggedIsGone},
	}},
}

// staticPhase is a change of the pod's file; the empty version removes it.
func staticPhase(name, version string) phase {
	return phase{
		name,
		func(n *faultNode) error {
			if version == "" {
				n.remove("all.yaml")
			} else {
				n.write("all.yaml", fmt.Sprintf(everything, version, n.out, n.port))
			}
			return nil
		},
		func(n *faultNode) error { return n.versionIs(version) },
	}
}

// versionIs returns nil when the pod of the folder is as a version wants it.
func (n *faultNode) versionIs(version string) error {
	n.t.Helper()
	want := version + " true"
	if version == "" {
		want = ""
	}
	show := func(p *v1.Pod) string {
		return fmt.Sprint(p.Spec.Containers[0].Env[0].Value, " ", podutil.IsPodReady(p))
	}
	if err := n.podIs("all-edge-1", show, want); err != nil {
		return err
	}
	if version != "" {
		page, err := fetch(n.t, fmt.Sprintf("http://127.0.0.1:%d/", n.port))
		if err := errors.Join(err, wants(page, "hello from all")); err != nil {
			return err
		}
	}
	return n.nothingLeft()
}

// podIs returns nil if what show says of a pod is as wanted; of a pod that is not
// there, nothing.
func (n *faultNode) podIs(name string, show func(*v1.Pod) string, want string) error {
	n.t.Helper()
	pod, err := n.tryPod(name)
	if err != nil {
		return err
	}
	got := ""
	if pod != nil {
		got = show(pod)
	}
	if got != want {
		return fmt.Errorf("the pod is %q, want %q", got, want)
	}
	return nil
}

func (n *faultNode) nothingLeft() error {
	n.t.Helper()
	left, err := n.left()
	if err == nil && len(left) > 0 {
		err = errors.New("left: " + strings.Join(left, "\n"))
	}
	return err
}

// lasting returns the IDs of containers that run and are meant to go on, by the
// UID of their pod.
func (n *faultNode) lasting() map[string][]string {
	n.t.Helper()
	list, err := n.cri.ListContainers(n.t.Context(), &runtimeapi.ListContainersRequest{
		Filter: &runtimeapi.ContainerFilter{State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}},
	})
	if err != nil {
		n.t.Fatal(err)
	}
	byPod := map[string][]string{}
	for _, c := range list.GetContainers() {
		if c.GetMetadata().GetName() != "first" {
			uid := c.GetLabels()["io.kubernetes.pod.uid"]
			byPod[uid] = append(byPod[uid], c.GetMetadata().GetName()+" "+c.GetId())
		}
	}
	return byPod
}

// unharmed fails the test if a container that ran before does not go on,
// although its pod does.
func (n *faultNode) unharmed(before map[string][]string) {
	n.t.Helper()
	for uid, now := range n.lasting() {
		for _, c := range before[uid] {
			if !slices.Contains(now, c) {
				n.t.Errorf("container %s of pod %s ran and was replaced: now %v", c, uid, now)
			}
		}
	}
}

// A point is where the agent dies: before, during or after a change number call
// (from 1) of a phase, or, if there is none, some time after the phase began.
type point struct {
	call int
	when string
	time time.Duration
}

func (p point) String() string {
	if p.call > 0 {
		return fmt.Sprintf("%s call %d", p.when, p.call)
	}
	return fmt.Sprintf("after %v", p.time)
}

// plan kills the agent at a point. fired gets the verb at which it did.
func (p point) plan(agent int, calls *atomic.Int64, fired chan<- string) faultpoint.Plan {
	return func(c faultpoint.Call) faultpoint.Fault {
		if !slices.Contains(changes, c.Verb) || calls.Add(1) != int64(p.call) {
			return faultpoint.Fault{}
		}
		die := func() {
			_ = syscall.Kill(agent, syscall.SIGKILL) // it may have died
			for alive(agent) {
			}
			fired <- c.Verb
		}
		switch p.when {
		case "before":
			// What was not sent never is, though whoever asked is dead.
			return faultpoint.Fault{Before: die, Fail: status.Error(codes.Canceled, "the agent died")}
		case "during":
			return faultpoint.Fault{During: func() { time.Sleep(p.time); die() }}
		default:
			return faultpoint.Fault{After: die}
		}
	}
}

// dies goes through a phase with the agent killed at a point, and started again.
// It returns the number of changes, for a point that is none.
func (n *faultNode) dies(ph phase, p point) int {
	n.t.Helper()
	var calls atomic.Int64
	fired := make(chan string, 1)
	n.proxy.Set(p.plan(leaks.Agent(n.in), &calls, fired))
	refused := ph.change(n)
	if p.call == 0 && p.time > 0 {
		time.Sleep(p.time)
		kill(n.t, leaks.Agent(n.in))
		fired <- "no verb"
	}
	reached := func() error {
		if refused != nil { // the agent died with the request in its hands
			if refused = ph.change(n); refused != nil {
				return refused
			}
		}
		return ph.reached(n)
	}
	n.eventually(ph.name, func() error {
		select {
		case verb := <-fired:
			n.t.Logf("%s: died %v, %s", ph.name, p, verb)
			n.proxy.Set(func(faultpoint.Call) faultpoint.Fault { return faultpoint.Fault{} })
			before := n.lasting()
			n.up()
			n.eventually(ph.name+", died "+p.String(), reached)
			n.unharmed(before)
			return nil
		default:
			return reached()
		}
	})
	return int(calls.Load())
}

// seeded returns a source of chance whose seed is logged. HOLDFAST_SEED repeats
// what a seed did.
func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed, err := strconv.ParseUint(os.Getenv("HOLDFAST_SEED"), 10, 64)
	if err != nil {
		seed = rand.Uint64() //nolint:gosec // no secret
	}
	t.Logf("HOLDFAST_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // no secret
}

// TestAgentDiesAnywhere kills the agent between any two steps of the start, an
// update and the end of a pod. Whatever it was doing, the next one gets to what
// is wanted, leaves nothing, and does not touch what already runs.
//
// It takes some points by chance; with HOLDFAST_FAULTS=all, every one.
func TestAgentDiesAnywhere(t *testing.T) {
	t.Parallel()
	n := startFaultNode(t)
	n.port = 18072
	random := seeded(t)
	for _, sub := range subjects {
		step(t, sub.name, func(t *testing.T) {
			n.t = t
			n.diesAnywhere(sub, random)
		})
	}
	n.t = t
}

func (n *faultNode) diesAnywhere(sub subject, random *rand.Rand) {
	n.t.Helper()
	calls, most := map[string]int{}, 0
	for _, ph := range sub.phases {
		count := n.dies(ph, point{})
		calls[ph.name], most = count, max(most, count)
		if count == 0 {
			n.t.Fatalf("%s: no call went through the proxy", ph.name)
		}
		if note, _ := os.ReadFile(filepath.Join(n.out, "note")); ph.name == "update" && string(note) != "v1\n" {
			n.t.Errorf("the hook of the first version wrote %q", note)
		}
	}
	n.t.Logf("calls that change something: %v", calls)

	chance := func(limit time.Duration) time.Duration { return time.Duration(random.Int64N(int64(limit))) }
	if os.Getenv("HOLDFAST_FAULTS") != "all" {
		for range 3 {
			for _, ph := range sub.phases {
				p := point{call: 1 + random.IntN(calls[ph.name]), when: []string{"before", "during", "after"}[random.IntN(3)], time: chance(50 * time.Millisecond)}
				if random.IntN(4) == 0 { // files, mounts, the store: between calls
					p = point{time: chance(time.Second)}
				}
				n.dies(ph, p)
			}
		}
		return
	}
	for call := 1; call <= most; call++ {
		for _, when := range []string{"before", "during", "after"} {
			for _, ph := range sub.phases {
				n.dies(ph, point{call: call, when: when, time: chance(50 * time.Millisecond)})
			}
		}
		for _, ph := range sub.phases {
			n.dies(ph, point{time: chance(2 * time.Second)})
		}
	}
}

// TestBadRuntime lets a good part of the calls fail, wait, come twice or lose
// their answers, and of the events as well. The pod gets there all the same.
func TestBadRuntime(t *testing.T) {
	t.Parallel()
	n := startFaultNode(t)
	n.port = 18073
	random := seeded(t)
	var mu sync.Mutex // guards random: calls ask at the same time
	bad := func(c faultpoint.Call) faultpoint.Fault {
		if !c.Stream && !slices.Contains(changes, c.Verb) {
			return faultpoint.Fault{}
		}
		mu.Lock()
		defer mu.Unlock()
		return []faultpoint.Fault{
			{Fail: status.Error(codes.Unavailable, "not now")},
			{Lose: true},
			{Twice: true},
			{Delay: time.Duration(random.Int64N(int64(time.Second)))},
			{},
			{},
			{},
			{},
			{},
			{},
			{},
			{},
		}[random.IntN(12)]
	}
	for _, ph := range subjects[0].phases {
		n.proxy.Set(bad)
		if err := ph.change(n); err != nil {
			t.Fatal(err)
		}
		n.eventually(ph.name, func() error { return ph.reached(n) })
	}
}
