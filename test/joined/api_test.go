package joined_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/holdfast-dev/holdfast/internal/kubeletconfig"
	"github.com/holdfast-dev/holdfast/test/joined"
)

// testWhoGetsIn asks the node's own API with the token of a service account: whose
// it is, and what it may, the cluster says.
func testWhoGetsIn(t *testing.T, n *joined.Node) {
	n.Run(joined.Pod("watched")) // its token is in a volume
	token := watcherToken(t, n)
	n.Eventually("the API lets the account see metrics", func(context.Context) (bool, error) {
		code, body, err := askKubelet(t, n, "/metrics", token)
		return code == http.StatusOK && strings.Contains(body, "kubelet_node_name{node="+strconv.Quote(n.Name)+"} 1"), fmt.Errorf("%d %.300s, %w", code, body, err)
	})
	for _, tt := range []struct {
		path, token string
		code        int
		body        string
	}{
		{"/metrics", token, http.StatusOK, "rest_client_requests_total{code=\"200\""},
		{"/metrics", token, http.StatusOK, "volume_manager_total_volumes{plugin_name=\"kubernetes.io/projected\""},
		{"/metrics/resource", token, http.StatusOK, "node_cpu_usage_seconds_total"},
		{"/metrics", "", http.StatusUnauthorized, "Unauthorized"},
		{"/metrics", token + "x", http.StatusUnauthorized, "Unauthorized"},
		{"/healthz", "", http.StatusUnauthorized, "Unauthorized"},
		{"/pods", token, http.StatusForbidden, "Forbidden (user=system:serviceaccount:default:watcher, verb=get, resource=nodes, subresource(s)=[pods proxy])"},
		{"/configz", token, http.StatusForbidden, "subresource(s)=[configz proxy])"},
		{"/logs/", token, http.StatusForbidden, "subresource(s)=[log])"},
		{"/exec/default/none/main", token, http.StatusForbidden, "subresource(s)=[proxy])"},
	} {
		code, body, err := askKubelet(t, n, tt.path, tt.token)
		if err != nil || code != tt.code || !strings.Contains(body, tt.body) {
			t.Errorf("GET %s = %d %.300q, %v, want %d %q", tt.path, code, body, err, tt.code, tt.body)
		}
	}
}

// watcherToken makes a service account that may see the metrics of nodes.
func watcherToken(t *testing.T, n *joined.Node) string {
	t.Helper()
	meta := metav1.ObjectMeta{Name: "watcher"}
	rules := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes/metrics"}, Verbs: []string{"get"}}}
	if _, err := n.Admin.CoreV1().ServiceAccounts("default").Create(t.Context(), &v1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Admin.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: meta.Name, Namespace: "default"}},
	}
	if _, err := n.Admin.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	request, err := n.Admin.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), meta.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
}

// askKubelet asks the node's own API, at the address and port of its Node.
func askKubelet(t *testing.T, n *joined.Node, path, token string) (code int, body string, err error) {
	t.Helper()
	node, err := n.Admin.CoreV1().Nodes().Get(t.Context(), n.Name, metav1.GetOptions{})
	if err != nil {
		return 0, "", err
	}
	at := net.JoinHostPort(node.Status.Addresses[0].Address, strconv.Itoa(int(node.Status.DaemonEndpoints.KubeletEndpoint.Port)))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+at+path, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} // of whom it is has its own test
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(data), err
}

// testStreams runs a command, attaches and forwards a port through the API server,
// by both protocols that its clients speak.
func testStreams(t *testing.T, n *joined.Node) {
	admin, err := n.Config(n.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	n.Run(joined.Pod("served", "serve", "--addr", ":8080"))
	for protocol, dial := range map[string]struct {
		executor func(*url.URL) (remotecommand.Executor, error)
		dialer   func(*url.URL) (httpstream.Dialer, error)
	}{
		"SPDY": {
			func(u *url.URL) (remotecommand.Executor, error) {
				return remotecommand.NewSPDYExecutor(admin, http.MethodPost, u)
			},
			func(u *url.URL) (httpstream.Dialer, error) {
				transport, upgrader, err := spdy.RoundTripperFor(admin)
				return spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, u), err
			},
		},
		"WebSocket": {
			func(u *url.URL) (remotecommand.Executor, error) {
				return remotecommand.NewWebSocketExecutor(admin, http.MethodGet, u.String())
			},
			func(u *url.URL) (httpstream.Dialer, error) {
				return portforward.NewSPDYOverWebsocketDialerForStreaming(u, admin)
			},
		},
	} {
		stream := func(u *url.URL) {
			e, err := dial.executor(u)
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			err = e.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: strings.NewReader("hello"), Stdout: &out})
			if err != nil || out.String() != "hello" {
				t.Errorf("%s %s = %q, %v, want hello", protocol, u.Path, out.String(), err)
			}
		}
		stream(subresource(n, "served", "exec").VersionedParams(&v1.PodExecOptions{
			Container: "main", Stdin: true, Stdout: true, Command: []string{"/demo", "cat", "/dev/stdin"},
		}, scheme.ParameterCodec).URL())

		asks := joined.Pod("asks-"+strings.ToLower(protocol), "cat", "/dev/stdin")
		asks.Spec.RestartPolicy = v1.RestartPolicyNever
		asks.Spec.Containers[0].Stdin, asks.Spec.Containers[0].StdinOnce = true, true
		n.Run(asks)
		stream(subresource(n, asks.Name, "attach").VersionedParams(&v1.PodAttachOptions{
			Container: "main", Stdin: true, Stdout: true,
		}, scheme.ParameterCodec).URL())

		d, err := dial.dialer(subresource(n, "served", "portforward").URL())
		if err != nil {
			t.Fatal(err)
		}
		if got, err := throughPort(t, d); err != nil || got != http.StatusOK {
			t.Errorf("%s: a forwarded port answers %d, %v, want 200", protocol, got, err)
		}
	}
}

func subresource(n *joined.Node, pod, name string) *rest.Request {
	return n.Admin.CoreV1().RESTClient().Post().Resource("pods").Namespace("default").Name(pod).SubResource(name)
}

// throughPort asks a pod's server through a port that is forwarded.
func throughPort(t *testing.T, d httpstream.Dialer) (code int, err error) {
	t.Helper()
	stop, ready := make(chan struct{}), make(chan struct{})
	forwarder, err := portforward.NewOnAddressesForStreaming(d, []string{"127.0.0.1"}, []string{"0:8080"}, stop, ready, io.Discard, io.Discard)
	if err != nil {
		return 0, err
	}
	done := make(chan error, 1)
	go func() { done <- forwarder.ForwardPorts() }()
	select {
	case err := <-done:
		return 0, err
	case <-ready:
	}
	defer func() {
		close(stop)
		err = errors.Join(err, <-done)
	}()
	ports, err := forwarder.GetPorts()
	if err != nil {
		return 0, err
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/healthz", ports[0].Local), http.NoBody)
	if err != nil {
		return 0, err
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

// testConfigz checks that the configuration which a node shows is one that starts
// a node with the same.
func testConfigz(t *testing.T, n *joined.Node) {
	served, err := n.Admin.CoreV1().RESTClient().Get().Resource("nodes").Name(n.Name).SubResource("proxy").Suffix("configz").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var page struct {
		KubeletConfig json.RawMessage
	}
	if err := json.Unmarshal(served, &page); err != nil {
		t.Fatalf("%v in %.300s", err, served)
	}
	file := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(file, page.KubeletConfig, 0o600); err != nil {
		t.Fatal(err)
	}
	loaded, err := kubeletconfig.Load(kubeletconfig.Sources{File: file})
	if err != nil {
		t.Fatalf("what /configz shows is no configuration: %v\n%s", err, page.KubeletConfig)
	}
	loaded.Kubelet.Port = 0 // a test's node has any, which no file can say
	again, err := json.Marshal(loaded.Kubelet)
	if err != nil {
		t.Fatal(err)
	}
	if string(again) != string(page.KubeletConfig) {
		t.Errorf("what /configz shows is not what it becomes:\n%s\n%s", page.KubeletConfig, again)
	}
}
