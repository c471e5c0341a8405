package node

import (
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/holdfast-dev/holdfast/internal/instance"
)

// inForce returns, in upstream's terms, the configuration that the kubelet of
// this node works by: the settings that are written, what the node decides
// itself, and upstream's defaults. /configz shows it.
func inForce(cfg Config, in *instance.Instance, endpoint string, port int) (*kubeletconfig.KubeletConfiguration, error) {
	c, err := cfg.Kubelet.complete()
	if err != nil {
		return nil, err
	}
	c.Address, c.Port = localhost, int32(port)
	c.ContainerRuntimeEndpoint = endpoint
	c.StaticPodPath, c.StaticPodURL = cfg.ManifestDir, cfg.ManifestURL.URL
	c.PodLogsDir, c.CgroupRoot = in.Path("logs", "pods"), in.CgroupParent()
	c.NodeLeaseDurationSeconds = int32(leaseDuration.Seconds())
	c.EvictionHard = cfg.Kubelet.settings().HardInForce()
	if cfg.Kubelet.HealthzPort == nil {
		c.HealthzPort = new(int32(0)) // two nodes of one machine could not both have upstream's
	}
	c.FailSwapOn, c.FailCgroupV1 = new(false), new(false)
	// Nothing is set for these, or done about them.
	c.OOMScoreAdj, c.MaxOpenFiles, c.MakeIPTablesUtilChains = nil, 0, nil
	c.KubeAPIQPS, c.KubeAPIBurst, c.EventRecordQPS, c.EventBurst = nil, 0, nil, 0
	return c, nil
}
