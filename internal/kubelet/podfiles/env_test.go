package podfiles

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestExpand(t *testing.T) {
	vars := map[string]string{"A": "1", "B": "$(A)", "EMPTY": ""}
	lookup := func(name string) (string, bool) { v, ok := vars[name]; return v, ok }
	tests := map[string]struct{ in, want string }{
		"nothing":           {"plain", "plain"},
		"one":               {"x$(A)y", "x1y"},
		"not twice":         {"$(B)", "$(A)"},
		"escaped":           {"$$(A)", "$(A)"},
		"escaped and after": {"$$$(A)", "$1"},
		"unknown":           {"$(NO)$(A)", "$(NO)1"},
		"empty":             {"[$(EMPTY)]", "[]"},
		"not closed":        {"a$(A", "a$(A"},
		"other character":   {"$A $", "$A $"},
		"at the end":        {"a$", "a$"},
		"nested":            {"$($(A))", "$($(A))"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Expand(test.in, lookup); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func FuzzExpand(f *testing.F) {
	for _, s := range []string{"$(A)", "$$", "$(", "a$(B)c$$(A)", "$($(A))"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		none := func(string) (string, bool) { return "", false }
		got := Expand(s, none)
		// Without variables only the escapes change, and only by getting shorter.
		if strings.ReplaceAll(got, "$", "") != strings.ReplaceAll(s, "$", "") || len(got) > len(s) {
			t.Errorf("%q became %q", s, got)
		}
	})
}

func testPod(change ...func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web", Namespace: "shop", UID: "1234-5678",
			Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"note": "a b"},
		},
		Spec: v1.PodSpec{
			NodeName: "n1", ServiceAccountName: "clerk", RestartPolicy: v1.RestartPolicyAlways,
			TerminationGracePeriodSeconds: new(int64(30)),
			Containers: []v1.Container{{
				Name: "main", Image: "holdfast.local/demo:1",
				TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: v1.TerminationMessageReadFile,
			}},
		},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func testNode() *Node {
	return &Node{
		Name: "n1", IPs: []string{"192.0.2.10", "2001:db8::10"},
		Allocatable:    v1.ResourceList{v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("8Gi")},
		MemoryCapacity: 8 << 30,
		ServiceHost:    "10.88.0.1", ServicePort: "6443",
		ClusterDomain: "cluster.local",
		HostDNS:       DNS{Servers: []string{"192.0.2.53"}, Searches: []string{"example.org"}, Options: []string{"timeout:1"}},
		PodLogs:       "/var/lib/holdfast/logs/pods",
	}
}

func missing(kind, name string) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: kind}, name)
}

func testSources() EnvSources {
	return EnvSources{
		PodIPs: []string{"10.88.0.7"},
		ConfigMap: func(name string) (*v1.ConfigMap, error) {
			if name != "settings" {
				return nil, missing("configmaps", name)
			}
			return &v1.ConfigMap{Data: map[string]string{"COLOUR": "blue", "SIZE": "9"}}, nil
		},
		Secret: func(name string) (*v1.Secret, error) {
			switch name {
			case "login":
				return &v1.Secret{Data: map[string][]byte{"PASSWORD": []byte("hunter2")}}, nil
			case "broken":
				return nil, errors.New("the server is away")
			}
			return nil, missing("secrets", name)
		},
	}
}

func TestEnv(t *testing.T) {
	value := func(name, v string) v1.EnvVar { return v1.EnvVar{Name: name, Value: v} }
	from := func(name string, src v1.EnvVarSource) v1.EnvVar { return v1.EnvVar{Name: name, ValueFrom: &src} }
	field := func(path string) v1.EnvVarSource {
		return v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}}
	}
	configMap := func(name, key string, optional *bool) v1.EnvVarSource {
		return v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: v1.LocalObjectReference{Name: name}, Key: key, Optional: optional}}
	}
	secret := func(name, key string) v1.EnvVarSource {
		return v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: v1.LocalObjectReference{Name: name}, Key: key}}
	}
	limit := func(name, container, divisor string) v1.EnvVarSource {
		return v1.EnvVarSource{ResourceFieldRef: &v1.ResourceFieldSelector{Resource: name, ContainerName: container, Divisor: resource.MustParse(divisor)}}
	}
	tests := map[string]struct {
		env      []v1.EnvVar
		envFrom  []v1.EnvFromSource
		services []*v1.Service
		links    *bool
		want     []Var // without those of the API server
		err      string
	}{
		"values that refer to earlier ones": {
			env:  []v1.EnvVar{value("A", "1"), value("B", "$(A)2"), value("C", "$(LATER) $$(A)"), value("LATER", "x")},
			want: []Var{{"A", "1"}, {"B", "12"}, {"C", "$(LATER) $(A)"}, {"LATER", "x"}},
		},
		"empty value":      {env: []v1.EnvVar{{Name: "A"}}, want: []Var{{"A", ""}}},
		"a second of name": {env: []v1.EnvVar{value("A", "1"), value("B", "$(A)"), value("A", "2$(A)")}, want: []Var{{"A", "21"}, {"B", "1"}}},
		"fields": {
			env: []v1.EnvVar{
				from("NAME", field("metadata.name")), from("NS", field("metadata.namespace")), from("UID", field("metadata.uid")),
				from("APP", field("metadata.labels['app']")), from("NOTE", field("metadata.annotations['note']")),
				from("NODE", field("spec.nodeName")), from("SA", field("spec.serviceAccountName")),
				from("IP", field("status.podIP")), from("IPS", field("status.podIPs")), from("HOST", field("status.hostIP")), from("HOSTS", field("status.hostIPs")),
			},
			want: []Var{
				{"NAME", "web"},
				{"NS", "shop"},
				{"UID", "1234-5678"},
				{"APP", "web"},
				{"NOTE", "a b"},
				{"NODE", "n1"},
				{"SA", "clerk"},
				{"IP", "10.88.0.7"},
				{"IPS", "10.88.0.7"},
				{"HOST", "192.0.2.10"},
				{"HOSTS", "192.0.2.10,2001:db8::10"},
			},
		},
		"a field that is none": {env: []v1.EnvVar{from("X", field("spec.shoeSize"))}, err: "unsupported fieldPath: spec.shoeSize"},
		"resources": {
			env:  []v1.EnvVar{from("CPU", limit("limits.cpu", "", "1m")), from("MEM", limit("limits.memory", "main", "1Mi")), from("REQ", limit("requests.memory", "", "1"))},
			want: []Var{{"CPU", "1500"}, {"MEM", "8192"}, {"REQ", "1024"}}, // memory: the node's, as the container has no limit
		},
		"from objects": {
			envFrom: []v1.EnvFromSource{
				{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "settings"}}},
				{Prefix: "S_", SecretRef: &v1.SecretEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "login"}}},
			},
			env:  []v1.EnvVar{value("SIZE", "10"), value("URL", "u:$(S_PASSWORD)")},
			want: []Var{{"COLOUR", "blue"}, {"SIZE", "10"}, {"S_PASSWORD", "hunter2"}, {"URL", "u:hunter2"}},
		},
		"keys": {
			env:  []v1.EnvVar{from("C", configMap("settings", "COLOUR", nil)), from("P", secret("login", "PASSWORD"))},
			want: []Var{{"C", "blue"}, {"P", "hunter2"}},
		},
		"missing map":        {env: []v1.EnvVar{from("C", configMap("none", "K", nil))}, err: `configmaps "none" not found`},
		"missing key":        {env: []v1.EnvVar{from("C", configMap("settings", "K", nil))}, err: "couldn't find key K in ConfigMap shop/settings"},
		"missing secret key": {env: []v1.EnvVar{from("C", secret("login", "K"))}, err: "couldn't find key K in Secret shop/login"},
		"optional":           {env: []v1.EnvVar{from("C", configMap("none", "K", new(true))), from("D", configMap("settings", "K", new(true)))}},
		"optional from":      {envFrom: []v1.EnvFromSource{{SecretRef: &v1.SecretEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "none"}, Optional: new(true)}}}},
		"optional but away": {
			envFrom: []v1.EnvFromSource{{SecretRef: &v1.SecretEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "broken"}, Optional: new(true)}}},
			err:     "the server is away",
		},
		"services": {
			env: []v1.EnvVar{value("DB_SERVICE_PORT", "mine"), value("X", "$(DB_SERVICE_HOST)")},
			services: []*v1.Service{
				service("shop", "db", "10.0.0.5", v1.ServicePort{Port: 5432}),
				service("shop", "headless", "None", v1.ServicePort{Port: 1}),
				service("other", "far", "10.0.0.6", v1.ServicePort{Port: 1}),
			},
			want: []Var{
				{"DB_SERVICE_PORT", "mine"},
				{"X", "10.0.0.5"},
				{"DB_PORT", "tcp://10.0.0.5:5432"},
				{"DB_PORT_5432_TCP", "tcp://10.0.0.5:5432"},
				{"DB_PORT_5432_TCP_ADDR", "10.0.0.5"},
				{"DB_PORT_5432_TCP_PORT", "5432"},
				{"DB_PORT_5432_TCP_PROTO", "tcp"},
				{"DB_SERVICE_HOST", "10.0.0.5"},
			},
		},
		"no service links": {
			links:    new(false),
			services: []*v1.Service{service("shop", "db", "10.0.0.5", v1.ServicePort{Port: 5432})},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod := testPod(func(p *v1.Pod) {
				p.Spec.EnableServiceLinks = test.links
				c := &p.Spec.Containers[0]
				c.Env, c.EnvFrom = test.env, test.envFrom
				c.Resources.Limits = v1.ResourceList{v1.ResourceCPU: resource.MustParse("1500m")}
				c.Resources.Requests = v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Ki")}
			})
			before := pod.DeepCopy()
			src := testSources()
			src.Services = test.services
			got, err := testNode().Env(pod, &pod.Spec.Containers[0], src)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Fatalf("got error %v, want %q", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var own []Var
			for _, v := range got {
				if !strings.HasPrefix(v.Name, "KUBERNETES_") {
					own = append(own, v)
				}
			}
			if diff := cmp.Diff(own, test.want); diff != "" {
				t.Errorf("got -, want +:\n%s", diff)
			}
			if diff := cmp.Diff(pod, before); diff != "" {
				t.Errorf("the pod was changed:\n%s", diff)
			}
		})
	}
}

func service(namespace, name, ip string, ports ...v1.ServicePort) *v1.Service {
	return &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1.ServiceSpec{ClusterIP: ip, Ports: ports},
	}
}

func TestEnvOfTheAPIServer(t *testing.T) {
	pod := testPod()
	got, err := testNode().Env(pod, &pod.Spec.Containers[0], testSources())
	if err != nil {
		t.Fatal(err)
	}
	want := []Var{
		{"KUBERNETES_PORT", "tcp://10.88.0.1:6443"},
		{"KUBERNETES_PORT_6443_TCP", "tcp://10.88.0.1:6443"},
		{"KUBERNETES_PORT_6443_TCP_ADDR", "10.88.0.1"},
		{"KUBERNETES_PORT_6443_TCP_PORT", "6443"},
		{"KUBERNETES_PORT_6443_TCP_PROTO", "tcp"},
		{"KUBERNETES_SERVICE_HOST", "10.88.0.1"},
		{"KUBERNETES_SERVICE_PORT", "6443"},
		{"KUBERNETES_SERVICE_PORT_HTTPS", "6443"},
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("got -, want +:\n%s", diff)
	}
}

func TestWhichServiceIsTheAPIServer(t *testing.T) {
	theirs := service("default", "kubernetes", "10.96.0.1", v1.ServicePort{Name: "https", Port: 443})
	tests := []struct {
		name     string
		host     string // the node's
		links    *bool
		services []*v1.Service
		want     string // KUBERNETES_SERVICE_HOST
	}{
		{"the API's", "", nil, []*v1.Service{theirs}, "10.96.0.1"},
		{"the API's, without links", "", new(false), []*v1.Service{theirs}, "10.96.0.1"},
		{"the node's", "10.88.0.1", new(false), []*v1.Service{theirs}, "10.88.0.1"},
		{"of that name in the pod's namespace", "10.88.0.1", nil, []*v1.Service{service("shop", "kubernetes", "10.0.0.9", v1.ServicePort{Port: 1}), theirs}, "10.0.0.9"},
		{"of that name in the pod's namespace, without links", "", new(false), []*v1.Service{service("shop", "kubernetes", "10.0.0.9", v1.ServicePort{Port: 1}), theirs}, "10.96.0.1"},
		{"none", "", nil, nil, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			pod := testPod(func(p *v1.Pod) { p.Spec.EnableServiceLinks = test.links })
			node, src := testNode(), testSources()
			node.ServiceHost, src.Services = test.host, test.services
			got, err := node.Env(pod, &pod.Spec.Containers[0], src)
			if err != nil {
				t.Fatal(err)
			}
			host := ""
			for _, v := range got {
				if v.Name == "KUBERNETES_SERVICE_HOST" {
					host = v.Value
				}
				if strings.HasPrefix(v.Name, "KUBERNETES_PORT_") && strings.HasSuffix(v.Name, "_ADDR") && v.Value != test.want {
					t.Errorf("%s is of another service: %s", v.Name, v.Value)
				}
			}
			if host != test.want {
				t.Errorf("got %q, want %q", host, test.want)
			}
		})
	}
}
