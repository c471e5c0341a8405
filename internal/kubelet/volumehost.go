package kubelet

import (
	"context"
	"errors"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/csi"
	"github.com/holdfast-dev/holdfast/internal/kubelet/csinode"
	"github.com/holdfast-dev/holdfast/internal/kubelet/devices"
	"github.com/holdfast-dev/holdfast/internal/kubelet/pluginregistry"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
	"github.com/holdfast-dev/holdfast/internal/kubelet/volumeexpand"
	"github.com/holdfast-dev/holdfast/internal/kubelet/volumemanager"
	"github.com/holdfast-dev/holdfast/internal/kubelet/volumeplugin"
)

// csiHolder holds the CSIDrivers of the drivers that are registered.
const csiHolder = types.UID("CSI drivers")

// wireVolumes makes what mounts volumes, and what drivers of volumes register with.
func (k *Kubelet) wireVolumes() {
	log := k.cfg.Log
	host := volumeplugin.New(volumeplugin.Config{Dir: k.cfg.Dir, Log: log.With("part", "volumeplugin"), Events: k.events})
	k.csi = csi.New(csi.Config{
		Dir: k.cfg.Dir, Node: k.cfg.NodeName, Objects: k.objects, Log: log.With("part", "csi"),
		SetGroup: host.SetGroup, Unmap: host.Unmap, Changed: k.csiDriversChanged,
		Metrics: k.cfg.Metrics,
	})
	k.csiNode = csinode.New(csinode.Config{
		Node: k.cfg.NodeName, Nodes: k.cfg.Client.CoreV1().Nodes(), CSINodes: k.cfg.Client.StorageV1().CSINodes(),
		Registered: k.node.Registered(), Refresh: k.csi.Refresh, Log: log.With("part", "csinode"),
	})
	k.plugins = pluginregistry.New(pluginregistry.Config{
		Dir:      filepath.Join(k.cfg.Dir, "plugins_registry"),
		Handlers: map[string]pluginregistry.Handler{csi.PluginType: csiHandler{k.csi}, devices.PluginType: deviceHandler{k}}, Log: log.With("part", "pluginregistry"),
	})
	mounts := volumeHost{host, k.csi}
	k.volumes = volumemanager.New(volumemanager.Config{
		Log: log.With("part", "volumemanager"), Mounts: mounts, SubPaths: host, Folders: mounts,
		Holder: k.objects, Objects: k.objects, Metrics: k.cfg.Metrics,
		Host: func() podvolumes.Host {
			return podvolumes.Host{Allocatable: k.allocatable(), Labels: k.labels(), Attaches: k.csi.Attaches}
		},
		Grower: volumeexpand.New(volumeexpand.Config{
			Grow: mounts.Grow, Claims: k.cfg.Client.CoreV1(), Events: k.events, Log: log.With("part", "volumeexpand"),
		}),
		Reported: k.reported, InUseChanged: k.node.Poke,
	})
}

// csiDriversChanged tells who wants to know which drivers are registered.
func (k *Kubelet) csiDriversChanged() {
	var names []string
	var drivers []csinode.Driver
	for _, d := range k.csi.Drivers() {
		names = append(names, d.Name)
		drivers = append(drivers, csinode.Driver(d))
	}
	k.objects.HoldCSIDrivers(csiHolder, names)
	k.csiNode.Set(drivers)
}

// reported reports whether the API's Node says that a volume is in use.
func (k *Kubelet) reported(name v1.UniqueVolumeName) bool {
	node := k.node.Node()
	return node != nil && slices.Contains(node.Status.VolumesInUse, name)
}

// volumeHost has each volume made by who can.
type volumeHost struct {
	*volumeplugin.Host
	csi *csi.Host
}

// SetUp makes a volume, or brings one that is there up to date.
func (h volumeHost) SetUp(ctx context.Context, v *podvolumes.Volume) (string, error) {
	if v.Kind == podvolumes.CSI {
		return h.csi.SetUp(ctx, v)
	}
	return h.Host.SetUp(ctx, v)
}

// TearDown takes a volume from a pod.
func (h volumeHost) TearDown(ctx context.Context, uid types.UID, id podvolumes.ID) error {
	if id.Kind == podvolumes.CSI {
		return h.csi.TearDown(ctx, uid, id)
	}
	return h.Host.TearDown(ctx, uid, id)
}

// Grow makes a volume as large as its PersistentVolume.
func (h volumeHost) Grow(ctx context.Context, v *podvolumes.Volume) error {
	if v.Kind == podvolumes.CSI {
		return h.csi.Grow(ctx, v)
	}
	return h.Host.Grow(ctx, v)
}

// Found returns every volume that is on this machine.
func (h volumeHost) Found(ctx context.Context) ([]podvolumes.Found, error) {
	found, err := h.Host.Found(ctx)
	for i, f := range found {
		if f.Kind == podvolumes.CSI {
			found[i] = h.csi.Found(f)
		}
	}
	return found, err
}

// volumeMeasurer has each volume measured by who can do it best: its driver, or the
// node.
type volumeMeasurer struct {
	host *volumeplugin.Host
	csi  *csi.Host
}

// Measure returns what the volume at path takes.
func (m volumeMeasurer) Measure(ctx context.Context, path string) (podvolumes.Usage, error) {
	if usage, err := m.csi.Measure(ctx, path); !errors.Is(err, csi.ErrNoStats) {
		return usage, err
	}
	return m.host.Measure(ctx, path)
}

// volumePaths knows where volumes are, raw devices among them.
type volumePaths struct{ *volumemanager.Manager }

// Paths returns where each of a pod's volumes is, by the pod's name for it.
func (p volumePaths) Paths(uid types.UID) map[string]string {
	paths := p.Manager.Paths(uid)
	for name, device := range p.Devices(uid) {
		paths[name] = device.Path
	}
	return paths
}

// csiHandler passes the drivers that register to who uses them.
type csiHandler struct{ host *csi.Host }

// Register takes a driver.
func (h csiHandler) Register(ctx context.Context, p pluginregistry.Plugin) error {
	return h.host.Register(ctx, p.Name, p.Endpoint, p.Versions)
}

// Deregister lets go of a driver.
func (h csiHandler) Deregister(p pluginregistry.Plugin) { h.host.Deregister(p.Name, p.Endpoint) }
