package e2e

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/internal/instance"
	"github.com/holdfast-dev/holdfast/test/leaks"
)

// manyPods is how many pods a node takes by default.
const manyPods = 110

// manyPod is one of them: a network of its own, two mounts, and of each fourth a
// port of the host.
func manyPod(name string, number int) string {
	port := ""
	if number%4 == 0 {
		port = fmt.Sprintf("\n    ports: [{containerPort: 8080, hostPort: %d}]", 18200+number)
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {many: "yes"}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: holdfast.local/demo:latest
    args: [sleep, forever]%s
    volumeMounts: [{name: fast, mountPath: /fast}, {name: config, mountPath: /config}]
  volumes:
  - {name: fast, emptyDir: {medium: Memory, sizeLimit: 64Ki}}
  - {name: config, configMap: {name: many}}
`, name, port)
}

// many are pods that start and end at once: some from the folder, the others
// from the API.
type many struct{ static, api int }

func (m many) start(n *node) {
	n.t.Helper()
	for i := range m.static {
		n.write(fmt.Sprintf("many-%d.yaml", i), manyPod(fmt.Sprintf("many-%d", i), i))
	}
	var list strings.Builder
	for i := range m.api {
		fmt.Fprintf(&list, "%s---\n", manyPod(fmt.Sprintf("api-%d", i), m.static+i))
	}
	if m.api > 0 {
		n.kubectlIn(list.String(), "create", "-f", "-")
	}
}

func (m many) remove(n *node) {
	n.t.Helper()
	for i := range m.static {
		n.remove(fmt.Sprintf("many-%d.yaml", i))
	}
	if m.api > 0 {
		n.kubectl("delete", "pods", "-l", "many=yes", "--wait=false")
	}
}

// pods returns those of them that the API has.
func (m many) pods(n *node) ([]v1.Pod, error) {
	n.t.Helper()
	return n.podsOf(v1.NamespaceDefault, "many=yes")
}

// running returns nil once every one is ready and none was restarted.
func (m many) running(n *node) error {
	pods, err := m.pods(n)
	if err != nil {
		return err
	}
	ready := 0
	for i := range pods {
		p := &pods[i]
		if p.Status.Phase == v1.PodFailed {
			n.t.Fatalf("pod %s: %s: %s", p.Name, p.Status.Reason, p.Status.Message)
		}
		for _, c := range p.Status.ContainerStatuses {
			if c.RestartCount > 0 {
				n.t.Fatalf("pod %s was restarted: %+v", p.Name, c)
			}
			if c.Ready {
				ready++
			}
		}
	}
	if ready != m.static+m.api {
		return fmt.Errorf("%d of %d pods are ready", ready, m.static+m.api)
	}
	return nil
}

// use is what the agent holds that must not grow with the pods that were.
type use struct{ files, goroutines int }

func (n *node) use() (use, error) {
	n.t.Helper()
	in, err := instance.Open(n.root)
	if err != nil {
		return use{}, err
	}
	size, err := leaks.SizeOf(leaks.Agent(in))
	if err != nil {
		return use{}, err
	}
	metrics, err := n.tryKubectl("", "get", "--raw", "/api/v1/nodes/"+n.name+"/proxy/metrics")
	if err != nil {
		return use{}, fmt.Errorf("metrics: %w: %s", err, metrics)
	}
	_, after, _ := strings.Cut(metrics, "\ngo_goroutines ")
	number, _, _ := strings.Cut(after, "\n")
	goroutines, err := strconv.Atoi(number)
	return use{size.Files, goroutines}, err
}

// progresses is eventually for what takes longer than patience on a busy machine:
// it gives up once nothing has changed for so long.
func (n *node) progresses(what string, check func() error) {
	n.t.Helper()
	for said := ""; ; {
		var err error
		stuck := await(func() error {
			if err = check(); err != nil && err.Error() == said {
				return err
			}
			return nil
		})
		if stuck != nil {
			n.t.Fatalf("%s: nothing has changed for %v: %v", what, patience, stuck)
		}
		if err == nil {
			return
		}
		said = err.Error()
	}
}

// cycle starts and ends pods, and says how long each took.
func (m many) cycle(n *node) {
	n.t.Helper()
	begin := time.Now()
	m.start(n)
	n.progresses("all run", func() error { return m.running(n) })
	started := time.Now()
	m.remove(n)
	n.progresses("all are gone", func() error {
		pods, err := m.pods(n)
		if err == nil && len(pods) > 0 {
			err = fmt.Errorf("%d are left", len(pods))
		}
		return err
	})
	n.t.Logf("%+v: ready after %v, gone after %v", m, started.Sub(begin).Round(time.Second), time.Since(started).Round(time.Second))
	n.leaksNothing()
}

// TestManyPods starts as many pods at once as the node takes, and ends them at
// once. With HOLDFAST_FAULTS=all it does so from the folder alone and from the API
// alone, too.
func TestManyPods(t *testing.T) {
	n := startNode(t)
	n.kubectl("create", "configmap", "many", "--from-literal=key=value")
	many{2, 2}.cycle(n) // what is made once is made
	var before use
	n.eventually("what it uses", func() (err error) {
		before, err = n.use()
		return err
	})
	rounds := []many{{manyPods / 2, manyPods - manyPods/2}}
	if os.Getenv("HOLDFAST_FAULTS") == "all" {
		rounds = append(rounds, many{static: manyPods}, many{api: manyPods})
	}
	for _, m := range rounds {
		m.cycle(n)
	}
	const some = 8 // connections and what they need come and go
	n.eventually("it uses no more than before", func() error {
		after, err := n.use()
		if err == nil && (after.files > before.files+some || after.goroutines > before.goroutines+some) {
			err = errors.New("it grows with the pods that were")
		}
		if err != nil {
			return fmt.Errorf("%w: %+v, before %+v", err, after, before)
		}
		return nil
	})
}
