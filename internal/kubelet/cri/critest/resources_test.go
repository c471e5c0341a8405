package critest

import (
	"errors"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
)

// What a running container may use is changed, up and down, and is told from
// then on by runtimes that tell it.
func testResources(t *testing.T, s subject) {
	p := newPod(t, s)
	const mib = 1 << 20
	id := p.start("runs", func(c *runtimeapi.ContainerConfig) {
		c.Linux = &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{
			CpuPeriod: 100_000, CpuQuota: 20_000, CpuShares: 204, MemoryLimitInBytes: 64 * mib,
		}}
	})
	usage, err := s.MemoryUsage(t.Context(), id)
	if err != nil || usage == 0 || usage > 64*mib {
		t.Errorf("memory usage: %d, %v", usage, err)
	}
	for _, want := range []*runtimeapi.LinuxContainerResources{
		{CpuPeriod: 100_000, CpuQuota: 50_000, CpuShares: 512, MemoryLimitInBytes: 128 * mib},
		{CpuPeriod: 100_000, CpuQuota: 10_000, CpuShares: 102, MemoryLimitInBytes: 96 * mib},
	} {
		if err := s.UpdateResources(t.Context(), id, want); err != nil {
			t.Fatal(err)
		}
		status, err := s.Inspect(t.Context(), p.uid)
		if err != nil {
			t.Fatal(err)
		}
		c := status.Container("runs")
		if c == nil || c.State != observed.Running {
			t.Fatalf("container: %+v", c)
		}
		if c.Resources == nil {
			continue // containerd before 2 does not tell
		}
		got := c.Resources.GetLinux()
		if got.GetCpuQuota() != want.GetCpuQuota() || got.GetCpuShares() != want.GetCpuShares() || got.GetMemoryLimitInBytes() != want.GetMemoryLimitInBytes() {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	if err := s.UpdateResources(t.Context(), "nobody", &runtimeapi.LinuxContainerResources{}); !errors.Is(err, observed.ErrNotFound) {
		t.Errorf("of nobody: %v", err)
	}
	if _, err := s.MemoryUsage(t.Context(), "nobody"); !errors.Is(err, observed.ErrNotFound) {
		t.Errorf("usage of nobody: %v", err)
	}
}
