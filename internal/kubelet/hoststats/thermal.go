package hoststats

import "path/filepath"

// ThermalThrottle returns the folders in which the kernel says how hot the
// processors are, from which a container can tell what others do. Not every
// machine has them.
func (h *Host) ThermalThrottle() []string {
	paths, err := filepath.Glob(filepath.Join(h.root, "/sys/devices/system/cpu/cpu[0-9]*/thermal_throttle"))
	if err != nil {
		return nil // the pattern is good
	}
	return paths
}
