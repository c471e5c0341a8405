package podvolumes

import (
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// IsHugePages reports whether an emptyDir's medium is huge pages of some size.
func IsHugePages(medium v1.StorageMedium) bool {
	return medium == v1.StorageMediumHugePages || strings.HasPrefix(string(medium), string(v1.StorageMediumHugePagesPrefix))
}

// mediumPageSize returns the page size in bytes that a medium names; 0: it names
// none and takes what the pod asks for.
func mediumPageSize(medium v1.StorageMedium) (int64, error) {
	text, named := strings.CutPrefix(string(medium), string(v1.StorageMediumHugePagesPrefix))
	if !named {
		return 0, nil
	}
	return pageSize(text)
}

func pageSize(text string) (int64, error) {
	size, err := resource.ParseQuantity(text)
	if err != nil {
		return 0, fmt.Errorf("page size %q: %w", text, err)
	}
	if size.Value() <= 0 {
		return 0, fmt.Errorf("page size %q is not positive", text)
	}
	return size.Value(), nil
}

// hugePageSize returns the page size in bytes of an emptyDir of a pod. The pod
// must ask for pages of that size as a resource, or nobody would count them; a
// medium without a size takes the one size that the pod asks for. These are
// upstream's rules.
func hugePageSize(pod *v1.Pod, medium v1.StorageMedium) (int64, error) {
	want, err := mediumPageSize(medium)
	if err != nil {
		return 0, fmt.Errorf("emptyDir.medium: %w", err)
	}
	asked, err := askedPageSizes(pod)
	if err != nil {
		return 0, err
	}
	switch {
	case want != 0 && asked[want]:
		return want, nil
	case want != 0 || len(asked) == 0:
		return 0, fmt.Errorf("emptyDir.medium %s: no container of the pod requests such huge pages: set resources.limits of one", medium)
	case len(asked) > 1:
		return 0, fmt.Errorf("emptyDir.medium %s: the pod requests huge pages of several sizes: name one in the medium, such as HugePages-2Mi", medium)
	}
	for size := range asked {
		want = size
	}
	return want, nil
}

// askedPageSizes returns the sizes in bytes of the huge pages that a pod requests.
func askedPageSizes(pod *v1.Pod) (map[int64]bool, error) {
	sizes := map[int64]bool{}
	var errs []error
	add := func(requests v1.ResourceList) {
		for name := range requests {
			text, ok := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix)
			if !ok {
				continue
			}
			size, err := pageSize(text)
			errs = append(errs, err)
			sizes[size] = true
		}
	}
	if pod.Spec.Resources != nil {
		add(pod.Spec.Resources.Requests)
		add(pod.Spec.Resources.Limits) // of which requests are made where they are not set
	}
	for c := range containers(pod) {
		add(c.Resources.Requests)
		add(c.Resources.Limits)
	}
	return sizes, errors.Join(errs...)
}
