package localapi

import (
	"context"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle"
	genericapiserver "k8s.io/apiserver/pkg/server"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"
	core "k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/plugin/pkg/admission/certificates/ctbattest"
	"k8s.io/kubernetes/plugin/pkg/admission/limitranger"
	"k8s.io/kubernetes/plugin/pkg/admission/podresize"
	"k8s.io/kubernetes/plugin/pkg/admission/priority"
	"k8s.io/kubernetes/plugin/pkg/admission/runtimeclass"
	"k8s.io/kubernetes/plugin/pkg/admission/security/podsecurity"
	"k8s.io/kubernetes/plugin/pkg/admission/serviceaccount"
	"k8s.io/kubernetes/plugin/pkg/admission/storage/persistentvolume/resize"
	"k8s.io/kubernetes/plugin/pkg/admission/storage/storageclass/setdefault"
	"k8s.io/kubernetes/plugin/pkg/admission/storage/storageobjectinuseprotection"
)

// admissionOrder are the checks of a write, in upstream's order. Left out are
// those for what is not served (webhooks, policies, quotas, ingresses,
// signing requests), for node life cycle, which one node has not, and
// NodeRestriction: the kubelet is this process.
var admissionOrder = []string{
	lifecycle.PluginName,
	limitranger.PluginName,
	serviceaccount.PluginName,
	podsecurity.PluginName,
	priority.PluginName,
	setdefault.PluginName,
	storageobjectinuseprotection.PluginName,
	resize.PluginName,
	runtimeclass.PluginName,
	ctbattest.PluginName,
	podresize.PluginName,
}

// systemNamespaces are made at the start and cannot be deleted.
var systemNamespaces = []string{
	corev1.NamespaceDefault, "kube-system", "kube-public", corev1.NamespaceNodeLease,
}

func (s *Server) admission(ctx context.Context, cfg *genericapiserver.Config, a *api) error {
	plugins := admission.NewPlugins()
	for _, register := range []func(*admission.Plugins){
		limitranger.Register, podsecurity.Register, priority.Register, setdefault.Register,
		storageobjectinuseprotection.Register, resize.Register, runtimeclass.Register,
		ctbattest.Register, podresize.Register,
	} {
		register(plugins)
	}
	plugins.Register(lifecycle.PluginName, func(io.Reader) (admission.Interface, error) {
		return lifecycle.NewLifecycle(sets.New(systemNamespaces...))
	})
	plugins.Register(serviceaccount.PluginName, func(io.Reader) (admission.Interface, error) {
		return &mirrorPods{serviceaccount.NewServiceAccount(), NodeUser(s.cfg.NodeName)}, nil
	})
	init := initializer.New(a.client, nil, a.informers, cfg.Authorization.Authorizer,
		utilfeature.DefaultFeatureGate, cfg.EffectiveVersion, ctx.Done(), a.mapper())
	chain, err := plugins.NewFromPlugins(admissionOrder, noConfig{}, init, admission.Decorators{})
	if err != nil {
		return fmt.Errorf("set up admission: %w", err)
	}
	cfg.AdmissionControl = chain
	return nil
}

// mapper finds kinds by discovery, on demand.
func (a *api) mapper() meta.ResettableRESTMapper {
	return restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(a.client.Discovery()))
}

// noConfig gives every check its defaults.
type noConfig struct{}

func (noConfig) ConfigFor(string) (io.Reader, error) { return nil, nil }

// mirrorPods is upstream's service account check, but lets the mirror pods of
// our own kubelet refer to service accounts and secrets. In a cluster that is
// forbidden, because whoever can write a node's manifest folder would get at
// the cluster's secrets; here the folder and the API belong to the same user.
type mirrorPods struct {
	*serviceaccount.Plugin

	kubelet string // the user
}

// Admit leaves such a mirror pod as it is, or the kubelet would not know it.
func (m *mirrorPods) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if m.ours(a) {
		return nil
	}
	return m.Plugin.Admit(ctx, a, o)
}

// Validate lets such a mirror pod pass.
func (m *mirrorPods) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if m.ours(a) {
		return nil
	}
	return m.Plugin.Validate(ctx, a, o)
}

func (m *mirrorPods) ours(a admission.Attributes) bool {
	pod, ok := a.GetObject().(*core.Pod)
	if !ok || a.GetSubresource() != "" || a.GetOperation() != admission.Create {
		return false
	}
	_, mirror := pod.Annotations[core.MirrorPodAnnotationKey]
	return mirror && a.GetUserInfo().GetName() == m.kubelet
}
