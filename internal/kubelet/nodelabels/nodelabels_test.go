package nodelabels

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCheck(t *testing.T) {
	tests := []struct {
		name   string
		labels map[string]string
		want   []string // in the error; none: no error
	}{
		{"none", nil, nil},
		{"free", map[string]string{"site": "a", "example.org/rack": "7", "node.example.io/x": ""}, nil},
		{"the kubelet's own", map[string]string{
			"kubernetes.io/hostname": "n", "topology.kubernetes.io/zone": "z", "node.kubernetes.io/instance-type": "m",
			"kubelet.kubernetes.io/x": "1", "node.kubernetes.io/x": "1", "a.node.kubernetes.io/x": "1", "beta.kubernetes.io/os": "linux",
		}, nil},
		{"a role", map[string]string{"node-role.kubernetes.io/worker": "", "kubernetes.io/x": "1", "a.k8s.io/b": "1", "k8s.io/c": ""}, []string{
			"unknown 'kubernetes.io' or 'k8s.io' labels specified with --node-labels: [a.k8s.io/b k8s.io/c kubernetes.io/x node-role.kubernetes.io/worker]",
			"must begin with an allowed prefix (kubelet.kubernetes.io, node.kubernetes.io)", "kubernetes.io/arch",
		}},
		{"not those domains", map[string]string{"notkubernetes.io/x": "1", "kubernetes.io.example.org/x": "1"}, nil},
		{"a key that is none", map[string]string{"a b": "1"}, []string{"invalid node labels: 'a b' - "}},
		{"a value that is none", map[string]string{"a": "x y"}, []string{"invalid node labels: 'x y' - "}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := Check(tt.labels)
			if (err == nil) != (len(tt.want) == 0) {
				t.Fatalf("got %v, want %q in the error", err, tt.want)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %q in it", err, want)
				}
			}
		})
	}
}

func TestReconciled(t *testing.T) {
	labels := New("n1", map[string]string{"site": "a", "topology.kubernetes.io/zone": "z", "node.kubernetes.io/instance-type": "", "beta.kubernetes.io/arch": "mine"})
	if labels["kubernetes.io/hostname"] != "n1" || labels["site"] != "a" || labels["beta.kubernetes.io/arch"] != "mine" || labels["beta.kubernetes.io/os"] != "linux" {
		t.Errorf("labels of a new node: %v", labels)
	}
	want := map[string]string{
		"kubernetes.io/hostname": "n1", "topology.kubernetes.io/zone": "z", "beta.kubernetes.io/arch": "mine", "beta.kubernetes.io/os": "linux",
		"kubernetes.io/os": "linux", "kubernetes.io/arch": Platform()["kubernetes.io/arch"],
	}
	if diff := cmp.Diff(Reconciled(labels), want); diff != "" {
		t.Errorf("of a node that exists (-got +want):\n%s", diff)
	}
}
