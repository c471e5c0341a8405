package localapi

import (
	"context"
	"encoding/json"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
)

func testObjects(t *testing.T, s *Server) {
	client := clientFor(t, s.AdminConfig())
	newNamespace(t, client, "objects")
	configs := client.CoreV1().ConfigMaps("objects")
	made, err := configs.Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "c"}, Data: map[string]string{"k": "v"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	made.Data["k"] = "w"
	if _, err := configs.Update(t.Context(), made, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := configs.Update(t.Context(), made, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("update of an old version: %v, want a conflict", err)
	}
	got, err := configs.Get(t.Context(), "c", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Data["k"] != "w" {
		t.Errorf("got %v", got.Data)
	}
	if err := configs.Delete(t.Context(), "c", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := configs.Get(t.Context(), "c", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after deletion: %v", err)
	}

	// Validation and defaults are upstream's.
	_, err = client.CoreV1().Pods("objects").Create(t.Context(), testPod("objects", "Bad_Name", nil), metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) {
		t.Errorf("a bad name: %v, want invalid", err)
	}
	pod := createPod(t, client, testPod("objects", "p", nil))
	if pod.Spec.RestartPolicy != corev1.RestartPolicyAlways || pod.Status.QOSClass != corev1.PodQOSBestEffort {
		t.Errorf("no defaults: %+v", pod.Spec)
	}
}

func testWatch(t *testing.T, s *Server) {
	client := clientFor(t, s.AdminConfig())
	newNamespace(t, client, "watch")
	pods := client.CoreV1().Pods("watch")
	list, err := pods.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := pods.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion, FieldSelector: "metadata.name=p"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	createPod(t, client, testPod("watch", "other", nil))
	createPod(t, client, testPod("watch", "p", nil))
	if err := pods.Delete(t.Context(), "p", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		t.Fatal(err)
	}
	var first, last watch.EventType
	for e := range w.ResultChan() {
		if name := e.Object.(*corev1.Pod).Name; name != "p" {
			t.Errorf("event of pod %s", name)
		}
		if first == "" {
			first = e.Type
		}
		if last = e.Type; last == watch.Deleted {
			break
		}
	}
	if first != watch.Added || last != watch.Deleted {
		t.Errorf("first %q, last %q", first, last)
	}
}

func testApply(t *testing.T, s *Server) {
	client := clientFor(t, s.AdminConfig())
	newNamespace(t, client, "apply")
	configs := client.CoreV1().ConfigMaps("apply")
	apply := func(manager string, data map[string]string) error {
		_, err := configs.Apply(t.Context(), corev1ac.ConfigMap("c", "apply").WithData(data), metav1.ApplyOptions{FieldManager: manager})
		return err
	}
	if err := apply("a", map[string]string{"x": "1", "y": "1"}); err != nil {
		t.Fatal(err)
	}
	if err := apply("b", map[string]string{"x": "2"}); !apierrors.IsConflict(err) {
		t.Errorf("another manager's field: %v, want a conflict", err)
	}
	if err := apply("a", map[string]string{"x": "1"}); err != nil {
		t.Fatal(err)
	}
	got, err := configs.Get(t.Context(), "c", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, there := got.Data["y"]; there {
		t.Error("a field that left the configuration stayed")
	}
}

func testTable(t *testing.T, s *Server) {
	client := clientFor(t, s.AdminConfig())
	newNamespace(t, client, "table")
	createPod(t, client, testPod("table", "p", nil))
	data, err := client.CoreV1().RESTClient().Get().Namespace("table").Resource("pods").
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var table metav1.Table
	if err := json.Unmarshal(data, &table); err != nil {
		t.Fatal(err)
	}
	var columns []string
	for _, c := range table.ColumnDefinitions {
		columns = append(columns, c.Name)
	}
	if got := strings.Join(columns, " "); !strings.HasPrefix(got, "Name Ready Status Restarts Age") || len(table.Rows) != 1 {
		t.Errorf("columns %q, %d rows", got, len(table.Rows))
	}
}

// The version that the API claims is that of the libraries in go.mod.
func testVersion(t *testing.T, s *Server) {
	mod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	want := regexp.MustCompile(`k8s\.io/kubernetes (v\S+)`).FindStringSubmatch(string(mod))[1]
	got, err := clientFor(t, s.AdminConfig()).Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if got.GitVersion != want || got.Major+"."+got.Minor != strings.Join(strings.Split(want[1:], ".")[:2], ".") {
		t.Errorf("got %s (%s.%s), want %s", got.GitVersion, got.Major, got.Minor, want)
	}
}

func testOpenAPI(t *testing.T, s *Server) {
	client := clientFor(t, s.AdminConfig()).Discovery()
	v2, err := client.OpenAPISchema()
	if err != nil {
		t.Fatal(err)
	}
	if n := len(v2.Definitions.AdditionalProperties); n < 100 {
		t.Errorf("OpenAPI v2 has %d definitions", n)
	}
	paths, err := client.OpenAPIV3().Paths()
	if err != nil {
		t.Fatal(err)
	}
	for _, gv := range []string{"api/v1", "apis/storage.k8s.io/v1", "apis/rbac.authorization.k8s.io/v1"} {
		if paths[gv] == nil {
			t.Errorf("OpenAPI v3 lacks %s", gv)
			continue
		}
		if data, err := paths[gv].Schema("application/json"); err != nil || !json.Valid(data) {
			t.Errorf("OpenAPI v3 of %s: %d bytes, %v", gv, len(data), err)
		}
	}
}

func testDefaultObjects(t *testing.T, s *Server) {
	client := clientFor(t, s.AdminConfig())
	for _, name := range systemNamespaces {
		if _, err := client.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
		if err := client.CoreV1().Namespaces().Delete(t.Context(), name, metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("delete namespace %s: %v, want forbidden", name, err)
		}
	}
	if _, err := client.SchedulingV1().PriorityClasses().Get(t.Context(), "system-node-critical", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	newNamespace(t, client, "defaults")
	eventually(t, "default service account", func(ctx context.Context) (bool, error) {
		_, err := client.CoreV1().ServiceAccounts("defaults").Get(ctx, "default", metav1.GetOptions{})
		return err == nil, err
	})
	eventually(t, "root CA", func(ctx context.Context) (bool, error) {
		c, err := client.CoreV1().ConfigMaps("defaults").Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		return err == nil && c.Data["ca.crt"] == string(s.CACert()), err
	})
}

func testAggregatedRoles(t *testing.T, s *Server) {
	client := clientFor(t, s.AdminConfig())
	for _, name := range []string{"admin", "edit", "view"} {
		eventually(t, "rules of "+name, func(ctx context.Context) (bool, error) {
			role, err := client.RbacV1().ClusterRoles().Get(ctx, name, metav1.GetOptions{})
			return err == nil && len(role.Rules) > 0, err
		})
	}
}

// Deleting a namespace empties it.
func testNamespace(t *testing.T, s *Server) {
	client := clientFor(t, s.AdminConfig())
	newNamespace(t, client, "doomed")
	c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}}
	if _, err := client.CoreV1().ConfigMaps("doomed").Create(t.Context(), c, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := client.CoreV1().Namespaces().Delete(t.Context(), "doomed", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "namespace gone", func(ctx context.Context) (bool, error) {
		_, err := client.CoreV1().Namespaces().Get(ctx, "doomed", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return false, err
	})
	newNamespace(t, client, "doomed")
	if _, err := client.CoreV1().ConfigMaps("doomed").Get(t.Context(), "c", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("its config map came back: %v", err)
	}
}

// What an object owns goes with it.
func testOwners(t *testing.T, s *Server) {
	client := clientFor(t, s.AdminConfig())
	newNamespace(t, client, "owners")
	configs := client.CoreV1().ConfigMaps("owners")
	owner, err := configs.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = configs.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owned", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: owner.UID},
	}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	foreground := metav1.DeletePropagationForeground
	if err := configs.Delete(t.Context(), "owner", metav1.DeleteOptions{PropagationPolicy: &foreground}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"owned", "owner"} {
		eventually(t, name+" gone", func(ctx context.Context) (bool, error) {
			_, err := configs.Get(ctx, name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return true, nil
			}
			return false, err
		})
	}
}

func testService(t *testing.T, s *Server) {
	client := clientFor(t, s.AdminConfig())
	newNamespace(t, client, "service")
	made, err := client.CoreV1().Services("service").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "s"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ip, err := netip.ParseAddr(made.Spec.ClusterIP)
	if err != nil || !netip.MustParsePrefix(DefaultServiceCIDR).Contains(ip) {
		t.Errorf("cluster IP %q", made.Spec.ClusterIP)
	}
	if p := int(made.Spec.Ports[0].NodePort); !nodePorts.Contains(p) {
		t.Errorf("node port %d", p)
	}
}

// What nothing acts upon is refused, not ignored.
func testRefusedKinds(t *testing.T, s *Server) {
	client := clientFor(t, s.AdminConfig())
	for _, gvr := range []schema.GroupVersionResource{
		{Group: "apps", Version: "v1", Resource: "deployments"},
		{Group: "batch", Version: "v1", Resource: "jobs"},
		{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"},
		{Group: "", Version: "v1", Resource: "resourcequotas"},
		{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
	} {
		path := "/apis/" + gvr.Group + "/v1/" + gvr.Resource
		if gvr.Group == "" {
			path = "/api/v1/" + gvr.Resource
		}
		if err := client.RESTClient().Get().AbsPath(path).Do(t.Context()).Error(); !apierrors.IsNotFound(err) {
			t.Errorf("%s: %v, want not found", path, err)
		}
	}
}
