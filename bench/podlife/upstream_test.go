package podlife_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/holdfast-dev/holdfast/test/joined"
)

// tunables are settings of the kernel that the upstream kubelet changes.
var tunables = []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"}

// linksDir is where it links to containers' logs, whatever its configuration says.
const linksDir = "/var/log/containers"

// A kubelet is upstream's or ours, in place of the agent of a joined node. It reads
// one configuration, whichever it is.
type kubelet struct {
	b       *testing.B
	command []string // program and arguments
	log     *os.File
	cmd     *exec.Cmd // nil: it does not run
}

// startUpstream runs the upstream kubelet in place of the agent of n, which has been
// stopped, on the same container runtime, until b ends. What it changes of the machine
// is undone.
func startUpstream(b *testing.B, n *joined.Node, program string) *kubelet {
	b.Helper()
	for _, name := range tunables {
		keep(b, filepath.Join("/proc/sys", name))
	}
	if _, err := os.Stat(linksDir); errors.Is(err, fs.ErrNotExist) {
		b.Cleanup(func() { check(b, os.RemoveAll(linksDir)) })
	}
	makeCgroup(b, n.Instance.CgroupParent())
	return startKubelet(b, n, func(cfg *kubeletv1beta1.KubeletConfiguration) {
		cfg.FailSwapOn = new(bool)
		cfg.VolumePluginDir = n.Instance.Path("upstream", "volume-plugins")
	}, program)
}

// startKubelet runs a kubelet in place of the agent of n, which has been stopped, until
// b ends.
func startKubelet(b *testing.B, n *joined.Node, edit func(*kubeletv1beta1.KubeletConfiguration), command ...string) *kubelet {
	b.Helper()
	dir := n.Instance.Path("upstream")
	check(b, os.MkdirAll(filepath.Join(dir, "volume-plugins"), 0o755))
	off := false
	cert, key, err := n.Serving("upstream-"+n.Name, "system:node:"+n.Name, n.Name, n.Instance.Gateway().String())
	check(b, err)
	cfg := kubeletv1beta1.KubeletConfiguration{
		TypeMeta:                 metav1.TypeMeta{APIVersion: "kubelet.config.k8s.io/v1beta1", Kind: "KubeletConfiguration"},
		Address:                  n.Instance.Gateway().String(),
		Port:                     freePort(b, n.Instance.Gateway().String()),
		HealthzPort:              new(int32(0)),
		TLSCertFile:              cert,
		TLSPrivateKeyFile:        key,
		CgroupDriver:             "cgroupfs",
		CgroupRoot:               n.Instance.CgroupParent(),
		FailCgroupV1:             &off,
		OOMScoreAdj:              new(int32(0)), // a negative one may be refused
		PodLogsDir:               filepath.Join(dir, "logs"),
		ClusterDomain:            "cluster.local",
		ContainerRuntimeEndpoint: "unix://" + n.Instance.Run("containerd.sock"),
		MakeIPTablesUtilChains:   &off, // the node's own are there
	}
	// A full disk of the machine is not what is measured; 100 turns the image collector off.
	cfg.EvictionHard = map[string]string{"memory.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%"}
	cfg.ImageGCHighThresholdPercent, cfg.ImageGCLowThresholdPercent = new(int32(100)), new(int32(99))
	cfg.Authentication.X509.ClientCAFile = n.CAFile()
	edit(&cfg)
	data, err := json.Marshal(cfg)
	check(b, err)
	file := filepath.Join(dir, "config.yaml")
	check(b, os.WriteFile(file, data, 0o600))
	log, err := os.Create(filepath.Join(dir, "kubelet.log"))
	check(b, err)
	k := &kubelet{b: b, log: log, command: append(command,
		"--config="+file, "--kubeconfig="+n.NodeKubeconfig(n.Name), "--hostname-override="+n.Name,
		"--root-dir="+filepath.Join(dir, "root"), "--cert-dir="+filepath.Join(dir, "pki"), "--node-ip="+n.Instance.Gateway().String())}
	check(b, n.Admin.CoreV1().Nodes().Delete(b.Context(), n.Name, metav1.DeleteOptions{})) // it makes its own
	_, err = k.start()
	check(b, err)
	b.Cleanup(func() {
		check(b, k.stop())
		if b.Failed() {
			text, _ := os.ReadFile(log.Name())
			b.Logf("the log of %s ends so:\n%s", command[0], text[max(0, len(text)-(16<<10)):])
		}
		check(b, log.Close())
	})
	n.Eventually(filepath.Base(command[0])+" is ready", func(ctx context.Context) (bool, error) { return isReady(ctx, n) })
	return k
}

// start starts the process and returns its ID.
func (k *kubelet) start() (pid int, err error) {
	k.cmd = exec.Command(k.command[0], k.command[1:]...)
	k.cmd.Stdout, k.cmd.Stderr = k.log, k.log
	k.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := k.cmd.Start(); err != nil {
		k.cmd = nil
		return 0, err
	}
	return k.cmd.Process.Pid, nil
}

// stop ends the process and waits for that.
func (k *kubelet) stop() error {
	if k.cmd == nil {
		return nil
	}
	err := k.cmd.Process.Signal(syscall.SIGTERM)
	_ = k.cmd.Wait() // it was told to end
	k.cmd = nil
	return err
}

// keep writes a file's content back when b ends.
func keep(b *testing.B, file string) {
	b.Helper()
	old, err := os.ReadFile(file)
	check(b, err)
	b.Cleanup(func() {
		if now, _ := os.ReadFile(file); string(now) != string(old) {
			check(b, os.WriteFile(file, old, 0o600))
		}
	})
}

// makeCgroup makes a cgroup in every hierarchy: upstream wants its root there.
func makeCgroup(b *testing.B, path string) {
	b.Helper()
	hierarchies, err := filepath.Glob("/sys/fs/cgroup/*/cgroup.procs")
	check(b, err)
	for _, h := range hierarchies {
		check(b, os.MkdirAll(filepath.Join(filepath.Dir(h), path), 0o755))
	}
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		data, err := os.ReadFile(filepath.Join("/sys/fs/cgroup/cpuset", file))
		if errors.Is(err, fs.ErrNotExist) {
			continue // cgroup v2
		}
		check(b, err)
		check(b, os.WriteFile(filepath.Join("/sys/fs/cgroup/cpuset", path, file), []byte(strings.TrimSpace(string(data))), 0o600))
	}
}

func freePort(b *testing.B, address string) int32 {
	b.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	check(b, err)
	port := l.Addr().(*net.TCPAddr).Port
	check(b, l.Close())
	return int32(port)
}

func check(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}
