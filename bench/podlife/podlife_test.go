package podlife_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/holdfast-dev/holdfast/bench/page"
	"github.com/holdfast-dev/holdfast/bench/podlife"
	"github.com/holdfast-dev/holdfast/bench/procfs"
	"github.com/holdfast-dev/holdfast/test/joined"
	"github.com/holdfast-dev/holdfast/test/leaks"
)

var (
	upstream = flag.String("upstream", "", "the upstream kubelet's program; empty: ours alone is measured")
	holdfast = flag.String("holdfast", "", "the program holdfast-kubelet, for the footprint")
	out      = flag.String("page", "", "Markdown file to put the table into; empty: none")
)

func TestMain(m *testing.M) { joined.Main(m) }

// BenchmarkPodLife measures our agent and then the upstream kubelet on the same
// control plane, each with a containerd of its own of the same build.
func BenchmarkPodLife(b *testing.B) {
	for range b.N {
		measure(b)
	}
}

func measure(b *testing.B) {
	n := joined.Start(b, joined.Config{Name: "ours"})
	awaitAccount(b, n)
	ours := life(b, n, "Holdfast", n.AgentPID(), n.Instance.Path("kubelet", "pods"))
	var theirs *podlife.Life
	if *upstream != "" {
		n.StopAgent()
		peer := joined.Start(b, joined.Config{Name: "upstream", Beside: n})
		peer.StopAgent()
		pid := startUpstream(b, peer, *upstream).cmd.Process.Pid
		theirs = life(b, peer, "upstream", pid, peer.Instance.Path("upstream", "root", "pods"))
	}
	machine, err := procfs.ReadMachine(runtime.NumCPU())
	check(b, err)
	text := fmt.Sprintf("%s; %s, %d cores; load over a minute, in the end, %s. Repeat with `bench/run podlife`.\n\n%s",
		time.Now().UTC().Format("2006-01-02 15:04 UTC"), machine.CPU, machine.Cores, machine.Load, podlife.Table(ours, theirs))
	fmt.Fprint(os.Stdout, text)
	if *out != "" {
		check(b, page.Replace(*out, "podlife", text))
	}
}

// BenchmarkFootprint measures bin/holdfast-kubelet and then the upstream kubelet, each
// with the same configuration, on a node and a containerd of its own.
func BenchmarkFootprint(b *testing.B) {
	for range b.N {
		head, err := page.Head("footprint", "Figures of single")
		check(b, err)
		n := joined.Start(b, joined.Config{Name: "ours"})
		awaitAccount(b, n)
		n.StopAgent()
		k := startKubelet(b, n, func(*kubeletv1beta1.KubeletConfiguration) {}, *holdfast)
		ours := footprint(b, n, "Holdfast", k)
		check(b, k.stop())
		var theirs *podlife.Footprint
		if *upstream != "" {
			peer := joined.Start(b, joined.Config{Name: "upstream", Beside: n})
			peer.StopAgent()
			theirs = footprint(b, peer, "upstream", startUpstream(b, peer, *upstream))
		}
		text := head + podlife.FootprintTable(ours, theirs)
		fmt.Fprint(os.Stdout, text)
		if *out != "" {
			check(b, page.Replace(*out, "footprint", text))
		}
	}
}

func footprint(b *testing.B, n *joined.Node, what string, k *kubelet) *podlife.Footprint {
	b.Helper()
	f, err := podlife.MeasureFootprint(b.Context(), podlife.Node{
		Name: n.Name, Image: joined.Image, Client: n.Admin, Agent: k.cmd.Process.Pid,
		Say: func(format string, args ...any) { fmt.Fprintf(os.Stderr, what+": "+format+"\n", args...) },
	}, k.stop, k.start)
	check(b, err)
	return f
}

func life(b *testing.B, n *joined.Node, what string, agent int, pods string) *podlife.Life {
	b.Helper()
	l, err := podlife.Measure(b.Context(), podlife.Node{
		Name: n.Name, Image: joined.Image, Client: n.Admin, Agent: agent, Runtime: leaks.Containerd(n.Instance), Pods: pods,
		Requests: func() int { return len(n.Requests("")) },
		Say:      func(format string, args ...any) { fmt.Fprintf(os.Stderr, what+": "+format+"\n", args...) },
	})
	check(b, err)
	return l
}

// awaitAccount waits for the account that every pod of the namespace has.
func awaitAccount(b *testing.B, n *joined.Node) {
	b.Helper()
	n.Eventually("the namespace has its account", func(ctx context.Context) (bool, error) {
		_, err := n.Admin.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err == nil, err
	})
}

// isReady says whether the node says that it is ready.
func isReady(ctx context.Context, n *joined.Node) (bool, error) {
	node, err := n.Admin.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
	if err != nil {
		return false, err
	}
	for _, c := range node.Status.Conditions {
		if c.Type == v1.NodeReady {
			return c.Status == v1.ConditionTrue, fmt.Errorf("%s: %s", c.Status, c.Message)
		}
	}
	return false, fmt.Errorf("no condition %s", v1.NodeReady)
}
