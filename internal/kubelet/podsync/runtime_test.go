package podsync

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/cri"
	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podcgroup"
	"github.com/holdfast-dev/holdfast/internal/podnet"
	"github.com/holdfast-dev/holdfast/internal/runtimehost"
	"github.com/holdfast-dev/holdfast/internal/testenv"
)

const demoImage = "holdfast.local/demo:latest"

// startRuntime starts the private containerd until the test ends.
func startRuntime(t *testing.T) (rt *cri.Runtime, cgroups *podcgroup.Manager) {
	t.Helper()
	testenv.Need(t, "root", "iptables", "runtime")
	used, err := podnet.UsedSubnets("")
	if err != nil {
		t.Fatal(err)
	}
	subnet, err := podnet.FreeSubnet(used)
	if err != nil {
		t.Fatal(err)
	}
	const id, parent = "podsync", "/holdfast-podsync"
	host := runtimehost.New(runtimehost.Config{
		RootDir: filepath.Join(t.TempDir(), "root"), RunDir: "/run/holdfast-test/" + id, InstanceID: id,
		RuntimeDir: testenv.RuntimeDir(t), Bridge: "hf-" + id, Subnet: subnet, CgroupParent: parent,
		Log: slog.New(slog.DiscardHandler),
	})
	t.Cleanup(func() {
		if _, err := host.Remove(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("clean-up: %v", err)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- host.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("containerd: %v", err)
		}
	})
	select {
	case <-host.Ready():
	case err := <-ended:
		ended <- err
		t.Fatalf("containerd: %v", err)
	}
	conn, err := cri.Dial(host.Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	cgroups, err = podcgroup.New(podcgroup.Config{Parent: parent})
	if err != nil {
		t.Fatal(err)
	}
	return cri.New(conn, cri.Config{}), cgroups
}

// TestRealRuntime holds with a real runtime, and real cgroups, what the fake
// cannot show: that it takes the configurations, and what a program in a
// container sees.
func TestRealRuntime(t *testing.T) {
	rt, groups := startRuntime(t)
	newReal := func(t *testing.T, name string, args ...string) *world {
		w := newWorld(t, func(c *Config) { c.Runtime, c.Cgroups = rt, groups })
		w.runtime = rt
		w.pod.Name, w.pod.UID = name, types.UID("uid-"+name)
		w.main().Image, w.main().Args = demoImage, args
		w.main().ImagePullPolicy = v1.PullIfNotPresent
		t.Cleanup(func() {
			ctx := context.WithoutCancel(t.Context())
			if err := w.SyncOrphan(ctx, observed.Pod{UID: w.pod.UID, Name: w.pod.Name, Namespace: w.pod.Namespace}); err != nil {
				t.Errorf("clean-up: %v", err)
			}
		})
		return w
	}

	t.Run("environment and files", func(t *testing.T) {
		w := newReal(t, "files", "sleep", "1h")
		volume := t.TempDir()
		if err := os.WriteFile(filepath.Join(volume, "key"), []byte("from a volume"), 0o644); err != nil {
			t.Fatal(err)
		}
		w.paths["v"] = volume
		c := w.main()
		c.VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: "/v"}, {Name: "v", MountPath: "/key", SubPath: "key", ReadOnly: true}}
		c.Env = []v1.EnvVar{{Name: "IP", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "status.podIP"}}}}
		c.Resources.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse("64Mi"), v1.ResourceCPU: resource.MustParse("500m")}
		c.SecurityContext = &v1.SecurityContext{
			RunAsUser: new(int64(1000)), RunAsNonRoot: new(true), AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
			Capabilities: &v1.Capabilities{Drop: []v1.Capability{"ALL"}}, SeccompProfile: &v1.SeccompProfile{Type: v1.SeccompProfileTypeRuntimeDefault},
		}
		w.pod.Spec.HostAliases = []v1.HostAlias{{IP: "192.0.2.7", Hostnames: []string{"friend"}}}
		w.pod.Spec.SecurityContext = &v1.PodSecurityContext{Sysctls: []v1.Sysctl{{Name: "net.ipv4.ip_unprivileged_port_start", Value: "80"}}}
		w.mustSync()
		w.wantRunning("main")
		id := w.newest("main").ID
		for _, test := range []struct {
			cmd  []string
			want string
		}{
			{[]string{"/demo", "cat", "/key"}, "from a volume"},
			{[]string{"/demo", "cat", "/etc/hosts"}, w.inspect().IPs[0] + "\tfiles\n\n# Entries added by HostAliases.\n192.0.2.7\tfriend\n"},
			{[]string{"/demo", "env"}, "IP=" + w.inspect().IPs[0]},
			{[]string{"/demo", "cat", "/proc/sys/net/ipv4/ip_unprivileged_port_start"}, "80"},
			{[]string{"/demo", "cat", "/proc/self/status"}, "NoNewPrivs:\t1"},
			{[]string{"/demo", "cat", "/proc/self/status"}, "Uid:\t1000\t1000"},
		} {
			stdout, stderr, code, err := rt.ExecSync(t.Context(), id, test.cmd, 10*time.Second)
			if err != nil || code != 0 || !strings.Contains(string(stdout), test.want) {
				t.Errorf("%q: got %d %v, want %q in:\n%s%s", test.cmd, code, err, test.want, stdout, stderr)
			}
		}
	})

	t.Run("an image as a volume", func(t *testing.T) {
		w := newReal(t, "image", "sleep", "1h")
		w.pod.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: demoImage, PullPolicy: v1.PullIfNotPresent}}}}
		w.main().VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: "/image"}}
		w.mustSync()
		w.wantRunning("main")
		id := w.newest("main").ID
		stdout, stderr, code, err := rt.ExecSync(t.Context(), id, []string{"/demo", "cat", "/proc/mounts"}, 10*time.Second)
		if err != nil || code != 0 || !regexp.MustCompile(`(?m)^overlay /image overlay ro,`).Match(stdout) {
			t.Errorf("got %d %v, no read-only /image in:\n%s%s", code, err, stdout, stderr)
		}
		if _, stderr, code, err := rt.ExecSync(t.Context(), id, []string{"/demo", "cat", "/image/demo"}, 10*time.Second); err != nil || code != 0 {
			t.Errorf("the image's program cannot be read: %d %v %s", code, err, stderr)
		}
	})

	t.Run("last words, exit code and restart", func(t *testing.T) {
		w := newReal(t, "words", "write", "/dev/termination-log", "farewell")
		w.pod.Spec.RestartPolicy = v1.RestartPolicyOnFailure
		w.mustSync()
		w.await(func(st *observed.Status) bool { return st.Container("main").State == observed.Exited })
		if got := w.newest("main"); got.ExitCode != 0 || got.Message != "farewell\n" {
			t.Errorf("got exit code %d, message %q, want 0 and \"farewell\\n\"", got.ExitCode, got.Message)
		}
		w.main().Args = []string{"exit", "3"}
		w.pod.Spec.RestartPolicy = v1.RestartPolicyAlways
		w.mustSync()
		w.await(func(st *observed.Status) bool {
			c := st.Container("main")
			return c.State == observed.Exited && c.ExitCode == 3 && c.RestartCount == 1
		})
	})

	t.Run("a new process adopts and stops", func(t *testing.T) {
		w := newReal(t, "adopt", "sleep", "1h")
		w.mustSync()
		before := w.newest("main").ID
		w.Syncer = New(w.cfg)
		w.mustSync()
		if got := w.newest("main").ID; got != before {
			t.Errorf("got container %s, want %s", got, before)
		}
		w.pod.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		if err := w.SyncTerminating(t.Context(), w.pod, w.inspect(), new(int64(5))); err != nil {
			t.Fatal(err)
		}
		if err := w.terminated(t.Context(), w.inspect()); err != nil {
			t.Fatal(err)
		}
		if st := w.inspect(); len(st.Containers)+len(st.Sandboxes) > 0 {
			t.Errorf("left: %+v", st)
		}
		uids, err := groups.List()
		if err != nil {
			t.Fatal(err)
		}
		for _, uid := range uids {
			if uid == w.pod.UID {
				t.Error("the cgroup is left")
			}
		}
	})

	t.Run("sidecar, init and the node's network", func(t *testing.T) {
		w := newReal(t, "order", "sleep", "1h")
		w.pod.Spec.HostNetwork = true
		w.pod.Spec.ShareProcessNamespace = new(true)
		w.pod.Spec.InitContainers = []v1.Container{
			{Name: "side", Image: demoImage, Args: []string{"sleep", "1h"}, RestartPolicy: new(v1.ContainerRestartPolicyAlways), ImagePullPolicy: v1.PullIfNotPresent},
			{Name: "first", Image: demoImage, Args: []string{"echo", "hello"}, ImagePullPolicy: v1.PullIfNotPresent},
		}
		for range 100 {
			w.mustSync()
			if w.running() == "main side" {
				break
			}
			<-time.After(20 * time.Millisecond)
		}
		w.wantRunning("main side")
		log, err := os.ReadFile(w.root + "/logs/shop_order_uid-order/first/0.log")
		if err != nil || !strings.Contains(string(log), "stdout F hello") {
			t.Errorf("log of the init container: %v\n%s", err, log)
		}
	})
}

// await waits until the pod's status is as wanted.
func (w *world) await(wanted func(*observed.Status) bool) {
	w.t.Helper()
	for range 500 {
		if wanted(w.inspect()) {
			return
		}
		<-time.After(20 * time.Millisecond)
	}
	w.t.Fatalf("not as wanted: %+v", w.inspect().Containers)
}
