package localapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

func testAnonymous(t *testing.T, s *Server) {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.CACert())
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	defer client.CloseIdleConnections()
	for _, token := range []string{"", "nonsense", "a.b.c"} {
		for _, path := range []string{"/", "/healthz", "/readyz", "/version", "/metrics", "/openapi/v2", "/api/v1/namespaces/default/pods"} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+s.Address()+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			if token != "" {
				req.Header.Set("Authorization", "Bearer "+token)
			}
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusUnauthorized {
				t.Errorf("%s with token %q: %s, want 401", path, token, resp.Status)
			}
		}
	}
}

// requestToken asks for a token of the default service account, which may not
// be there yet.
func requestToken(t *testing.T, client kubernetes.Interface, namespace string, spec authenticationv1.TokenRequestSpec) string {
	t.Helper()
	var token string
	eventually(t, "token", func(ctx context.Context) (bool, error) {
		r, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, "default", &authenticationv1.TokenRequest{Spec: spec}, metav1.CreateOptions{})
		if err != nil {
			return false, err
		}
		token = r.Status.Token
		return true, nil
	})
	return token
}

func tokenConfig(s *Server, token string) *rest.Config {
	return &rest.Config{Host: "https://" + s.Address(), BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: s.CACert()}}
}

func whoAmI(ctx context.Context, client kubernetes.Interface) (string, error) {
	r, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return r.Status.UserInfo.Username, nil
}

// A service account's token says who it is, and RBAC what it may.
func testToken(t *testing.T, s *Server) {
	admin := clientFor(t, s.AdminConfig())
	newNamespace(t, admin, "token")
	token := requestToken(t, admin, "token", authenticationv1.TokenRequestSpec{})
	pod := clientFor(t, tokenConfig(s, token))
	name, err := whoAmI(t.Context(), pod)
	if want := "system:serviceaccount:token:default"; err != nil || name != want {
		t.Fatalf("user %q, %v; want %q", name, err, want)
	}
	if _, err := pod.CoreV1().Pods("token").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Fatalf("list pods without a role: %v, want forbidden", err)
	}
	_, err = admin.RbacV1().RoleBindings("token").Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "view"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "token", Name: "default"}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "list pods with a role", func(ctx context.Context) (bool, error) {
		_, err := pod.CoreV1().Pods("token").List(ctx, metav1.ListOptions{})
		if apierrors.IsForbidden(err) {
			return false, nil
		}
		return err == nil, err
	})
	if _, err := pod.CoreV1().Secrets("token").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("list secrets: %v, want forbidden", err)
	}

	review, err := admin.AuthenticationV1().TokenReviews().Create(t.Context(), &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token},
	}, metav1.CreateOptions{})
	if err != nil || !review.Status.Authenticated {
		t.Errorf("token review: %+v, %v", review, err)
	}
	other := requestToken(t, admin, "token", authenticationv1.TokenRequestSpec{Audiences: []string{"elsewhere"}})
	if _, err := whoAmI(t.Context(), clientFor(t, tokenConfig(s, other))); !apierrors.IsUnauthorized(err) {
		t.Errorf("a token for another audience: %v, want unauthorized", err)
	}
}

// A token that is bound to a pod ends with the pod.
func testPodToken(t *testing.T, s *Server) {
	admin := clientFor(t, s.AdminConfig())
	newNamespace(t, admin, "podtoken")
	pod := createPod(t, admin, testPod("podtoken", "p", nil))
	token := requestToken(t, clientFor(t, s.KubeletConfig()), "podtoken", authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: "p", UID: pod.UID},
	})
	client := clientFor(t, tokenConfig(s, token))
	if _, err := whoAmI(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	if err := admin.CoreV1().Pods("podtoken").Delete(t.Context(), "p", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "token refused", func(ctx context.Context) (bool, error) {
		_, err := whoAmI(ctx, client)
		if apierrors.IsUnauthorized(err) {
			return true, nil
		}
		return false, err
	})
}

// The kubelet may do its work and no more.
func testKubeletRights(t *testing.T, s *Server) {
	kubelet := clientFor(t, s.KubeletConfig())
	if name, err := whoAmI(t.Context(), kubelet); err != nil || name != "system:node:node1" {
		t.Fatalf("user %q, %v", name, err)
	}
	for _, tc := range []struct {
		verb, group, resource, sub string
		want                       bool
	}{
		{"create", "", "nodes", "", true},
		{"patch", "", "nodes", "status", true},
		{"watch", "", "pods", "", true},
		{"create", "", "pods", "", true},
		{"patch", "", "pods", "status", true},
		{"watch", "", "secrets", "", true},
		{"watch", "", "configmaps", "", true},
		{"watch", "", "persistentvolumeclaims", "", true},
		{"watch", "", "persistentvolumes", "", true},
		{"create", "", "serviceaccounts", "token", true},
		{"create", "authentication.k8s.io", "tokenreviews", "", true},
		{"create", "authorization.k8s.io", "subjectaccessreviews", "", true},
		{"update", "coordination.k8s.io", "leases", "", true},
		{"get", "storage.k8s.io", "storageclasses", "", true},
		{"delete", "", "nodes", "", false},
		{"create", "", "secrets", "", false},
		{"delete", "", "namespaces", "", false},
		{"create", "rbac.authorization.k8s.io", "clusterrolebindings", "", false},
	} {
		r, err := kubelet.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: "default", Verb: tc.verb, Group: tc.group, Resource: tc.resource, Subresource: tc.sub,
			}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if r.Status.Allowed != tc.want {
			t.Errorf("%s %s/%s: allowed %v, want %v", tc.verb, tc.resource, tc.sub, r.Status.Allowed, tc.want)
		}
	}
}

// A mirror pod may refer to a service account and a secret if our own kubelet
// made it; for anybody else, another kubelet too, upstream's rule stands.
func testMirrorPods(t *testing.T, s *Server) {
	admin := clientFor(t, s.AdminConfig())
	newNamespace(t, admin, "mirror")
	otherNode, err := s.ClientConfig("other-node", NodeUser("node2"), "system:nodes")
	if err != nil {
		t.Fatal(err)
	}
	mirror := func(name string) *corev1.Pod {
		return testPod("mirror", name, func(p *corev1.Pod) {
			p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "hash"}
			p.Spec.NodeName = "node1"
			p.Spec.ServiceAccountName = "default"
			p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}}}
		})
	}
	got := createPod(t, clientFor(t, s.KubeletConfig()), mirror("ours"))
	if len(got.Spec.Volumes) != 1 || got.Spec.ServiceAccountName != "default" {
		t.Errorf("the mirror pod was changed: %+v", got.Spec)
	}
	for name, cfg := range map[string]*rest.Config{"admin": s.AdminConfig(), "another kubelet": otherNode} {
		_, err := clientFor(t, cfg).CoreV1().Pods("mirror").Create(t.Context(), mirror("theirs"), metav1.CreateOptions{})
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "a mirror pod may not reference") {
			t.Errorf("%s: %v, want forbidden", name, err)
		}
	}
	// The kubelet's own ordinary pods are no exception.
	_, err = clientFor(t, s.KubeletConfig()).CoreV1().Pods("mirror").Create(t.Context(), testPod("mirror", "plain", func(p *corev1.Pod) {
		p.Spec.ServiceAccountName = "absent"
	}), metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("a pod with an account that is not there: %v, want forbidden", err)
	}
}

func testPrivileged(t *testing.T, s *Server) {
	client := clientFor(t, s.AdminConfig())
	newNamespace(t, client, "privileged")
	yes := true
	createPod(t, client, testPod("privileged", "p", func(p *corev1.Pod) {
		p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: &yes}
	}))
}

// A second listener, as on the pods' bridge, serves the same under the same
// certificate.
func testSecondListener(t *testing.T, s *Server) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Serve(ctx, l) }()
	cfg := rest.CopyConfig(s.AdminConfig())
	cfg.Host = "https://" + l.Addr().String()
	if name, err := whoAmI(t.Context(), clientFor(t, cfg)); err != nil || name != "kubernetes-admin" {
		t.Errorf("user %q, %v", name, err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String()); err == nil {
		t.Error("still listening")
	}
}

// The API fetches logs from the kubelet: each proves who it is.
func testLogs(t *testing.T, s *Server) {
	admin := clientFor(t, s.AdminConfig())
	serving, err := s.KubeletServing("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(s.CACert())
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{*serving.TLS()}, ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert,
	})
	if err != nil {
		t.Fatal(err)
	}
	kubelet := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who := r.TLS.PeerCertificates[0].Subject
		if !slices.Contains(who.Organization, "system:masters") {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_, _ = io.WriteString(w, r.URL.Path+" for "+who.CommonName)
	})}
	t.Cleanup(func() { _ = kubelet.Close() })
	go func() { _ = kubelet.Serve(l) }() // ends with Close

	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "logs"}}
	if node, err = admin.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(l.Addr().(*net.TCPAddr).Port)
	if _, err := admin.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	newNamespace(t, admin, "logs")
	createPod(t, admin, testPod("logs", "p", func(p *corev1.Pod) { p.Spec.NodeName = "logs" }))
	got, err := admin.CoreV1().Pods("logs").GetLogs("p", &corev1.PodLogOptions{}).DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if want := "/containerLogs/logs/p/c for kube-apiserver-kubelet-client"; string(got) != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAdminKubeconfig(t *testing.T) {
	s, err := New(testConfig(t.TempDir(), testLog))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	data, err := s.AdminKubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := clientcmd.RESTConfigFromKubeConfig(data)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Host != "https://"+s.Address() || len(cfg.CertData) == 0 || len(cfg.KeyData) == 0 || string(cfg.CAData) != string(s.CACert()) {
		t.Errorf("got %s", cfg)
	}
}
