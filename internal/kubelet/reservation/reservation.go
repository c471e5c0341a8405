// Package reservation says what of a machine is kept from its pods: kubeReserved,
// systemReserved and enforceNodeAllocatable of upstream's configuration.
//
// Everything here is a pure function; any goroutine may call it.
package reservation

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// pids is upstream's name of process identifiers where they are reserved.
const pids v1.ResourceName = "pid"

// A Reservation is what is kept from pods.
type Reservation struct {
	Resources v1.ResourceList // cpu, memory, ephemeral-storage, pid
	// Enforced bounds all pods together by their cgroup, not only by what is
	// scheduled.
	Enforced bool
}

// Of returns the reservation of a configuration, or all that cannot be read of it.
func Of(k *kubeletconfig.KubeletConfiguration) (Reservation, error) {
	r := Reservation{Resources: v1.ResourceList{}, Enforced: slices.Contains(k.EnforceNodeAllocatable, "pods")}
	var errs []error
	for _, of := range []struct {
		field   string
		amounts map[string]string
	}{{"kubeReserved", k.KubeReserved}, {"systemReserved", k.SystemReserved}} {
		for _, name := range slices.Sorted(maps.Keys(of.amounts)) {
			amount, err := resource.ParseQuantity(of.amounts[name])
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %s: %q is no quantity, such as 500m or 1Gi: %w", of.field, name, of.amounts[name], err))
				continue
			}
			sum := r.Resources[v1.ResourceName(name)]
			sum.Add(amount)
			r.Resources[v1.ResourceName(name)] = sum
		}
	}
	return r, errors.Join(errs...)
}

// Check returns, in upstream's words, which resources a machine has less of than is
// kept from pods, with what is withheld so that there is no pressure; or nil. What the
// capacity does not name is not checked.
func (r Reservation) Check(capacity, withheld v1.ResourceList) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(capacity)) {
		kept, all := withheld[name].DeepCopy(), capacity[name]
		kept.Add(r.Resources[name])
		if kept.Cmp(all) > 0 {
			errs = append(errs, fmt.Errorf("invalid Node Allocatable configuration. Resource %q has a reservation of %s but capacity of %s. Expected capacity >= reservation",
				name, kept.String(), all.String()))
		}
	}
	return errors.Join(errs...)
}

// Bounds are those of all pods together.
type Bounds struct {
	MilliCPU int64 // their weight, in thousandths of a CPU; 0: not known
	Memory   int64 // bytes; 0: no limit
	PIDs     int64 // processes and threads; 0: no limit
}

// Bounds returns what pods together get of a machine with so much, and so many process
// identifiers; 0: not known.
func (r Reservation) Bounds(capacity v1.ResourceList, maxPIDs int64) Bounds {
	b := Bounds{MilliCPU: capacity.Cpu().MilliValue()}
	if !r.Enforced {
		return b
	}
	b.MilliCPU = max(0, b.MilliCPU-r.Resources.Cpu().MilliValue())
	b.Memory = max(0, capacity.Memory().Value()-r.Resources.Memory().Value())
	reserved := r.Resources[pids]
	b.PIDs = max(0, maxPIDs-reserved.Value())
	return b
}
