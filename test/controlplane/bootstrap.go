package controlplane

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"

	"github.com/holdfast-dev/holdfast/internal/retry"
)

const (
	bootstrappersGroup = "system:bootstrappers"
	kubeletClientUser  = "kube-apiserver-kubelet-client"
)

// bindings let a new node join, and the API server ask kubelets, as kubeadm's
// clusters do. Upstream has the roles and binds nobody to them.
var bindings = []struct{ name, role, kind, subject string }{
	{"controlplane:bootstrap", "system:node-bootstrapper", rbacv1.GroupKind, bootstrappersGroup},
	{"controlplane:approve-new", "system:certificates.k8s.io:certificatesigningrequests:nodeclient", rbacv1.GroupKind, bootstrappersGroup},
	{"controlplane:approve-renewal", "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", rbacv1.GroupKind, user.NodesGroup},
	{"controlplane:ask-kubelets", "system:kubelet-api-admin", rbacv1.UserKind, kubeletClientUser},
}

// bootstrap makes the objects that joining a node needs, where they are
// missing, and waits for those that the controllers make in every cluster.
func (c *Cluster) bootstrap(ctx context.Context) error {
	cfg, err := c.Config(c.Kubeconfig())
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	for _, b := range bindings {
		_, err := client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: b.name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: b.role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: b.kind, Name: b.subject}},
		}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("bind %s: %w", b.role, err)
		}
	}
	id, secret, _ := strings.Cut(c.token, ".")
	_, err = client.CoreV1().Secrets(metav1.NamespaceSystem).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-" + id},
		Type:       corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{
			"token-id":                       id,
			"token-secret":                   secret,
			"usage-bootstrap-authentication": "true",
		},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("store the bootstrap token: %w", err)
	}
	return c.waitDefaults(ctx, client)
}

// waitDefaults waits until pods can be made in namespace default: they need
// its service account, and their tokens need the authority's ConfigMap.
func (c *Cluster) waitDefaults(ctx context.Context, client kubernetes.Interface) error {
	for {
		_, accountErr := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		_, caErr := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		err := errors.Join(accountErr, caErr)
		if err == nil {
			return nil
		}
		if p := c.process(ControllerManager); p != nil {
			select {
			case <-p.done:
				return fmt.Errorf("%s ended at its start; its log ends so:\n%s", ControllerManager, c.Tail(ControllerManager))
			default:
			}
		}
		if !retry.Sleep(ctx, healthPause) {
			return fmt.Errorf("wait for the default objects: %w; last: %w", ctx.Err(), err)
		}
	}
}
