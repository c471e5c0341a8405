package podvolumes

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestHugePages(t *testing.T) {
	asks := func(sizes ...string) func(*v1.Pod) {
		return func(p *v1.Pod) {
			limits := v1.ResourceList{}
			for _, size := range sizes {
				limits[v1.ResourceName(v1.ResourceHugePagesPrefix+size)] = resource.MustParse("64Mi")
			}
			p.Spec.InitContainers = []v1.Container{{Name: "init", Resources: v1.ResourceRequirements{Limits: limits, Requests: limits}}}
		}
	}
	podLevel := func(p *v1.Pod) {
		p.Spec.Resources = &v1.ResourceRequirements{Requests: v1.ResourceList{"hugepages-1Gi": resource.MustParse("1Gi")}}
	}
	const mi, gi = int64(1 << 20), int64(1 << 30)
	tests := []struct {
		name   string
		medium v1.StorageMedium
		limit  string
		change func(*v1.Pod)
		page   int64
		size   int64
		err    string
	}{
		{"the one size that is asked for", "HugePages", "", asks("2Mi"), 2 * mi, 0, ""},
		{"the same size, written otherwise", "HugePages-2048Ki", "", asks("2Mi"), 2 * mi, 0, ""},
		{"one of two sizes", "HugePages-1Gi", "", asks("2Mi", "1Gi"), gi, 0, ""},
		{"of the pod as a whole", "HugePages", "", podLevel, gi, 0, ""},
		{"with a limit", "HugePages-2Mi", "8Mi", asks("2Mi"), 2 * mi, 8 * mi, ""},
		{"none is asked for", "HugePages", "", nil, 0, 0, "no container of the pod requests"},
		{"another size is asked for", "HugePages-1Gi", "", asks("2Mi"), 0, 0, "no container of the pod requests"},
		{"two sizes and none named", "HugePages", "", asks("2Mi", "1Gi"), 0, 0, "several sizes"},
		{"no size at all", "HugePages-", "", asks("2Mi"), 0, 0, "emptyDir.medium"},
		{"a negative size", "HugePages--2Mi", "", asks("2Mi"), 0, 0, "not positive"},
		{"another medium", "Paper", "", nil, 0, 0, `cannot mount medium "Paper"`},
		{"a resource that is no size", "HugePages", "", asks("big"), 0, 0, `page size "big"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: tt.medium}}}
			if tt.limit != "" {
				v.EmptyDir.SizeLimit = new(resource.MustParse(tt.limit))
			}
			got, err := Resolve(t.Context(), pod(tt.change, v), &v, objects, Host{})
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("err = %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil || got.PageSize != tt.page || got.SizeLimit != tt.size {
				t.Errorf("page size %d, limit %d, %v; want %d and %d", got.PageSize, got.SizeLimit, err, tt.page, tt.size)
			}
		})
	}
}
