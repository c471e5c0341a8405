package localapi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-helpers/auth/rbac/reconciliation"
	schedulingapiv1 "k8s.io/kubernetes/pkg/apis/scheduling/v1"
	"k8s.io/kubernetes/pkg/controlplane/controller/defaultservicecidr"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"
)

// bootstrapWorkers write at once: each write waits for the disk, and etcd
// syncs the log once for all that wait.
const bootstrapWorkers = 16

// kubeletRole is what our kubelet may do beyond upstream's system:node: watch
// claims, volumes and service accounts, rather than poll them.
const kubeletRole = "holdfast.dev:kubelet"

// absentComponents are upstream's default cluster roles for programs that do
// not run here.
var absentComponents = []string{
	"system:certificates.k8s.io:certificatesigningrequests:nodeclient",
	"system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
	"system:certificates.k8s.io:kube-apiserver-client-approver",
	"system:certificates.k8s.io:kube-apiserver-client-kubelet-approver",
	"system:certificates.k8s.io:kubelet-serving-approver",
	"system:certificates.k8s.io:legacy-unknown-approver",
	"system:heapster",
	"system:kube-aggregator",
	"system:kube-controller-manager",
	"system:kube-dns",
	"system:kube-scheduler",
	"system:node-bootstrapper",
	"system:node-proxier",
	"system:volume-scheduler",
}

// addHooks adds what must be done once the server listens and before it is
// ready.
func (s *Server) addHooks(server *genericapiserver.GenericAPIServer, core genericapiserver.PostStartHookProvider, a *api) error {
	name, hook, err := core.PostStartHook()
	if err != nil {
		return fmt.Errorf("set up the core group: %w", err)
	}
	_, services, err := net.ParseCIDR(s.cfg.ServiceCIDR)
	if err != nil {
		return fmt.Errorf("service CIDR: %w", err)
	}
	cidr := defaultservicecidr.NewController(*services, net.IPNet{}, a.client)
	return errors.Join(
		server.AddPostStartHook(name, hook),
		server.AddPostStartHook("start-default-service-cidr", func(ctx genericapiserver.PostStartHookContext) error {
			cidr.Start(ctx)
			return nil
		}),
		server.AddPostStartHook("bootstrap-default-objects", func(ctx genericapiserver.PostStartHookContext) error {
			return bootstrap(ctx, a.client)
		}),
	)
}

// bootstrap makes the objects that every cluster has. What a user changed in
// them stays, but for what upstream's reconciliation puts back: rules that
// are missing from a default role.
func bootstrap(ctx context.Context, client kubernetes.Interface) error {
	// Namespaces first: other objects are in them.
	var group errgroup.Group
	group.SetLimit(bootstrapWorkers)
	for _, name := range systemNamespaces {
		group.Go(func() error { return ensureNamespace(ctx, client, name) })
	}
	for _, class := range schedulingapiv1.SystemPriorityClasses() {
		group.Go(func() error {
			_, err := client.SchedulingV1().PriorityClasses().Create(ctx, class, metav1.CreateOptions{})
			return existing("priority class "+class.Name, err)
		})
	}
	for _, role := range clusterRoles() {
		group.Go(func() error { return ensureRole(client, role) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for _, binding := range clusterRoleBindings() {
		group.Go(func() error { return ensureBinding(client, binding) })
	}
	return group.Wait()
}

func ensureNamespace(ctx context.Context, client kubernetes.Interface, name string) error {
	_, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return existing("namespace "+name, err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err = client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{})
	return existing("namespace "+name, err)
}

// existing makes an error of a creation's err, unless the object is there.
func existing(what string, err error) error {
	if err == nil || apierrors.IsAlreadyExists(err) {
		return nil
	}
	return fmt.Errorf("make %s: %w", what, err)
}

func clusterRoles() []rbacv1.ClusterRole {
	roles := slices.DeleteFunc(bootstrappolicy.ClusterRoles(), func(r rbacv1.ClusterRole) bool {
		return slices.Contains(absentComponents, r.Name)
	})
	read := []string{"get", "list", "watch"}
	return append(roles, rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: kubeletRole},
		Rules: []rbacv1.PolicyRule{
			{Verbs: read, APIGroups: []string{""}, Resources: []string{"persistentvolumeclaims", "persistentvolumes", "serviceaccounts"}},
			{Verbs: read, APIGroups: []string{"storage.k8s.io"}, Resources: []string{"storageclasses"}},
		},
	})
}

func clusterRoleBindings() []rbacv1.ClusterRoleBinding {
	bindings := slices.DeleteFunc(bootstrappolicy.ClusterRoleBindings(), func(b rbacv1.ClusterRoleBinding) bool {
		// Upstream's binding of system:node has no subjects.
		return slices.Contains(absentComponents, b.RoleRef.Name) || b.RoleRef.Name == "system:node"
	})
	nodes := []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: user.NodesGroup}}
	for name, role := range map[string]string{"holdfast.dev:node": "system:node", kubeletRole: kubeletRole} {
		bindings = append(bindings, rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   nodes,
		})
	}
	return bindings
}

func ensureRole(client kubernetes.Interface, role rbacv1.ClusterRole) error {
	_, err := (&reconciliation.ReconcileRoleOptions{
		Role:    reconciliation.ClusterRoleRuleOwner{ClusterRole: &role},
		Client:  reconciliation.ClusterRoleModifier{Client: client.RbacV1().ClusterRoles()},
		Confirm: true,
	}).Run()
	if err != nil {
		return fmt.Errorf("make cluster role %s: %w", role.Name, err)
	}
	return nil
}

func ensureBinding(client kubernetes.Interface, binding rbacv1.ClusterRoleBinding) error {
	_, err := (&reconciliation.ReconcileRoleBindingOptions{
		RoleBinding: reconciliation.ClusterRoleBindingAdapter{ClusterRoleBinding: &binding},
		Client:      reconciliation.ClusterRoleBindingClientAdapter{Client: client.RbacV1().ClusterRoleBindings()},
		Confirm:     true,
	}).Run()
	if err != nil {
		return fmt.Errorf("make cluster role binding %s: %w", binding.Name, err)
	}
	return nil
}
