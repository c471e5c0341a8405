package kubelet

import (
	"context"
	"errors"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/holdfast-dev/holdfast/internal/retry"
)

// CheckCgroupDriver asks the runtime, until it answers or ctx is done, by what it
// makes cgroups. The error says that the agent cannot do it so; nil is for all
// else. As upstream has it, what the runtime says counts, and only for one that does
// not say, configured: the field cgroupDriver.
func (k *Kubelet) CheckCgroupDriver(ctx context.Context, configured string) error {
	for failures := 1; ; failures++ {
		driver, known, err := k.runtime.CgroupDriver(ctx)
		if err == nil {
			return checkCgroupDriver(driver, known, configured)
		}
		if !retry.Sleep(ctx, retry.Pause(failures, time.Second, 10*time.Second)) {
			return nil // nobody wants to know any more
		}
	}
}

// checkCgroupDriver judges an answer.
func checkCgroupDriver(driver runtimeapi.CgroupDriver, known bool, configured string) error {
	switch {
	case known && driver == runtimeapi.CgroupDriver_SYSTEMD:
		return errors.New("the container runtime makes cgroups by systemd, which is not possible with this version: " +
			"write SystemdCgroup = false for containerd's runtimes, or cgroup_manager = \"cgroupfs\" for CRI-O, and start it anew")
	case !known && configured == "systemd":
		return errors.New("cgroupDriver: \"systemd\" is not possible with this version, and the container runtime does not say that it makes cgroups otherwise: " +
			"write cgroupDriver: cgroupfs, and SystemdCgroup = false for containerd's runtimes")
	}
	return nil
}
