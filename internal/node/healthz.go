package node

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
)

// healthListener listens where the kubelet's health is told to everybody; nil if
// that is nowhere.
func (n *node) healthListener(ctx context.Context) (net.Listener, error) {
	k := &n.cfg.Kubelet
	if k.HealthzPort == nil || *k.HealthzPort == 0 {
		return nil, nil //nolint:nilnil // there is none
	}
	l, err := listen(ctx, netip.MustParseAddr(cmp.Or(k.HealthzBindAddress, localhost)), int(*k.HealthzPort))
	if err != nil {
		return nil, fmt.Errorf("serve the kubelet's health: %w (choose another port with kubelet.healthzPort, 0 for none)", err)
	}
	return l, nil
}
