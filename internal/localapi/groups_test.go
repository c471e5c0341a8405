package localapi

import (
	"context"
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/metrics/pkg/apis/metrics"
	"k8s.io/metrics/pkg/apis/metrics/install"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
)

// nodeMetrics serves one NodeMetrics that is always the same.
type nodeMetrics struct{ rest.TableConvertor }

func (nodeMetrics) New() runtime.Object     { return &metrics.NodeMetrics{} }
func (nodeMetrics) NewList() runtime.Object { return &metrics.NodeMetricsList{} }
func (nodeMetrics) Destroy()                {}
func (nodeMetrics) NamespaceScoped() bool   { return false }
func (nodeMetrics) GetSingularName() string { return "node" }
func (nodeMetrics) Kind() string            { return "NodeMetrics" }

func (n nodeMetrics) List(context.Context, *internalversion.ListOptions) (runtime.Object, error) {
	return &metrics.NodeMetricsList{Items: []metrics.NodeMetrics{{
		ObjectMeta: metav1.ObjectMeta{Name: "node1"},
		Usage:      corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("123m")},
	}}}, nil
}

// A group of the caller's is served with discovery, OpenAPI and RBAC like any
// other.
func TestGroups(t *testing.T) {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	metav1.AddToGroupVersion(scheme, metav1.Unversioned)
	codecs := serializer.NewCodecFactory(scheme)
	group := genericapiserver.NewDefaultAPIGroupInfo(metrics.GroupName, scheme, runtime.NewParameterCodec(scheme), codecs)
	group.VersionedResourcesStorageMap["v1beta1"] = map[string]rest.Storage{
		"nodes": nodeMetrics{rest.NewDefaultTableConvertor(metrics.Resource("nodes"))},
	}
	s := start(t, func(c *Config) { c.Groups = []*genericapiserver.APIGroupInfo{&group} })

	client := clientFor(t, s.AdminConfig())
	data, err := client.RESTClient().Get().AbsPath("/apis/metrics.k8s.io/v1beta1/nodes").SetHeader("Accept", "application/json").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var list metricsv1beta1.NodeMetricsList
	if err := json.Unmarshal(data, &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 || list.Items[0].Usage.Cpu().String() != "123m" || list.Kind != "NodeMetricsList" {
		t.Errorf("got %s", data)
	}
	resources, err := client.Discovery().ServerResourcesForGroupVersion("metrics.k8s.io/v1beta1")
	if err != nil || len(resources.APIResources) != 1 {
		t.Errorf("discovery: %v, %v", resources, err)
	}
	paths, err := client.Discovery().OpenAPIV3().Paths()
	if err != nil || paths["apis/metrics.k8s.io/v1beta1"] == nil {
		t.Errorf("OpenAPI lacks the group: %v", err)
	}
}
