package clusternode

import (
	"errors"
	"fmt"

	"github.com/holdfast-dev/holdfast/internal/kubelet"
	"github.com/holdfast-dev/holdfast/internal/kubelet/nodeaddress"
	"github.com/holdfast-dev/holdfast/internal/kubelet/nodelabels"
	"github.com/holdfast-dev/holdfast/internal/kubelet/nodestatus"
)

// nodeSettings is how the Node object is made and kept.
func (n *Node) nodeSettings() (kubelet.NodeSettings, error) {
	k := n.cfg.Kubelet
	s := kubelet.NodeSettings{
		Registration: nodestatus.Registration{
			Never: !*k.RegisterNode, Labels: n.cfg.Labels, Taints: k.RegisterWithTaints, ProviderID: k.ProviderID, ExternalCloud: n.cfg.ExternalCloud,
		},
		MaxPods: int64(k.MaxPods), PodsPerCore: int64(k.PodsPerCore), MaxImages: int(*k.NodeStatusMaxImages),
		StatusFrequency: k.NodeStatusUpdateFrequency.Duration, ReportFrequency: k.NodeStatusReportFrequency.Duration,
	}
	if s.MaxImages == 0 {
		return s, errors.New("nodeStatusMaxImages: 0 is not possible: write 1 or more, or -1 for all images")
	}
	if err := nodelabels.Check(n.cfg.Labels); err != nil {
		return s, err
	}
	if n.cfg.NodeIP == "" {
		return s, nil
	}
	ips, ignored, err := nodeaddress.ParseIPs(n.cfg.NodeIP)
	if err != nil {
		return s, err
	}
	if len(ips) == 0 {
		return s, fmt.Errorf("--node-ip %q: there is no address in it", n.cfg.NodeIP)
	}
	for _, text := range ignored {
		n.log.Warn("what --node-ip says is no address", "address", text)
	}
	s.IPs = ips
	return s, nil
}
