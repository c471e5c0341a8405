package reservation

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

func has(cpu, memory string) v1.ResourceList {
	return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
}

func TestBounds(t *testing.T) {
	for name, test := range map[string]struct {
		config kubeletconfig.KubeletConfiguration
		want   Bounds
	}{
		"nothing reserved": {
			kubeletconfig.KubeletConfiguration{EnforceNodeAllocatable: []string{"pods"}},
			Bounds{MilliCPU: 2000, Memory: 1 << 30, PIDs: 1000},
		},
		"both are taken": {
			kubeletconfig.KubeletConfiguration{
				EnforceNodeAllocatable: []string{"pods"},
				KubeReserved:           map[string]string{"cpu": "200m", "memory": "100Mi", "pid": "100"},
				SystemReserved:         map[string]string{"cpu": "300m", "memory": "156Mi", "pid": "50", "ephemeral-storage": "1Gi"},
			},
			Bounds{MilliCPU: 1500, Memory: 768 << 20, PIDs: 850},
		},
		"not enforced": {
			kubeletconfig.KubeletConfiguration{EnforceNodeAllocatable: []string{"none"}, KubeReserved: map[string]string{"cpu": "1", "memory": "100Mi"}},
			Bounds{MilliCPU: 2000},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Of(&test.config)
			if err != nil {
				t.Fatal(err)
			}
			if got := r.Bounds(has("2", "1Gi"), 1000); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestUnreadable(t *testing.T) {
	_, err := Of(&kubeletconfig.KubeletConfiguration{KubeReserved: map[string]string{"cpu": "much"}, SystemReserved: map[string]string{"memory": "more"}})
	for _, want := range []string{`kubeReserved: cpu: "much"`, `systemReserved: memory: "more"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestCheck(t *testing.T) {
	for name, test := range map[string]struct{ reserved, withheld, want string }{
		"all of it":        {"900Mi", "124Mi", ""},
		"more than it has": {"900Mi", "125Mi", `Resource "memory" has a reservation of 1025Mi but capacity of 1Gi`},
	} {
		t.Run(name, func(t *testing.T) {
			r := Reservation{Resources: has("1", test.reserved)}
			err := r.Check(has("2", "1Gi"), v1.ResourceList{v1.ResourceMemory: resource.MustParse(test.withheld)})
			switch {
			case test.want == "" && err != nil:
				t.Errorf("got %v, want none", err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}
