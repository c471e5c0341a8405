package podvolumes

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/kubernetes/pkg/fieldpath"
)

// downward adds the files that tell a pod about itself.
func (r resolver) downward(c *content, items []v1.DownwardAPIVolumeFile) error {
	var errs []error
	for _, item := range items {
		var value string
		var err error
		switch {
		case item.FieldRef != nil:
			value, err = fieldpath.ExtractFieldPathAsString(r.pod, item.FieldRef.FieldPath)
		case item.ResourceFieldRef != nil:
			value, err = resourceField(r.pod, item.ResourceFieldRef, r.host.Allocatable)
		default:
			err = errors.New("neither fieldRef nor resourceFieldRef is set")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: downward API file %q: %w", Describe(r.volume.Name), item.Path, err))
			continue
		}
		c.put(item.Path, []byte(value), item.Mode, item.User)
	}
	return Join(errs...)
}

// resourceField returns a container's request or limit in units of the
// divisor, rounded up. A limit of CPU, memory or ephemeral storage that is not
// set is the node's allocatable, and a request that is not set is 0, as
// upstream's downward API has it.
func resourceField(pod *v1.Pod, ref *v1.ResourceFieldSelector, allocatable v1.ResourceList) (string, error) {
	var own *v1.Container
	for c := range containers(pod) {
		if c.Name == ref.ContainerName {
			own = c
		}
	}
	if own == nil {
		return "", fmt.Errorf("the pod has no container %q", ref.ContainerName)
	}
	which, name, _ := strings.Cut(ref.Resource, ".")
	resourceName := v1.ResourceName(name)
	hugePages := strings.HasPrefix(name, v1.ResourceHugePagesPrefix)
	switch resourceName {
	case v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage:
	default:
		if !hugePages {
			return "", fmt.Errorf("unsupported container resource %q", ref.Resource)
		}
	}
	var value resource.Quantity
	switch which {
	case "limits":
		limit, ok := own.Resources.Limits[resourceName]
		if (!ok || limit.IsZero()) && !hugePages {
			limit = allocatable[resourceName]
		}
		value = limit
	case "requests":
		value = own.Resources.Requests[resourceName]
	default:
		return "", fmt.Errorf("unsupported container resource %q", ref.Resource)
	}
	return inUnits(value, ref.Divisor, resourceName == v1.ResourceCPU), nil
}

// inUnits divides and rounds up. CPU is counted in thousandths first.
func inUnits(value, divisor resource.Quantity, cpu bool) string {
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	n, d := value.Value(), divisor.Value()
	if cpu {
		n, d = value.MilliValue(), divisor.MilliValue()
	}
	if d <= 0 {
		d = 1
	}
	units := n / d
	if n%d > 0 {
		units++
	}
	return strconv.FormatInt(units, 10)
}
