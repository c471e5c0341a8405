package localapi

import (
	"context"
	"fmt"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	authunion "k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	"k8s.io/apiserver/pkg/authentication/request/x509"
	tokencache "k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	authzunion "k8s.io/apiserver/pkg/authorization/union"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	sacontroller "k8s.io/kubernetes/pkg/controller/serviceaccount"
	"k8s.io/kubernetes/pkg/serviceaccount"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac"
)

const (
	// tokenIssuer is in every service account token, and is their audience
	// unless another is asked for.
	tokenIssuer = "https://kubernetes.default.svc.cluster.local"
	// maxTokenLife is what a pod's token may be extended to, as upstream.
	maxTokenLife = 365 * 24 * time.Hour
	// tokenCacheTTL is how long a good token is not checked again, as
	// upstream. A token of a deleted pod works that much longer.
	tokenCacheTTL = 10 * time.Second
)

// secureConfig says who may do what: authentication, authorization and admission.
func (s *Server) secureConfig(ctx context.Context, cfg *genericapiserver.Config, a *api) error {
	if err := s.authentication(cfg, a); err != nil {
		return err
	}
	if err := authorization(cfg, a.informers); err != nil {
		return err
	}
	return s.admission(ctx, cfg, a)
}

// authentication knows client certificates and service account tokens, and
// nobody else: there is no anonymous user.
func (s *Server) authentication(cfg *genericapiserver.Config, a *api) error {
	keys, err := serviceaccount.StaticPublicKeysGetter([]any{s.certs.tokenKey.Public()})
	if err != nil {
		return fmt.Errorf("use the token key: %w", err)
	}
	cfg.Authentication.APIAudiences = authenticator.Audiences{tokenIssuer}
	tokens := tokencache.New(serviceaccount.JWTTokenAuthenticator(
		[]string{tokenIssuer}, keys, cfg.Authentication.APIAudiences,
		serviceaccount.NewValidator(newTokenGetter(a.client, a.informers)),
	), false, tokenCacheTTL, 0)
	cfg.Authentication.Authenticator = group.NewAuthenticatedGroupAdder(authunion.New(
		x509.NewDynamic(a.secure.ClientCA.VerifyOptions, x509.CommonNameUserConversion),
		bearertoken.New(tokens),
		websocket.NewProtocolAuthenticator(tokens),
	))
	return nil
}

// tokenGetter looks up what a token is bound to.
type tokenGetter struct {
	serviceaccount.ServiceAccountTokenGetter
}

func newTokenGetter(client kubernetes.Interface, f informers.SharedInformerFactory) tokenGetter {
	core := f.Core().V1()
	return tokenGetter{sacontroller.NewGetterFromClient(client, core.Secrets().Lister(),
		core.ServiceAccounts().Lister(), core.Pods().Lister(), core.Nodes().Lister(), nil, nil)}
}

// There are no webhooks that a token could be bound to.

func (tokenGetter) GetValidatingWebhookConfiguration(_ context.Context, name string) (*admissionregistrationv1.ValidatingWebhookConfiguration, error) {
	return nil, apierrors.NewNotFound(admissionregistrationv1.Resource("validatingwebhookconfigurations"), name)
}

func (tokenGetter) GetMutatingWebhookConfiguration(_ context.Context, name string) (*admissionregistrationv1.MutatingWebhookConfiguration, error) {
	return nil, apierrors.NewNotFound(admissionregistrationv1.Resource("mutatingwebhookconfigurations"), name)
}

// authorization is RBAC, below group system:masters who may do everything.
func authorization(cfg *genericapiserver.Config, f informers.SharedInformerFactory) error {
	roles := f.Rbac().V1()
	byRole := rbac.New(
		&rbac.RoleGetter{Lister: roles.Roles().Lister()},
		&rbac.RoleBindingLister{Lister: roles.RoleBindings().Lister()},
		&rbac.ClusterRoleGetter{Lister: roles.ClusterRoles().Lister()},
		&rbac.ClusterRoleBindingLister{Lister: roles.ClusterRoleBindings().Lister()},
	)
	authz, err := authzunion.New(
		authzunion.NamedAuthorizer{AuthorizerName: "masters", Authorizer: authorizerfactory.NewPrivilegedGroups(user.SystemPrivilegedGroup)},
		authzunion.NamedAuthorizer{AuthorizerName: "rbac", Authorizer: byRole},
	)
	if err != nil {
		return fmt.Errorf("make the authorizer: %w", err)
	}
	cfg.Authorization.Authorizer = authz
	cfg.RuleResolver = byRole
	return nil
}
