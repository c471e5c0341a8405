package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

// deaths are pods whose containers end in all the ways that are told apart. None
// asks for an image that the node does not have.
const deaths = `apiVersion: v1
kind: Pod
metadata: {name: oom, labels: {deaths: "yes"}}
spec:
  restartPolicy: Never
  containers:
  - {name: main, image: "holdfast.local/demo:latest", args: [burn, memory, 200Mi], resources: {limits: {memory: 24Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: oom-init, labels: {deaths: "yes"}}
spec:
  restartPolicy: Never
  initContainers:
  - {name: init, image: "holdfast.local/demo:latest", args: [burn, memory, 200Mi], resources: {limits: {memory: 24Mi}}}
  containers:
  - {name: main, image: "holdfast.local/demo:latest", args: [echo, never]}
---
apiVersion: v1
kind: Pod
metadata: {name: oom-sidecar, labels: {deaths: "yes"}}
spec:
  restartPolicy: Never
  initContainers:
  - {name: side, image: "holdfast.local/demo:latest", args: [burn, memory, 200Mi], restartPolicy: Always, resources: {limits: {memory: 24Mi}}}
  containers:
  - {name: main, image: "holdfast.local/demo:latest", args: [sleep, 3s]}
---
apiVersion: v1
kind: Pod
metadata: {name: ends, labels: {deaths: "yes"}}
spec:
  restartPolicy: Never
  containers:
  - {name: code, image: "holdfast.local/demo:latest", args: [exit, "42"]}
  - {name: good, image: "holdfast.local/demo:latest", args: [write, /dev/termination-log, well done]}
  - {name: path, image: "holdfast.local/demo:latest", args: [write, /tmp/words, elsewhere], terminationMessagePath: /tmp/words}
  - {name: log, image: %[1]s, command: [sh, -c, 'echo first; echo last words >&2; exit 3'], terminationMessagePolicy: FallbackToLogsOnError}
  - {name: file-first, image: %[1]s, command: [sh, -c, 'echo log; echo -n file > /dev/termination-log; exit 3'], terminationMessagePolicy: FallbackToLogsOnError}
  - {name: log-good, image: %[1]s, command: [sh, -c, 'echo all is well'], terminationMessagePolicy: FallbackToLogsOnError}
  - {name: file-only, image: %[1]s, command: [sh, -c, 'echo a log; exit 3']}
  - {name: no-program, image: %[1]s, command: [/no/such/program]}
---
apiVersion: v1
kind: Pod
metadata: {name: signals, labels: {deaths: "yes"}}
spec:
  restartPolicy: Never
  shareProcessNamespace: true # process 1 of a namespace ignores signals from within
  containers:
  - {name: segv, image: %[1]s, command: [sh, -c, 'kill -SEGV $$$$']}
  - {name: kill, image: %[1]s, command: [sh, -c, 'kill -KILL $$$$']}
`

// A death is what the API shows of a container's end.
type death struct {
	Code    int32
	Reason  string
	Message string
}

// TestDeaths holds what the API shows of how containers ended: out of memory, by
// exit code or signal, and with which words.
func TestDeaths(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	n.importBusybox()
	n.kubectlIn(fmt.Sprintf(deaths, busyboxImage), "create", "-f", "-")
	oom := death{137, "OOMKilled", ""}
	want := map[string]death{
		"oom/main":         oom,
		"oom-init/init":    oom,
		"oom-sidecar/side": oom,
		"oom-sidecar/main": {0, "Completed", ""},
		"ends/code":        {42, "Error", ""},
		"ends/good":        {0, "Completed", "well done\n"},
		"ends/path":        {0, "Completed", "elsewhere\n"},
		"signals/segv":     {139, "Error", ""},
		"signals/kill":     {137, "Error", ""},
		"ends/log":         {3, "Error", "first\nlast words\n"},
		"ends/file-first":  {3, "Error", "file"},
		"ends/log-good":    {0, "Completed", ""},
		"ends/file-only":   {3, "Error", ""},
		"ends/no-program":  {128, "StartError", "/no/such/program"},
	}
	got := map[string]death{}
	n.eventually("all pods have ended", func() error {
		pods, err := n.podsOf(v1.NamespaceDefault, "deaths=yes")
		if err != nil {
			return err
		}
		clear(got)
		for i := range pods {
			p := &pods[i]
			if p.Status.Phase != v1.PodSucceeded && p.Status.Phase != v1.PodFailed {
				return fmt.Errorf("pod %s is %s", p.Name, p.Status.Phase)
			}
			for _, c := range append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...) {
				end := c.State.Terminated
				if c.Name == "side" && c.LastTerminationState.Terminated != nil { // the last time it may have been stopped
					end = c.LastTerminationState.Terminated
				}
				if end != nil {
					got[p.Name+"/"+c.Name] = death{end.ExitCode, end.Reason, end.Message}
				}
			}
		}
		if len(got) == 0 {
			return errors.New("no pods")
		}
		return nil
	})
	if end, ok := got["ends/no-program"]; ok && strings.Contains(end.Message, "/no/such/program") {
		end.Message = "/no/such/program" // the runtime's own words
		got["ends/no-program"] = end
	}
	if end, ok := got["ends/log"]; ok { // two streams: which is read first is chance
		end.Message = strings.Join(slices.Sorted(strings.Lines(end.Message)), "")
		got["ends/log"] = end
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("ends (-got +want):\n%s", diff)
	}
	for name, phase := range map[string]v1.PodPhase{
		"oom": v1.PodFailed, "oom-init": v1.PodFailed, "oom-sidecar": v1.PodSucceeded, "ends": v1.PodFailed, "signals": v1.PodFailed,
	} {
		if pod := n.pod(name); pod.Status.Phase != phase {
			t.Errorf("pod %s is %s, want %s", name, pod.Status.Phase, phase)
		}
	}
}
