package joined

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-dev/holdfast/internal/atomicfile"
	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// A process is an agent that was started.
type process struct {
	cmd   *exec.Cmd
	stdin io.Closer // its end is the agent's
	done  chan error
}

// StartAgent starts the agent, which must not run. It does not wait for it.
func (n *Node) StartAgent() {
	n.t.Helper()
	if n.life.agent != nil {
		n.t.Fatal("the agent runs already")
	}
	cert, key, err := n.Serving("kubelet-"+n.Name, "system:node:"+n.Name, n.Name, n.Instance.Gateway().String())
	n.must("certificate of the agent", err)
	bootstrap := ""
	if n.Options.Bootstrap {
		bootstrap = n.BootstrapKubeconfig()
	}
	data, err := json.Marshal(agentConfig{
		Bootstrap: bootstrap,
		Name:      n.Name, Root: n.Instance.Root, RuntimeDir: testenv.RuntimeDir(n.t), Kubeconfig: n.kubeconfig,
		Cert: cert, Key: key, ClientCA: n.CAFile(), Options: n.Options,
	})
	n.must("configuration of the agent", err)
	file := n.Instance.Path("joined.json")
	n.must("configuration of the agent", atomicfile.Write(file, data, 0o600))
	log, err := os.OpenFile(n.LogFileOfAgent(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	n.must("log of the agent", err)
	defer log.Close()
	cmd := exec.Command(os.Args[0]) //nolint:noctx // outlives the call
	cmd.Env = append(os.Environ(), agentEnv+"="+file)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	n.must("start the agent", err)
	n.must("start the agent", cmd.Start())
	p := &process{cmd: cmd, stdin: stdin, done: make(chan error, 1)}
	go func() { p.done <- cmd.Wait() }() // endAgent waits for it
	n.life.agent = p
}

// StopAgent ends the agent as SIGTERM does; pods go on.
func (n *Node) StopAgent() {
	n.t.Helper()
	n.must("stop the agent", n.signalAgent(syscall.SIGTERM))
}

// KillAgent ends the agent as a crash does.
func (n *Node) KillAgent() {
	n.t.Helper()
	_ = n.signalAgent(syscall.SIGKILL) // it says that it was killed
}

func (n *Node) signalAgent(sig syscall.Signal) error {
	n.t.Helper()
	if n.life.agent == nil {
		n.t.Fatal("the agent does not run")
	}
	_ = n.life.agent.cmd.Process.Signal(sig) // it may have ended by itself, which the wait tells
	err := <-n.life.agent.done
	_ = n.life.agent.stdin.Close() // nobody reads it any more
	n.life.agent = nil
	return err
}

// endAgent stops the agent if it runs, and shows its log if the test has failed.
func (n *Node) endAgent() {
	if n.life.agent != nil {
		if err := n.signalAgent(syscall.SIGTERM); err != nil {
			n.t.Errorf("agent: %v", err)
		}
	}
	if n.t.Failed() {
		log, err := os.ReadFile(n.LogFileOfAgent())
		const most = 32 << 10
		n.t.Logf("the agent's log (%v) ends so:\n%s", err, log[max(0, len(log)-most):])
	}
}

// AgentPID is the running agent's process.
func (n *Node) AgentPID() int {
	n.t.Helper()
	if n.life.agent == nil {
		n.t.Fatal("the agent does not run")
	}
	return n.life.agent.cmd.Process.Pid
}

// LogFileOfAgent is where the agent writes, in all its lives.
func (n *Node) LogFileOfAgent() string { return n.Instance.Path("agent.log") }

// Report asks the running agent.
func (n *Node) Report(ctx context.Context) (Report, error) {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket(n.Instance))
		},
	}}
	var r Report
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent/", http.NoBody)
	if err != nil {
		return r, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return r, err
	}
	defer resp.Body.Close()
	return r, json.NewDecoder(resp.Body).Decode(&r)
}

// AwaitSynced waits until the agent has taken the pods of every source.
func (n *Node) AwaitSynced() {
	n.t.Helper()
	n.Eventually("the agent has the pods of every source", func(ctx context.Context) (bool, error) {
		r, err := n.Report(ctx)
		return r.Synced, err
	})
}

// AwaitReady waits until the API has the node as ready. What an earlier run of the
// agent said counts until the controllers call the node silent.
func (n *Node) AwaitReady() {
	n.t.Helper()
	n.Eventually("the node is ready", func(ctx context.Context) (bool, error) {
		if n.life.agent == nil {
			return false, fmt.Errorf("the agent does not run")
		}
		node, err := n.Admin.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		for _, c := range node.Status.Conditions {
			if c.Type == v1.NodeReady {
				return c.Status == v1.ConditionTrue && len(node.Spec.Taints) == 0, fmt.Errorf("%s: %s, taints %v", c.Reason, c.Message, node.Spec.Taints)
			}
		}
		return false, fmt.Errorf("no condition %s", v1.NodeReady)
	})
}
