package hoststats

import (
	"strings"
	"testing"
)

func TestThermalThrottle(t *testing.T) {
	h := fakeHost(t, map[string]string{
		"sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count": "0", "sys/devices/system/cpu/cpu12/thermal_throttle/x": "",
		"sys/devices/system/cpu/cpufreq/thermal_throttle/x": "", "sys/devices/system/cpu/cpu1/topology/x": "",
	})
	got := strings.ReplaceAll(strings.Join(h.ThermalThrottle(), " "), h.root, "")
	if want := "/sys/devices/system/cpu/cpu0/thermal_throttle /sys/devices/system/cpu/cpu12/thermal_throttle"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
