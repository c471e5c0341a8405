package localapi

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/registry/generic"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/egressselector"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/kubernetes/pkg/kubeapiserver"
	kubeletclient "k8s.io/kubernetes/pkg/kubelet/client"
	authenticationrest "k8s.io/kubernetes/pkg/registry/authentication/rest"
	authorizationrest "k8s.io/kubernetes/pkg/registry/authorization/rest"
	certificatesrest "k8s.io/kubernetes/pkg/registry/certificates/rest"
	coordinationrest "k8s.io/kubernetes/pkg/registry/coordination/rest"
	corerest "k8s.io/kubernetes/pkg/registry/core/rest"
	discoveryrest "k8s.io/kubernetes/pkg/registry/discovery/rest"
	eventsrest "k8s.io/kubernetes/pkg/registry/events/rest"
	networkingrest "k8s.io/kubernetes/pkg/registry/networking/rest"
	noderest "k8s.io/kubernetes/pkg/registry/node/rest"
	policyrest "k8s.io/kubernetes/pkg/registry/policy/rest"
	rbacrest "k8s.io/kubernetes/pkg/registry/rbac/rest"
	schedulingrest "k8s.io/kubernetes/pkg/registry/scheduling/rest"
	storagerest "k8s.io/kubernetes/pkg/registry/storage/rest"
	"k8s.io/kubernetes/pkg/serviceaccount"

	// The groups that are served: each puts its types into upstream's scheme.
	_ "k8s.io/kubernetes/pkg/apis/authentication/install"
	_ "k8s.io/kubernetes/pkg/apis/authorization/install"
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install" // the core group's scale subresources convert to it
	_ "k8s.io/kubernetes/pkg/apis/certificates/install"
	_ "k8s.io/kubernetes/pkg/apis/coordination/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/discovery/install"
	_ "k8s.io/kubernetes/pkg/apis/events/install"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	_ "k8s.io/kubernetes/pkg/apis/node/install"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	_ "k8s.io/kubernetes/pkg/apis/rbac/install"
	_ "k8s.io/kubernetes/pkg/apis/scheduling/install"
	_ "k8s.io/kubernetes/pkg/apis/storage/install"
)

const (
	// eventTTL is how long an event stays, as the upstream API server's
	// --event-ttl.
	eventTTL = time.Hour
	// storePrefix is where the objects are in etcd, as upstream.
	storePrefix = "/registry"
	// repairInterval is how often services' addresses and ports are compared
	// with what is allocated. Each round writes, and on one node with one
	// writer there is nothing to repair but after a crash, at the start.
	repairInterval = 12 * time.Hour
	// compactInterval is how much history watches can go back.
	compactInterval = 5 * time.Minute
	kubeletTimeout  = 5 * time.Second
)

// nodePorts is upstream's default range of node ports.
var nodePorts = utilnet.PortRange{Base: 30000, Size: 2768}

// provider makes the storage of one API group.
type provider interface {
	GroupName() string
	NewRESTStorage(serverstorage.APIResourceConfigSource, generic.RESTOptionsGetter) (genericapiserver.APIGroupInfo, error)
}

// resources says what is served. A resource that nothing here acts upon is
// left out, so that an object of it is refused rather than ignored.
func resources() *serverstorage.ResourceConfig {
	c := serverstorage.NewResourceConfig()
	c.EnableVersions(
		corev1.SchemeGroupVersion, authenticationv1.SchemeGroupVersion, authorizationv1.SchemeGroupVersion,
		coordinationv1.SchemeGroupVersion, discoveryv1.SchemeGroupVersion, eventsv1.SchemeGroupVersion,
		nodev1.SchemeGroupVersion, policyv1.SchemeGroupVersion, rbacv1.SchemeGroupVersion,
		schedulingv1.SchemeGroupVersion, storagev1.SchemeGroupVersion, networkingv1.SchemeGroupVersion,
		certificatesv1.SchemeGroupVersion,
	)
	core, storage, networking := corev1.SchemeGroupVersion, storagev1.SchemeGroupVersion, networkingv1.SchemeGroupVersion
	c.DisableResources(
		core.WithResource("replicationcontrollers"),
		core.WithResource("podtemplates"),
		core.WithResource("componentstatuses"),
		core.WithResource("resourcequotas"),
		certificatesv1.SchemeGroupVersion.WithResource("certificatesigningrequests"), // nobody signs
		storage.WithResource("csistoragecapacities"),
		storage.WithResource("volumeattributesclasses"),
		networking.WithResource("ingresses"),
		networking.WithResource("ingressclasses"),
		networking.WithResource("networkpolicies"),
	)
	return c
}

// storageFactory makes cfg keep its objects in the store at endpoint.
func storageFactory(cfg *genericapiserver.Config, endpoint string) (*serverstorage.DefaultStorageFactory, error) {
	options := genericoptions.NewEtcdOptions(storagebackend.NewDefaultConfig(storePrefix, nil))
	options.DefaultStorageMediaType = runtime.ContentTypeProtobuf
	options.StorageConfig.Transport.ServerList = []string{endpoint}
	options.StorageConfig.Transport.TracerProvider = cfg.TracerProvider
	options.StorageConfig.CompactionInterval = compactInterval
	// Two tickers for metrics that nobody scrapes here.
	options.StorageConfig.CountMetricPollPeriod = 0
	options.StorageConfig.DBMetricPollInterval = 0
	// A watch cache is a second copy of every object and some twenty
	// goroutines a resource, to spare an etcd that thousands watch. Here a
	// dozen watch, and etcd is in this process.
	options.EnableWatchCache = false

	factoryConfig := kubeapiserver.NewStorageFactoryConfigEffectiveVersion(cfg.EffectiveVersion)
	factoryConfig.APIResourceConfig = cfg.MergedResourceConfig
	factory, err := factoryConfig.Complete(options).New()
	if err != nil {
		return nil, fmt.Errorf("configure the storage: %w", err)
	}
	if err := options.ApplyWithStorageFactoryTo(factory, cfg); err != nil {
		return nil, fmt.Errorf("configure the storage: %w", err)
	}
	return factory, nil
}

// install adds every API group and what must run once the server is up.
func (s *Server) install(server *genericapiserver.GenericAPIServer, cfg *genericapiserver.Config, factory serverstorage.StorageFactory, a *api) error {
	core, err := s.coreProvider(cfg, factory, a)
	if err != nil {
		return err
	}
	info, err := core.NewRESTStorage(cfg.MergedResourceConfig, cfg.RESTOptionsGetter)
	if err != nil {
		return fmt.Errorf("make the storage of the core group: %w", err)
	}
	if err := server.InstallLegacyAPIGroup(genericapiserver.DefaultLegacyAPIPrefix, &info); err != nil {
		return fmt.Errorf("install the core group: %w", err)
	}
	groups, err := otherGroups(cfg)
	if err != nil {
		return err
	}
	if err := server.InstallAPIGroups(append(groups, s.cfg.Groups...)...); err != nil {
		return fmt.Errorf("install the API groups: %w", err)
	}
	return s.addHooks(server, core, a)
}

// otherGroups makes the storage of upstream's groups but core. Their order is
// that of discovery.
func otherGroups(cfg *genericapiserver.Config) ([]*genericapiserver.APIGroupInfo, error) {
	authz := cfg.Authorization.Authorizer
	var groups []*genericapiserver.APIGroupInfo
	for _, p := range []provider{
		authenticationrest.RESTStorageProvider{Authenticator: cfg.Authentication.Authenticator, APIAudiences: cfg.Authentication.APIAudiences},
		authorizationrest.RESTStorageProvider{Authorizer: authz, RuleResolver: cfg.RuleResolver},
		certificatesrest.RESTStorageProvider{Authorizer: authz},
		coordinationrest.RESTStorageProvider{},
		discoveryrest.StorageProvider{},
		networkingrest.RESTStorageProvider{},
		noderest.RESTStorageProvider{},
		policyrest.RESTStorageProvider{},
		rbacrest.RESTStorageProvider{Authorizer: authz},
		schedulingrest.RESTStorageProvider{},
		storagerest.RESTStorageProvider{},
		eventsrest.RESTStorageProvider{TTL: eventTTL},
	} {
		info, err := p.NewRESTStorage(cfg.MergedResourceConfig, cfg.RESTOptionsGetter)
		if err != nil {
			return nil, fmt.Errorf("make the storage of group %s: %w", p.GroupName(), err)
		}
		groups = append(groups, &info)
	}
	return groups, nil
}

// coreGroup is upstream's provider of the core group, whose type has no name.
type coreGroup interface {
	provider
	genericapiserver.PostStartHookProvider
}

func (s *Server) coreProvider(cfg *genericapiserver.Config, factory serverstorage.StorageFactory, a *api) (coreGroup, error) {
	issuer, err := serviceaccount.JWTTokenGenerator(tokenIssuer, s.certs.tokenKey)
	if err != nil {
		return nil, fmt.Errorf("make the token issuer: %w", err)
	}
	_, services, err := net.ParseCIDR(s.cfg.ServiceCIDR)
	if err != nil {
		return nil, fmt.Errorf("service CIDR: %w", err)
	}
	core, err := corerest.New(corerest.Config{
		GenericConfig: corerest.GenericConfig{
			StorageFactory:        factory,
			EventTTL:              eventTTL,
			LoopbackClientConfig:  a.loopback,
			ServiceAccountIssuer:  issuer,
			ExtendExpiration:      true, // as the upstream API server: old clients do not reload
			MaxExtendedExpiration: maxTokenLife,
			APIAudiences:          cfg.Authentication.APIAudiences,
			Informers:             a.informers,
		},
		Proxy: corerest.ProxyConfig{Transport: proxyTransport(), KubeletClientConfig: s.kubeletClient()},
		Services: corerest.ServicesConfig{
			ClusterIPRange: *services, NodePortRange: nodePorts, IPRepairInterval: repairInterval,
		},
		Authorizer: cfg.Authorization.Authorizer,
	}, cfg.Authorization.Authorizer)
	if err != nil {
		return nil, fmt.Errorf("make the core group: %w", err)
	}
	return core, nil
}

// kubeletClient is how the API reaches the kubelet for logs, exec and the
// like. The kubelet's port is in the Node's status.
func (s *Server) kubeletClient() kubeletclient.KubeletClientConfig {
	toNode := s.certs.toNode.Pair()
	var lookup egressselector.Lookup
	if s.cfg.DialKubelet != nil {
		lookup = func(egressselector.NetworkContext) (utilnet.DialFunc, error) { return s.cfg.DialKubelet, nil }
	}
	return kubeletclient.KubeletClientConfig{
		Port: 10250,
		PreferredAddressTypes: []string{
			string(corev1.NodeInternalIP), string(corev1.NodeHostName), string(corev1.NodeExternalIP),
		},
		TLSClientConfig: kubeletclient.KubeletTLSConfig{
			CertFile: toNode.CertFile, KeyFile: toNode.KeyFile, CAFile: s.pki.CertFile(),
		},
		HTTPTimeout: kubeletTimeout, Lookup: lookup,
	}
}

// proxyTransport carries the pods', services' and nodes' proxy subresources.
// It verifies no certificate, as upstream: whom a pod's certificate should
// name is unknown.
func proxyTransport() *http.Transport {
	return utilnet.SetTransportDefaults(&http.Transport{
		DialContext:     (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	})
}
