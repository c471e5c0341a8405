package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/holdfast-dev/holdfast/internal/instance"
	"github.com/holdfast-dev/holdfast/internal/kubelet/cri"
	"github.com/holdfast-dev/holdfast/internal/kubelet/runtimelabels"
	"github.com/holdfast-dev/holdfast/internal/mounttree"
	"github.com/holdfast-dev/holdfast/internal/ociimage"
	"github.com/holdfast-dev/holdfast/internal/testenv"
	"github.com/holdfast-dev/holdfast/test/controlplane"
	"github.com/holdfast-dev/holdfast/test/leaks"
)

// configuration is a node's file. What is missing has upstream's defaults.
const configuration = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix://%[1]s
cgroupRoot: %[2]s
failCgroupV1: false
staticPodPath: %[3]s
podLogsDir: %[4]s
tlsCertFile: %[5]s
tlsPrivateKeyFile: %[6]s
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: %[7]s}
authorization: {mode: Webhook}
clusterDomain: cluster.local
clusterDNS: [10.96.0.10]
# Disks of machines that test are full.
evictionHard: {memory.available: 20Mi}
imageGCHighThresholdPercent: 100
nodeLeaseDurationSeconds: 20
`

// A machine is one node's: a network namespace with the node's address, a private
// containerd and the agent.
type machine struct {
	t       testing.TB
	name    string
	netns   string
	address netip.Addr
	in      *instance.Instance
	program []string // the agent's, with its flags

	runtime, agent *process // nil: it does not run
}

// A process is one that the test started.
type process struct {
	cmd   *exec.Cmd
	stdin io.Closer
	done  chan struct{} // closed once it has ended
	err   error         // how; after done
}

// newMachine makes a machine that runs nothing but containerd, until t ends. Its agent
// is program.
func newMachine(t testing.TB, plane *controlplane.Test, name string, net *network, program ...string) *machine {
	t.Helper()
	m := &machine{t: t, name: name}
	var pods netip.Prefix
	m.netns, m.address, pods = net.join(t)
	root := filepath.Join(t.TempDir(), "root")
	var err error
	m.in, err = instance.OpenOrCreate(root, func() (netip.Prefix, error) { return pods, nil })
	m.must("make the machine", err)
	for _, dir := range []string{m.staticPods(), m.logs()} {
		m.must("make the machine's folders", os.MkdirAll(dir, 0o755))
	}
	t.Cleanup(m.remove)
	m.runtime = m.start("runtime.log", m.runtimeEnv(false), os.Args[0])
	kubeconfig := plane.NodeKubeconfig(name)
	cert, key, err := plane.Serving("kubelet-"+name, "system:node:"+name, name, m.address.String())
	m.must("certificate of the node", err)
	config := m.in.Path("kubelet.yaml")
	m.must("configuration of the node", os.WriteFile(config, fmt.Appendf(nil, configuration,
		m.in.Run("containerd.sock"), m.in.CgroupParent(), m.staticPods(), m.logs(), cert, key, plane.CAFile()), 0o600))
	m.program = slices.Concat(program, []string{
		"--config", config, "--kubeconfig", kubeconfig, "--hostname-override", name, "--node-ip", m.address.String(),
		"--root-dir", m.in.Path("kubelet"), "--v=4",
	})
	return m
}

func (m *machine) staticPods() string { return m.in.Path("manifests") }
func (m *machine) logs() string       { return m.in.Path("logs", "pods") }

// folder is one that the test shares with a pod.
func (m *machine) folder() string { return m.in.Path("shared") }

// startAgent starts the agent. It does not wait for it.
func (m *machine) startAgent() {
	m.t.Helper()
	m.agent = m.start("agent.log", nil, m.program[0], m.program[1:]...)
}

// killAgent ends the agent as a crash does; its pods go on.
func (m *machine) killAgent() {
	m.t.Helper()
	_ = m.agent.cmd.Process.Kill()
	<-m.agent.done
	m.agent = nil
}

func (m *machine) runtimeEnv(remove bool) []string {
	text, err := json.Marshal(runtimeConfig{Root: m.in.Root, RuntimeDir: testenv.RuntimeDir(m.t), Remove: remove})
	m.must("configuration of the runtime", err)
	return []string{runtimeEnv + "=" + string(text)}
}

// within returns a command that runs in the machine's network namespace.
func (m *machine) within(env []string, program string, args ...string) *exec.Cmd {
	cmd := exec.Command("nsenter", append([]string{"--net=/run/netns/" + m.netns, program}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	return cmd
}

func (m *machine) start(log string, env []string, program string, args ...string) *process {
	m.t.Helper()
	file, err := os.OpenFile(m.in.Path(log), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	m.must("log of "+program, err)
	defer file.Close()
	cmd := m.within(env, program, args...)
	cmd.Stdout, cmd.Stderr = file, file
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	m.must("start "+program, err)
	m.must("start "+program, cmd.Start())
	p := &process{cmd: cmd, stdin: stdin, done: make(chan struct{})}
	go func() { // whoever ends the process waits for it
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p
}

// end stops a process as systemd does.
func (m *machine) end(what string, p *process) {
	if p == nil {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended by itself, which the wait tells
	<-p.done
	if p.err != nil {
		m.t.Errorf("%s of %s: %v", what, m.name, p.err)
	}
	_ = p.stdin.Close()
}

// remove takes the whole node off the machine and looks whether it is gone.
func (m *machine) remove() {
	m.end("agent", m.agent)
	m.end("runtime", m.runtime)
	if m.t.Failed() {
		for _, name := range []string{"agent.log", "runtime.log"} {
			log, err := os.ReadFile(m.in.Path(name))
			const most = 24 << 10
			m.t.Logf("%s of %s (%v) ends so:\n%s", name, m.name, err, log[max(0, len(log)-most):])
		}
	}
	if out, err := m.within(m.runtimeEnv(true), os.Args[0]).CombinedOutput(); err != nil {
		m.t.Errorf("remove the runtime of %s: %v: %s", m.name, err, out)
		return
	}
	if err := mounttree.Remove(m.in.Root); err != nil {
		m.t.Errorf("remove %s: %v", m.name, err)
		return
	}
	left, err := leaks.Gone(context.WithoutCancel(m.t.Context()), leaks.Node{Instance: m.in, NetNS: m.netns})
	if err != nil || len(left) > 0 {
		m.t.Errorf("left of %s: %q, %v", m.name, left, err)
	}
}

// containers returns the IDs of what runs, by NAMESPACE/POD/CONTAINER.
func (m *machine) containers(ctx context.Context) (_ map[string]string, err error) {
	conn, err := cri.Dial("unix://" + m.in.Run("containerd.sock"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	answer, err := runtimeapi.NewRuntimeServiceClient(conn).ListContainers(ctx, &runtimeapi.ListContainersRequest{
		Filter: &runtimeapi.ContainerFilter{State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}},
	})
	running := map[string]string{}
	for _, c := range answer.GetContainers() {
		labels := c.GetLabels()
		running[labels[runtimelabels.PodNamespace]+"/"+labels[runtimelabels.PodName]+"/"+c.GetMetadata().GetName()] = c.GetId()
	}
	return running, err
}

// busyboxImage is a shell and tools.
const busyboxImage = "example.test/busybox:1"

// importBusybox gives the machine's runtime busyboxImage.
func (m *machine) importBusybox() {
	m.t.Helper()
	program, err := os.ReadFile("/bin/busybox")
	m.must("read busybox", err)
	files := map[string]ociimage.File{"/tmp": {Mode: os.ModeDir | 0o777}}
	for _, name := range []string{"busybox", "sh", "cat", "sleep", "tar", "test", "ls"} {
		files["/bin/"+name] = ociimage.File{Mode: 0o755, Content: program}
	}
	var archive bytes.Buffer
	_, err = ociimage.Build(&archive, ociimage.Image{Refs: []string{busyboxImage}, Files: files, Cmd: []string{"/bin/sh"}, Env: []string{"PATH=/bin"}})
	m.must("build the image", err)
	m.ctr(&archive, "images", "import", "-")
}

func (m *machine) ctr(stdin io.Reader, args ...string) {
	m.t.Helper()
	cmd := exec.CommandContext(m.t.Context(), filepath.Join(testenv.RuntimeDir(m.t), "ctr"),
		append([]string{"--address", m.in.Run("containerd.sock"), "--namespace", "k8s.io"}, args...)...)
	cmd.Stdin = stdin
	if out, err := cmd.CombinedOutput(); err != nil {
		m.t.Fatalf("ctr %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

func (m *machine) must(what string, err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatalf("%s: %s: %v", m.name, what, err)
	}
}
