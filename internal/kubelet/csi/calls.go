package csi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

// A callError is a driver's own answer to a call.
type callError struct {
	call string
	s    *status.Status
}

func (e *callError) Error() string {
	return fmt.Sprintf("%s: %s (%s)", e.call, e.s.Message(), e.s.Code())
}

// final reports whether a call has ended for sure, without success, and not
// perhaps goes on: upstream's list of codes.
func final(err error) bool {
	var e *callError
	if !errors.As(err, &e) {
		return false
	}
	switch e.s.Code() {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.ResourceExhausted, codes.Aborted:
		return false
	default:
		return true
	}
}

// call makes one call of a driver, bounded in time. A connection a call, as
// upstream: drivers are asked rarely, and one that comes back is found at once.
func (h *Host) call(ctx context.Context, d *driver, name string, do func(ctx context.Context, c spec.NodeClient) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.Timeout)
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///"+d.endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", d.endpoint)
		}))
	if err != nil {
		return fmt.Errorf("connect to CSI driver %s at %s: %w", d.Name, d.endpoint, err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	h.cfg.Log.Debug("CSI driver is called", "object", d.Name, "verb", name)
	began := time.Now()
	err = do(ctx, spec.NewNodeClient(conn))
	h.calls.WithLabelValues(d.Name, "/csi.v1.Node/"+name, status.Code(err).String(), "false").Observe(time.Since(began).Seconds())
	if err != nil {
		return fmt.Errorf("CSI driver %s: %w", d.Name, &callError{name, status.Convert(err)})
	}
	return nil
}

// ask fills in what a driver says of itself.
func (h *Host) ask(ctx context.Context, d *driver) error {
	err := h.call(ctx, d, "NodeGetInfo", func(ctx context.Context, c spec.NodeClient) error {
		info, err := c.NodeGetInfo(ctx, &spec.NodeGetInfoRequest{})
		d.NodeID, d.MaxVolumes, d.Topology = info.GetNodeId(), info.GetMaxVolumesPerNode(), info.GetAccessibleTopology().GetSegments()
		return err
	})
	if err != nil {
		return err
	}
	if d.NodeID == "" {
		return errors.New("NodeGetInfo: the driver has no name for this node")
	}
	return h.call(ctx, d, "NodeGetCapabilities", func(ctx context.Context, c spec.NodeClient) error {
		all, err := c.NodeGetCapabilities(ctx, &spec.NodeGetCapabilitiesRequest{})
		d.can = map[spec.NodeServiceCapability_RPC_Type]bool{}
		for _, capability := range all.GetCapabilities() {
			d.can[capability.GetRpc().GetType()] = true
		}
		return err
	})
}

func (d *driver) stages() bool { return d.can[spec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME] }

// groups reports whether the driver itself gives volumes to the pod's group.
func (d *driver) groups() bool { return d.can[spec.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP] }

// capability is how a volume is asked for.
func (d *driver) capability(v *podvolumes.Volume) *spec.VolumeCapability {
	out := &spec.VolumeCapability{AccessMode: &spec.VolumeCapability_AccessMode{Mode: d.accessMode(v.CSI.AccessMode())}}
	if v.Block {
		out.AccessType = &spec.VolumeCapability_Block{Block: &spec.VolumeCapability_BlockVolume{}}
		return out
	}
	mount := &spec.VolumeCapability_MountVolume{FsType: v.CSI.FSType, MountFlags: v.MountOptions}
	if v.FSGroup != nil && d.groups() {
		mount.VolumeMountGroup = strconv.FormatInt(*v.FSGroup, 10)
	}
	out.AccessType = &spec.VolumeCapability_Mount{Mount: mount}
	return out
}

// accessMode is the driver's word for a mode. One that does not tell one pod
// from several of a node is asked for one writer on one node.
func (d *driver) accessMode(mode v1.PersistentVolumeAccessMode) spec.VolumeCapability_AccessMode_Mode {
	tells := d.can[spec.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER]
	switch mode {
	case v1.ReadWriteOnce:
		if tells {
			return spec.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
		}
		return spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	case v1.ReadWriteOncePod:
		if tells {
			return spec.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
		}
		return spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	case v1.ReadOnlyMany:
		return spec.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	case v1.ReadWriteMany:
		return spec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	}
	return spec.VolumeCapability_AccessMode_UNKNOWN
}
