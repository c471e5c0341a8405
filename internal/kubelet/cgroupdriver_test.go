package kubelet

import (
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestCheckCgroupDriver(t *testing.T) {
	for name, c := range map[string]struct {
		driver     runtimeapi.CgroupDriver
		known      bool
		configured string
		want       string // empty: it is possible
	}{
		"both say cgroupfs":         {runtimeapi.CgroupDriver_CGROUPFS, true, "cgroupfs", ""},
		"what the runtime says":     {runtimeapi.CgroupDriver_CGROUPFS, true, "systemd", ""},
		"systemd":                   {runtimeapi.CgroupDriver_SYSTEMD, true, "cgroupfs", "the container runtime makes cgroups by systemd"},
		"the runtime does not say":  {configured: "cgroupfs"},
		"only the configuration is": {configured: "systemd", want: `cgroupDriver: "systemd" is not possible`},
	} {
		err := checkCgroupDriver(c.driver, c.known, c.configured)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}
