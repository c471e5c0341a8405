package podresources_test

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubelet/pkg/apis/podresources/v1alpha1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podresources"
	"github.com/holdfast-dev/holdfast/internal/kubelet/runtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node has two pods, of which the second has ended.
type node struct{ pods []*v1.Pod }

func newNode() node {
	always := v1.ContainerRestartPolicyAlways
	web := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: v1.PodSpec{
			InitContainers: []v1.Container{{Name: "init"}, {Name: "sidecar", RestartPolicy: &always}},
			Containers:     []v1.Container{{Name: "a"}, {Name: "b"}},
		},
	}
	done := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "done"},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c"}}},
	}
	return node{[]*v1.Pod{web, done}}
}

func (n node) Pods() []*v1.Pod { return n.pods }

func (n node) Active() []*v1.Pod { return n.pods[:1] }

// Devices returns one device for the container b.
func (n node) Devices(_ types.UID, container string) []*podresourcesv1.ContainerDevices {
	if container != "b" {
		return nil
	}
	return n.Allocatable()[:1]
}

func (n node) Allocatable() []*podresourcesv1.ContainerDevices {
	return []*podresourcesv1.ContainerDevices{{ResourceName: "example.com/disk", DeviceIds: []string{"d1"}}, {ResourceName: "example.com/disk", DeviceIds: []string{"d2"}}}
}

func (n node) PodByName(namespace, name string) (*v1.Pod, bool) {
	for _, p := range n.pods {
		if p.Namespace == namespace && p.Name == name {
			return p, true
		}
	}
	return nil, false
}

// start serves the node and returns a connection, once it is served.
func start(t *testing.T) (*grpc.ClientConn, *prometheus.Registry, string) {
	t.Helper()
	n := newNode()
	registry := prometheus.NewRegistry()
	socket := filepath.Join(t.TempDir(), "pod-resources", "kubelet.sock")
	leaveSocket(t, socket)
	s := podresources.New(podresources.Config{
		Socket: socket, Pods: n, Active: n.Active, Devices: n.Devices, Allocatable: n.Allocatable, Metrics: registry, Log: slog.New(slog.DiscardHandler),
	})
	runtest.Start(t, s.Run)
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return conn, registry, socket
}

// leaveSocket leaves a socket as an agent does that is killed.
func leaveSocket(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// describe gives pods as namespace/name: containers.
func describe(pods ...*podresourcesv1.PodResources) []string {
	var all []string
	for _, p := range pods {
		var names []string
		for _, c := range p.GetContainers() {
			names = append(names, c.GetName())
			for _, d := range c.GetDevices() {
				names = append(names, d.GetResourceName()+"="+strings.Join(d.GetDeviceIds(), ","))
			}
		}
		all = append(all, p.GetNamespace()+"/"+p.GetName()+": "+strings.Join(names, " "))
	}
	return all
}

func TestAnswers(t *testing.T) {
	conn, registry, socket := start(t)
	client, ctx := podresourcesv1.NewPodResourcesListerClient(conn), deadline(t)

	list, err := client.List(ctx, &podresourcesv1.ListPodResourcesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := describe(list.GetPodResources()...), []string{"default/web: sidecar a b example.com/disk=d1"}; !slices.Equal(got, want) {
		t.Errorf("List: got %q, want %q", got, want)
	}
	one, err := client.Get(ctx, &podresourcesv1.GetPodResourcesRequest{PodNamespace: "default", PodName: "done"})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := describe(one.GetPodResources()), []string{"default/done: c"}; !slices.Equal(got, want) {
		t.Errorf("Get: got %q, want %q", got, want)
	}
	_, err = client.Get(ctx, &podresourcesv1.GetPodResourcesRequest{PodNamespace: "default", PodName: "none"})
	if got, want := status.Convert(err).Message(), "pod none in namespace default not found"; got != want {
		t.Errorf("Get of an unknown pod: got %q, want %q", got, want)
	}
	free, err := client.GetAllocatableResources(ctx, &podresourcesv1.AllocatableResourcesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if len(free.GetCpuIds())+len(free.GetMemory()) != 0 || len(free.GetDevices()) != 2 {
		t.Errorf("GetAllocatableResources: got %v, want two devices", free)
	}
	old, err := v1alpha1.NewPodResourcesListerClient(conn).List(ctx, &v1alpha1.ListPodResourcesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := len(old.GetPodResources()), 2; got != want {
		t.Errorf("List of v1alpha1: got %d pods, want %d", got, want)
	}
	checkCounts(t, registry)
	info, err := os.Stat(socket)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := info.Mode().Perm(), os.FileMode(0o600); got != want {
		t.Errorf("the socket has mode %v, want %v", got, want)
	}
}

func checkCounts(t *testing.T, registry *prometheus.Registry) {
	t.Helper()
	const want = `
# HELP kubelet_pod_resources_endpoint_errors_get Number of Get requests for pod resources that returned an error by server API version
# TYPE kubelet_pod_resources_endpoint_errors_get counter
kubelet_pod_resources_endpoint_errors_get{server_api_version="v1"} 1
# HELP kubelet_pod_resources_endpoint_requests_get Number of Get requests for pod resources by server API version
# TYPE kubelet_pod_resources_endpoint_requests_get counter
kubelet_pod_resources_endpoint_requests_get{server_api_version="v1"} 2
# HELP kubelet_pod_resources_endpoint_requests_total Cumulative number of requests for pod resources by server API version
# TYPE kubelet_pod_resources_endpoint_requests_total counter
kubelet_pod_resources_endpoint_requests_total{server_api_version="v1"} 4
kubelet_pod_resources_endpoint_requests_total{server_api_version="v1alpha1"} 1
`
	names := []string{"kubelet_pod_resources_endpoint_errors_get", "kubelet_pod_resources_endpoint_requests_get", "kubelet_pod_resources_endpoint_requests_total"}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
}

// Requests that come faster than the limit are refused, not all of them.
func TestLimit(t *testing.T) {
	conn, _, _ := start(t)
	client, ctx := podresourcesv1.NewPodResourcesListerClient(conn), deadline(t)
	var served, refused int
	for refused == 0 && ctx.Err() == nil {
		results := make(chan error)
		for range 200 {
			go func() {
				_, err := client.List(ctx, &podresourcesv1.ListPodResourcesRequest{})
				results <- err
			}()
		}
		for range 200 {
			switch err := <-results; status.Code(err) {
			case codes.OK:
				served++
			case codes.ResourceExhausted:
				refused++
			default:
				t.Fatal(err)
			}
		}
	}
	if served == 0 || refused == 0 {
		t.Errorf("%d requests were served and %d refused, want some of each", served, refused)
	}
}

// A path that is too long for a socket ends nothing.
func TestNoSocket(t *testing.T) {
	n := newNode()
	s := podresources.New(podresources.Config{
		Socket: filepath.Join(t.TempDir(), strings.Repeat("long", 40), "kubelet.sock"), Pods: n, Active: n.Active, Devices: n.Devices, Allocatable: n.Allocatable,
		Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Run(ctx); err != nil {
		t.Errorf("Run: %v", err)
	}
}
