package podfiles

import (
	"maps"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Given is what a container has of this machine for itself, beside what its pod says:
// its devices, and what their plugin wants with them.
type Given struct {
	Env         []Var // before the container's own, which replace them
	Mounts      []*runtimeapi.Mount
	Devices     []*runtimeapi.Device
	CDIDevices  []*runtimeapi.CDIDevice
	Annotations map[string]string // those of the node replace them
}

// annotations returns own with those that were given.
func (g Given) annotations(own map[string]string) map[string]string {
	if len(g.Annotations) == 0 {
		return own
	}
	all := maps.Clone(g.Annotations)
	maps.Copy(all, own)
	return all
}
