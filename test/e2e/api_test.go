package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// coreAPI returns a client of the node's API, with the administrator's kubeconfig as it
// is now. It is for what a test asks over and over: starting kubectl each time
// would be most of a test's work. Each request has a connection of its own, as the
// node may be another one meanwhile.
func (n *node) coreAPI() (corev1.CoreV1Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(n.root, "admin.kubeconfig"))
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	tls, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	transport := &http.Transport{TLSClientConfig: tls, DisableKeepAlives: true}
	if n.netns != "" {
		transport.DialContext = dialIn("/run/netns/" + n.netns)
	}
	wrapped, err := rest.HTTPWrappersForConfig(config, transport)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	config.QPS = -1 // no limit
	return corev1.NewForConfigAndClient(config, &http.Client{Transport: wrapped, Timeout: patience})
}

// dialIn returns a dialer that connects from a network namespace.
func dialIn(netns string) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
			var file *os.File
			if file, err = os.Open(netns); err != nil {
				return
			}
			defer file.Close()
			if err = unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err == nil {
				conn, err = new(net.Dialer).DialContext(ctx, network, address)
			}
		}()
		<-done
		return conn, err
	}
}

// podsOf returns the pods of a namespace, or of all (metav1.NamespaceAll), that
// have the labels.
func (n *node) podsOf(namespace, labels string) ([]v1.Pod, error) {
	api, err := n.coreAPI()
	if err != nil {
		return nil, err
	}
	ctx, cancel := n.bounded()
	defer cancel()
	list, err := api.Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: labels})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	return list.Items, nil
}

// tryPod returns a pod of the namespace default, or nil if there is none.
func (n *node) tryPod(name string) (*v1.Pod, error) {
	api, err := n.coreAPI()
	if err != nil {
		return nil, err
	}
	ctx, cancel := n.bounded()
	defer cancel()
	pod, err := api.Pods(v1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get pod %s: %w", name, err)
	}
	return pod, nil
}

// pod is tryPod for an API that must answer.
func (n *node) pod(name string) *v1.Pod {
	n.t.Helper()
	pod, err := n.tryPod(name)
	if err != nil {
		n.t.Fatal(err)
	}
	return pod
}

// bounded returns a context that ends with patience, and not with the test: its
// clean-up asks too.
func (n *node) bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(n.t.Context()), patience)
}

// await calls check until it returns no error, for patience at most, and returns its
// last one. A check that costs much is made less often, so that waiting leaves the
// machine to the node.
func await(check func() error) error {
	for deadline := time.Now().Add(patience); ; {
		began := time.Now()
		err := check()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(max(50*time.Millisecond, min(2*time.Since(began), time.Second)))
	}
}
