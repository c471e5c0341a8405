package kubelet

import (
	"cmp"
	"net/netip"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/hoststats"
	"github.com/holdfast-dev/holdfast/internal/kubelet/nodeaddress"
	"github.com/holdfast-dev/holdfast/internal/kubelet/nodestatus"
	"github.com/holdfast-dev/holdfast/internal/version"
)

// NodeSettings say how the Node object is made and kept.
type NodeSettings struct {
	Registration nodestatus.Registration
	// Hostname is the node's label and address of that kind (--hostname-override).
	// Default: its name.
	Hostname string
	// IPs are those of --node-ip, as nodeaddress.ParseIPs reads them.
	IPs []netip.Addr

	MaxPods     int64 // default: 110
	PodsPerCore int64 // zero: no limit
	MaxImages   int   // nodeStatusMaxImages; zero: 50, negative: all

	StatusFrequency time.Duration // nodeStatusUpdateFrequency; default: 10s
	ReportFrequency time.Duration // nodeStatusReportFrequency; default: 5m
}

// declaredFeatures are those of upstream's registry of node features that this kubelet
// has (KEP 5328), in order.
var declaredFeatures = []string{"InPlacePodLevelResourcesVerticalScaling", "RestartAllContainersOnContainerExits"}

// wireNode makes what keeps the Node object.
func (k *Kubelet) wireNode() {
	n := &k.cfg.Node
	hostname := cmp.Or(n.Hostname, k.cfg.NodeName)
	addresses := nodeaddress.Fixed(hostname, k.cfg.Addresses...)
	if len(k.cfg.Addresses) == 0 {
		addresses = nodeaddress.New(nodeaddress.Config{Node: k.cfg.NodeName, Hostname: hostname, IPs: n.IPs, ExternalCloud: n.Registration.ExternalCloud})
	}
	k.node = nodestatus.New(nodestatus.Config{
		Node: k.cfg.NodeName, Nodes: k.cfg.Client.CoreV1().Nodes(), Leases: k.cfg.Client.CoordinationV1().Leases(v1.NamespaceNodeLease),
		Runtime: k.runtime, Machine: hoststats.New(k.cfg.Dir), Events: k.events, Log: k.cfg.Log.With("part", "nodestatus"),
		Hostname: hostname, Addresses: addresses, KubeletPort: k.port(), Version: version.Kubernetes, Registration: n.Registration,
		MaxPods: n.MaxPods, PodsPerCore: n.PodsPerCore, MaxImages: n.MaxImages, Features: declaredFeatures, Reserved: k.reserved(),
		Pressure: k.pressure, Withheld: k.cfg.Eviction.Withheld, PressureTaints: k.cfg.PressureTaints,
		VolumesInUse:    func() []v1.UniqueVolumeName { return k.volumes.InUse() },
		Devices:         func() (capacity, allocatable v1.ResourceList, removed []string) { return k.devices.Resources() },
		StatusFrequency: n.StatusFrequency, ReportFrequency: n.ReportFrequency, LeaseDuration: k.cfg.LeaseDuration,
		Checks: []nodestatus.Check{{Name: "PLEG", Err: func() error { return k.pleg.Healthy() }}, {Err: func() error { return k.shutdown.Err() }}},
	})
}

// addresses are the node's as pods see them, the primary one first.
func (k *Kubelet) addresses() []string {
	if len(k.cfg.Addresses) == 0 {
		return k.node.HostIPs()
	}
	ips := make([]string, len(k.cfg.Addresses))
	for i, a := range k.cfg.Addresses {
		ips[i] = a.String()
	}
	return ips
}

// HostIPs are the node's addresses, the primary one first; none: they are not known
// yet.
func (k *Kubelet) HostIPs() []string { return k.addresses() }

// hostIP is the primary one; empty: there is none yet.
func (k *Kubelet) hostIP() string {
	if ips := k.addresses(); len(ips) > 0 {
		return ips[0]
	}
	return ""
}
