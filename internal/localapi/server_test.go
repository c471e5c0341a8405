package localapi

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// patience is how long a test waits for what must come. It bounds a hang; no
// test passes or fails by how long something took.
const patience = 3 * time.Minute

// start runs a server until the test ends.
func start(t *testing.T, change func(*Config)) *Server {
	t.Helper()
	cfg := testConfig(t.TempDir(), testLog)
	if change != nil {
		change(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background()) // t.Context ends before Cleanup
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-s.Ready():
	case err := <-done:
		t.Fatal("ended early: ", err)
	}
	return s
}

func clientFor(t *testing.T, cfg *rest.Config) *kubernetes.Clientset {
	t.Helper()
	c := rest.CopyConfig(cfg)
	c.QPS = -1
	client, err := kubernetes.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// eventually waits until check says yes. An object that is not there yet is
// no failure.
func eventually(t *testing.T, what string, check func(context.Context) (bool, error)) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		ok, err := check(ctx)
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return ok, err
	})
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// newNamespace makes a namespace for one test, with its service account.
func newNamespace(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func testPod(namespace, name string, change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "holdfast.local/demo"}}},
	}
	if change != nil {
		change(p)
	}
	return p
}

func createPod(t *testing.T, client kubernetes.Interface, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	created, err := client.CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return created
}

// createNode registers the node as its kubelet does.
func createNode(t *testing.T, s *Server) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1", Labels: map[string]string{corev1.LabelHostname: "node1"}}}
	_, err := clientFor(t, s.KubeletConfig()).CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// The tests of one server share it: starting one is most of their time.
func TestAPI(t *testing.T) {
	s := start(t, nil)
	createNode(t, s)
	for _, tc := range []struct {
		name string
		run  func(*testing.T, *Server)
	}{
		{"objects", testObjects},
		{"watch", testWatch},
		{"apply", testApply},
		{"table", testTable},
		{"version", testVersion},
		{"openapi", testOpenAPI},
		{"default objects", testDefaultObjects},
		{"aggregated roles", testAggregatedRoles},
		{"namespace", testNamespace},
		{"owners", testOwners},
		{"service", testService},
		{"refused kinds", testRefusedKinds},
		{"eviction", testEviction},
		{"anonymous", testAnonymous},
		{"token", testToken},
		{"token of a pod", testPodToken},
		{"kubelet's rights", testKubeletRights},
		{"mirror pods", testMirrorPods},
		{"privileged", testPrivileged},
		{"binding", testBinding},
		{"runtime classes", testRuntimeClasses},
		{"claims", testClaims},
		{"pods' own claims", testOwnClaims},
		{"trust bundles", testTrustBundles},
		{"events expire", testEventsExpire},
		{"logs", testLogs},
		{"second listener", testSecondListener},
		{"kubectl", testKubectl},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tc.run(t, s)
		})
	}
}
