package controlplane

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/holdfast-dev/holdfast/internal/testenv"
	"github.com/holdfast-dev/holdfast/internal/version"
)

// TestCluster is what tests of clusters rely on, on one control plane.
func TestCluster(t *testing.T) {
	testenv.Need(t, "root", "controlplane", "ip")
	space := newNetns(t, 0)
	c := Start(t, Config{Address: space.here})
	admin := c.Admin()

	t.Run("healthy", func(t *testing.T) { testHealthy(t, c.In(t), admin) })
	t.Run("one version", func(t *testing.T) {
		got, err := admin.Discovery().ServerVersion()
		if err != nil || got.GitVersion != version.Kubernetes {
			t.Errorf("version %v, %v; want %s", got, err, version.Kubernetes)
		}
	})
	t.Run("roles", func(t *testing.T) { testRoles(t, c.In(t), admin) })
	t.Run("deployment to bound pods", func(t *testing.T) { testDeployment(t, c.In(t), admin) })
	t.Run("node restriction", func(t *testing.T) { testNodeRestriction(t, c.In(t)) })
	t.Run("a node joins by bootstrap token", func(t *testing.T) { testBootstrap(t, c.In(t)) })
	t.Run("service account tokens", func(t *testing.T) { testTokens(t, c.In(t), admin) })
	t.Run("reached from another network namespace", func(t *testing.T) { testReach(t, c.In(t), admin, space) })
	t.Run("aggregation by endpoints", func(t *testing.T) { testAggregation(t, c.In(t), admin, space) })
}

func testHealthy(t *testing.T, c *Test, admin kubernetes.Interface) {
	for _, path := range []string{"/livez", "/readyz"} {
		body, err := admin.Discovery().RESTClient().Get().AbsPath(path).DoRaw(t.Context())
		if err != nil || string(body) != "ok" {
			t.Errorf("%s: %q, %v", path, body, err)
		}
	}
	for _, name := range components {
		if err := c.waitHealthy(t.Context(), name); err != nil {
			t.Error(err)
		}
	}
}

// testRoles: the bootstrap roles are there, and they are what decides.
func testRoles(t *testing.T, c *Test, admin kubernetes.Interface) {
	for _, role := range []string{"cluster-admin", "view", "system:node", "system:node-bootstrapper", "system:controller:deployment-controller"} {
		if _, err := admin.RbacV1().ClusterRoles().Get(t.Context(), role, metav1.GetOptions{}); err != nil {
			t.Errorf("role %s: %v", role, err)
		}
	}
	kubeconfig, err := c.Client("nobody", "nobody")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Clientset(kubeconfig).CoreV1().Pods("").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a user without a role lists pods: %v, want forbidden", err)
	}
}

// testDeployment: the controller manager makes pods and the scheduler binds them.
func testDeployment(t *testing.T, c *Test, admin kubernetes.Interface) {
	c.Node("worker-1")
	createDeployment(t, admin, "web", 2)
	awaitBound(t, c, admin, "web", 2, "worker-1")
	sets, err := admin.AppsV1().ReplicaSets("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil || len(sets.Items) != 1 {
		t.Errorf("replica sets %v, %v; want one", sets, err)
	}
}

func createDeployment(t *testing.T, admin kubernetes.Interface, name string, replicas int32) {
	t.Helper()
	labels := map[string]string{"app": name}
	_, err := admin.AppsV1().Deployments("default").Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "holdfast.local/demo"}}},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func awaitBound(t *testing.T, c *Test, admin kubernetes.Interface, app string, want int, node string) {
	t.Helper()
	c.Eventually(fmt.Sprintf("%d pods of %s on %s", want, app, node), func(ctx context.Context) (bool, error) {
		pods, err := admin.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=" + app})
		if err != nil {
			return false, err
		}
		bound := 0
		for _, pod := range pods.Items {
			if pod.Spec.NodeName == node {
				bound++
			}
		}
		if bound != want {
			return false, fmt.Errorf("%d of %d pods are bound", bound, len(pods.Items))
		}
		return true, nil
	})
}

func testNodeRestriction(t *testing.T, c *Test) {
	one := c.Clientset(c.Node("restricted-1"))
	c.Node("restricted-2")
	patch := []byte(`{"metadata":{"labels":{"x":"y"}}}`)
	for _, tc := range []struct {
		node  string
		allow bool
	}{{"restricted-1", true}, {"restricted-2", false}} {
		_, err := one.CoreV1().Nodes().Patch(t.Context(), tc.node, "application/merge-patch+json", patch, metav1.PatchOptions{})
		if tc.allow && err != nil || !tc.allow && !apierrors.IsForbidden(err) {
			t.Errorf("the kubelet of restricted-1 changes %s: %v; allowed: %v", tc.node, err, tc.allow)
		}
	}
}

// testBootstrap plays the first minutes of a new kubelet: a request signed for the
// bearer of the token, by which it is a node.
func testBootstrap(t *testing.T, c *Test) {
	who := whoami(t, c.Clientset(c.BootstrapKubeconfig()))
	if !slices.Contains(who.Groups, bootstrappersGroup) {
		t.Errorf("the token's bearer is %+v, not in %s", who, bootstrappersGroup)
	}

	key, csr := nodeRequest(t, "joining-1")
	bootstrap := c.Clientset(c.BootstrapKubeconfig()).CertificatesV1().CertificateSigningRequests()
	made, err := bootstrap.Create(t.Context(), &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "node-csr-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    csr,
			SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.Eventually("the request is signed", func(ctx context.Context) (bool, error) {
		made, err = bootstrap.Get(ctx, made.Name, metav1.GetOptions{})
		return err == nil && len(made.Status.Certificate) > 0, err
	})
	cfg, err := c.Config(c.BootstrapKubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	cfg.BearerToken, cfg.CertData, cfg.KeyData = "", made.Status.Certificate, key
	got := whoami(t, newClient(t, cfg))
	if got.Username != "system:node:joining-1" || !slices.Contains(got.Groups, "system:nodes") {
		t.Errorf("the certificate's bearer is %+v", got)
	}

	cfg.CertData, cfg.KeyData, cfg.BearerToken = nil, nil, "aaaaaa.0123456789abcdef"
	_, err = newClient(t, cfg).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsUnauthorized(err) {
		t.Errorf("a token that nobody made: %v, want unauthorized", err)
	}
}

func newClient(t *testing.T, cfg *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func whoami(t *testing.T, client kubernetes.Interface) authenticationv1.UserInfo {
	t.Helper()
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return review.Status.UserInfo
}

// testTokens: a token is signed, verified by review and by use, and a forged
// one is refused.
func testTokens(t *testing.T, c *Test, admin kubernetes.Interface) {
	request, err := admin.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	token := request.Status.Token
	payload := strings.Split(token, ".")
	for _, tc := range []struct {
		name, token string
		want        bool
	}{
		{"as signed", token, true},
		{"another's payload", payload[0] + "." + payload[1][1:] + "." + payload[2], false},
	} {
		review, err := admin.AuthenticationV1().TokenReviews().Create(t.Context(), &authenticationv1.TokenReview{
			Spec: authenticationv1.TokenReviewSpec{Token: tc.token},
		}, metav1.CreateOptions{})
		if err != nil || review.Status.Authenticated != tc.want {
			t.Errorf("%s: authenticated %v, %v; want %v", tc.name, review.Status.Authenticated, err, tc.want)
		}
	}
	cfg, err := c.Config(c.BootstrapKubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	cfg.BearerToken = token
	if got := whoami(t, newClient(t, cfg)).Username; got != "system:serviceaccount:default:default" {
		t.Errorf("the token's bearer is %q", got)
	}
}

// testReach: a client in another namespace reaches the API by the address, and
// the service "kubernetes" leads there.
func testReach(t *testing.T, c *Test, admin kubernetes.Interface, space netns) {
	cfg, err := c.Config(c.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	cfg.Dial = space.dial
	if got := whoami(t, newClient(t, cfg)).Username; got != "kubernetes-admin" {
		t.Errorf("there we are %q", got)
	}
	slices, err := admin.DiscoveryV1().EndpointSlices("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]discoveryv1.Endpoint{{Addresses: []string{space.here}, Conditions: slices.Endpoints[0].Conditions}}, slices.Endpoints); diff != "" {
		t.Errorf("service kubernetes leads elsewhere (-want +got):\n%s", diff)
	}
}
