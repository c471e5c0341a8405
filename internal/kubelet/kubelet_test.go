package kubelet_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/holdfast-dev/holdfast/internal/kubelet"
	"github.com/holdfast-dev/holdfast/internal/kubelet/cri"
	"github.com/holdfast-dev/holdfast/internal/kubelet/cri/crifake"
	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podcgroup"
	"github.com/holdfast-dev/holdfast/internal/manifest"
	"github.com/holdfast-dev/holdfast/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const cgroupParent = "/holdfast-test-kubelet"

const webPod = `apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - name: web
    image: demo:1
    volumeMounts: [{name: scratch, mountPath: /scratch}]
  volumes: [{name: scratch, emptyDir: {}}]
`

// TestWholeKubelet runs the wired agent on a runtime and an API in memory: a
// static pod is started, kept over a restart of the agent, and stopped.
func TestWholeKubelet(t *testing.T) {
	testenv.Need(t, "root") // cgroups
	runtime := crifake.Start(t)
	runtime.AddImage("demo:1")
	runtime.SetEvents(true)
	socket := filepath.Join(t.TempDir(), "cri.sock")
	runtime.Listen(t, socket)
	api := newAPI()
	dir := t.TempDir()

	first := start(t, dir, socket, api)
	first.SetManifests(parse(t, webPod))
	mirror := waitReady(t, api)
	first.stop()

	second := start(t, dir, socket, api)
	second.SetManifests(parse(t, webPod))
	waitFor(t, func() error {
		if len(second.Pods()) != 1 || second.Pods()[0].Status.Phase != v1.PodRunning {
			return fmt.Errorf("pods: %v", second.Pods())
		}
		return nil
	})
	again := waitReady(t, api)
	if got, want := again.Status.ContainerStatuses[0].ContainerID, mirror.Status.ContainerStatuses[0].ContainerID; got != want {
		t.Errorf("after a restart of the agent: container %s, want %s", got, want)
	}
	second.stop()

	if err := second.StopPods(t.Context(), func(string) {}); err != nil {
		t.Fatal(err)
	}
	pods, err := cri.New(runtime.Conn(), cri.Config{}).Pods(t.Context())
	if err != nil || len(pods) != 1 {
		t.Fatalf("pods of the runtime: %v, %v", pods, err)
	}
	for _, c := range pods[0].Containers {
		if c.State != observed.Exited {
			t.Errorf("container %s is %s after StopPods", c.Name, c.State)
		}
	}
}

// newAPI returns an API in memory that gives out UIDs, as a server does.
func newAPI() *fake.Clientset {
	api := fake.NewClientset()
	made := 0 // guarded by the API's lock
	api.PrependReactor("create", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if object, ok := a.(clienttesting.CreateAction).GetObject().(metav1.Object); ok && object.GetUID() == "" {
			made++
			object.SetUID(types.UID(fmt.Sprintf("made-%d", made)))
		}
		return false, nil, nil
	})
	return api
}

// An agent is a kubelet that runs.
type agent struct {
	*kubelet.Kubelet
	stop func()
}

func start(t *testing.T, dir, socket string, api *fake.Clientset) *agent {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	k, err := kubelet.New(kubelet.Config{
		NodeName: "n1", Addresses: []netip.Addr{netip.MustParseAddr("127.0.0.1")},
		Dir: dir, LogDir: filepath.Join(dir, "logs"),
		RuntimeEndpoint: "unix://" + socket, CgroupParent: cgroupParent,
		Client: api, AllowAPIReferences: true, Listeners: []net.Listener{listener},
		Certificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, errors.New("nobody connects") },
		Metrics:     prometheus.NewRegistry(), Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- k.Run(ctx) }()
	stopped := false
	stop := func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
	t.Cleanup(func() {
		stop()
		if err := k.Close(); err != nil {
			t.Error(err)
		}
		cgroups, err := podcgroup.New(podcgroup.Config{Parent: cgroupParent, Log: slog.New(slog.DiscardHandler)})
		if err == nil {
			err = cgroups.RemoveAll()
		}
		if err != nil {
			t.Error(err)
		}
	})
	return &agent{k, stop}
}

func parse(t *testing.T, text string) []manifest.Document {
	t.Helper()
	reading := manifest.New().Parse("web.yaml", []byte(text))
	if len(reading.Faults) != 0 {
		t.Fatal(reading.Faults)
	}
	return reading.Documents
}

func waitReady(t *testing.T, api *fake.Clientset) *v1.Pod {
	t.Helper()
	var pod *v1.Pod
	waitFor(t, func() (err error) {
		pod, err = api.CoreV1().Pods("default").Get(t.Context(), "web-n1", metav1.GetOptions{})
		if err == nil && (len(pod.Status.ContainerStatuses) == 0 || !pod.Status.ContainerStatuses[0].Ready) {
			err = fmt.Errorf("status: %+v", pod.Status)
		}
		return err
	})
	return pod
}

// waitFor waits until check returns nil; the bound only ends a broken run.
func waitFor(t *testing.T, check func() error) {
	t.Helper()
	deadline := time.Now().Add(3 * time.Minute)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
