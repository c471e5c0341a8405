package csidriver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// capabilities are those that Holdfast uses.
var capabilities = []spec.NodeServiceCapability_RPC_Type{
	spec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
	spec.NodeServiceCapability_RPC_GET_VOLUME_STATS,
	spec.NodeServiceCapability_RPC_EXPAND_VOLUME,
}

// NodeGetInfo says how the driver calls this node.
func (d *Driver) NodeGetInfo(context.Context, *spec.NodeGetInfoRequest) (*spec.NodeGetInfoResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	info := &spec.NodeGetInfoResponse{NodeId: "node-of-" + d.cfg.Name, MaxVolumesPerNode: d.cfg.MaxVolumes}
	if d.cfg.Topology != nil {
		info.AccessibleTopology = &spec.Topology{Segments: d.cfg.Topology}
	}
	return info, nil
}

// NodeGetCapabilities says what the driver can do.
func (d *Driver) NodeGetCapabilities(context.Context, *spec.NodeGetCapabilitiesRequest) (*spec.NodeGetCapabilitiesResponse, error) {
	all := &spec.NodeGetCapabilitiesResponse{}
	for _, kind := range slices.Concat(capabilities, d.cfg.Also) {
		if !slices.Contains(d.cfg.Lacks, kind) {
			all.Capabilities = append(all.Capabilities, &spec.NodeServiceCapability{
				Type: &spec.NodeServiceCapability_Rpc{Rpc: &spec.NodeServiceCapability_RPC{Type: kind}},
			})
		}
	}
	return all, nil
}

// refuse says and remembers that the caller broke a rule.
func (d *Driver) refuse(format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	d.broken = append(d.broken, text)
	return status.Error(codes.FailedPrecondition, text)
}

// stages reports whether the driver is to be asked to stage.
func (d *Driver) stages() bool {
	return !slices.Contains(d.cfg.Lacks, spec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME)
}

// Data is the folder with the content of a volume.
func (d *Driver) Data(handle string) string { return filepath.Join(d.cfg.Dir, "volumes", handle) }

// NodeStageVolume puts the volume where it is staged.
func (d *Driver) NodeStageVolume(_ context.Context, r *spec.NodeStageVolumeRequest) (*spec.NodeStageVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	path := r.GetStagingTargetPath()
	switch at, ok := d.staged[r.GetVolumeId()]; {
	case ok && at != path:
		return nil, d.refuse("%s is staged at %s, not at %s", r.GetVolumeId(), at, path)
	case r.GetVolumeCapability() == nil:
		return nil, d.refuse("%s is staged without a capability", r.GetVolumeId())
	}
	if _, err := os.Stat(path); err != nil {
		return nil, d.refuse("%s: the caller makes the folder: %v", path, err)
	}
	if err := d.mount(d.Data(r.GetVolumeId()), path, r.GetVolumeCapability(), false); err != nil {
		return nil, err
	}
	d.staged[r.GetVolumeId()] = path
	return &spec.NodeStageVolumeResponse{}, nil
}

// NodeUnstageVolume undoes NodeStageVolume.
func (d *Driver) NodeUnstageVolume(_ context.Context, r *spec.NodeUnstageVolumeRequest) (*spec.NodeUnstageVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.users[r.GetVolumeId()]) > 0 {
		return nil, d.refuse("%s is unstaged while pods have it: %v", r.GetVolumeId(), d.users[r.GetVolumeId()])
	}
	if err := d.unmount(r.GetStagingTargetPath(), false); err != nil {
		return nil, err
	}
	delete(d.staged, r.GetVolumeId())
	return &spec.NodeUnstageVolumeResponse{}, nil
}

// NodePublishVolume puts the volume where a pod has it. A volume that is written
// into a pod comes into being.
func (d *Driver) NodePublishVolume(_ context.Context, r *spec.NodePublishVolumeRequest) (*spec.NodePublishVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	source, ephemeral := r.GetStagingTargetPath(), r.GetVolumeContext()["csi.storage.k8s.io/ephemeral"] == "true"
	switch {
	case source == "" && d.stages() && !ephemeral:
		return nil, d.refuse("%s is published and not staged", r.GetVolumeId())
	case source == "":
		source = d.Data(r.GetVolumeId())
	case d.staged[r.GetVolumeId()] != source:
		return nil, d.refuse("%s is published from %s, and staged at %q", r.GetVolumeId(), source, d.staged[r.GetVolumeId()])
	case r.GetVolumeCapability().GetBlock() != nil:
		source = d.Data(r.GetVolumeId())
	}
	if err := d.mount(source, r.GetTargetPath(), r.GetVolumeCapability(), r.GetReadonly()); err != nil {
		return nil, err
	}
	if d.users[r.GetVolumeId()] == nil {
		d.users[r.GetVolumeId()] = map[string]bool{}
	}
	d.users[r.GetVolumeId()][r.GetTargetPath()] = true
	return &spec.NodePublishVolumeResponse{}, nil
}

// NodeUnpublishVolume undoes NodePublishVolume, and removes the target.
func (d *Driver) NodeUnpublishVolume(_ context.Context, r *spec.NodeUnpublishVolumeRequest) (*spec.NodeUnpublishVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.unmount(r.GetTargetPath(), true); err != nil {
		return nil, err
	}
	if delete(d.users[r.GetVolumeId()], r.GetTargetPath()); len(d.users[r.GetVolumeId()]) == 0 {
		delete(d.users, r.GetVolumeId())
	}
	return &spec.NodeUnpublishVolumeResponse{}, nil
}

// NodeExpandVolume takes the volume's new size.
func (d *Driver) NodeExpandVolume(_ context.Context, r *spec.NodeExpandVolumeRequest) (*spec.NodeExpandVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, made := d.made[r.GetVolumeId()]; !made && len(d.users[r.GetVolumeId()]) == 0 && d.staged[r.GetVolumeId()] == "" {
		d.broken = append(d.broken, r.GetVolumeId()+" is to grow, and is not here")
		return nil, status.Errorf(codes.NotFound, "there is no volume %s", r.GetVolumeId())
	}
	if !d.users[r.GetVolumeId()][r.GetVolumePath()] && d.staged[r.GetVolumeId()] != r.GetVolumePath() {
		return nil, d.refuse("%s is to grow at %s, where it is not", r.GetVolumeId(), r.GetVolumePath())
	}
	if at, from := d.staged[r.GetVolumeId()], r.GetStagingTargetPath(); from != "" && from != at {
		return nil, d.refuse("%s is to grow from %q, and staged at %q", r.GetVolumeId(), from, at)
	}
	if d.cfg.Offline && len(d.users[r.GetVolumeId()]) > 0 {
		return nil, status.Errorf(codes.FailedPrecondition, "%s is in use", r.GetVolumeId())
	}
	d.sizes[r.GetVolumeId()] = r.GetCapacityRange().GetRequiredBytes()
	return &spec.NodeExpandVolumeResponse{CapacityBytes: d.sizes[r.GetVolumeId()]}, nil
}

// NodeGetVolumeStats says how full the volume is.
func (d *Driver) NodeGetVolumeStats(_ context.Context, r *spec.NodeGetVolumeStatsRequest) (*spec.NodeGetVolumeStatsResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.users[r.GetVolumeId()][r.GetVolumePath()] {
		return nil, status.Errorf(codes.NotFound, "%s is not at %s", r.GetVolumeId(), r.GetVolumePath())
	}
	usage := d.cfg.Usage
	if usage == nil {
		var err error
		if usage, err = usageAt(r.GetVolumePath()); err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
	}
	answer := &spec.NodeGetVolumeStatsResponse{Usage: usage}
	if d.wrong != nil {
		// VolumeCondition, of which the interface has kept the number: abnormal, message.
		condition := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), protowire.EncodeBool(*d.wrong != ""))
		condition = protowire.AppendString(protowire.AppendTag(condition, 2, protowire.BytesType), *d.wrong)
		answer.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), condition))
	}
	return answer, nil
}

// NodeGetVolumeHealth says what is wrong with the volume.
func (d *Driver) NodeGetVolumeHealth(_ context.Context, r *spec.NodeGetVolumeHealthRequest) (*spec.NodeGetVolumeHealthResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	at, from := r.GetVolumePublishPath(), r.GetStagingTargetPath()
	if at != "" && !d.users[r.GetVolumeId()][at] || from != "" && from != d.staged[r.GetVolumeId()] {
		return nil, d.refuse("%s is asked for its health at %q and %q", r.GetVolumeId(), at, from)
	}
	return &spec.NodeGetVolumeHealthResponse{VolumeHealth: &spec.VolumeHealth{VolumeId: r.GetVolumeId(), HealthStatuses: d.health}}, nil
}

// usageAt is what the filesystem at a path says, with 10 inodes, or the size of a device.
func usageAt(path string) ([]*spec.VolumeUsage, error) {
	if info, err := os.Stat(path); err == nil && info.Mode().Type() == fs.ModeDevice {
		size, err := deviceSize(path)
		return []*spec.VolumeUsage{{Unit: spec.VolumeUsage_BYTES, Total: size}}, err
	}
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return nil, err
	}
	return []*spec.VolumeUsage{
		{Unit: spec.VolumeUsage_BYTES, Total: int64(s.Blocks) * s.Bsize, Used: int64(s.Blocks-s.Bfree) * s.Bsize, Available: int64(s.Bavail) * s.Bsize},
		{Unit: spec.VolumeUsage_INODES, Total: 10, Used: 3, Available: 7},
	}, nil
}

func deviceSize(path string) (int64, error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	return file.Seek(0, io.SeekEnd)
}

// mount makes source, which is made if it is not there, appear at path, unless it
// does.
func (d *Driver) mount(source, path string, as *spec.VolumeCapability, readOnly bool) error {
	if as.GetBlock() != nil {
		return d.mountDevice(source, path)
	}
	if err := errors.Join(os.MkdirAll(source, 0o755), os.MkdirAll(path, 0o750)); err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	if !d.cfg.Mount || isMount(path) {
		return nil
	}
	err := unix.Mount(source, path, "", unix.MS_BIND, "")
	if err == nil && readOnly {
		err = unix.Mount("", path, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
	}
	if err != nil {
		return status.Errorf(codes.Internal, "bind %s on %s: %v", source, path, err)
	}
	return nil
}

// mountDevice makes the device of a volume appear as a file. Where it is staged,
// nothing is to be seen.
func (d *Driver) mountDevice(source, path string) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() || isMount(path) {
		return nil
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	if !d.cfg.Mount {
		return nil
	}
	if err := unix.Mount(source, path, "", unix.MS_BIND, ""); err != nil {
		return status.Errorf(codes.Internal, "bind %s on %s: %v", source, path, err)
	}
	return nil
}

func (d *Driver) unmount(path string, remove bool) error {
	for isMount(path) {
		if err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW); err != nil {
			return status.Errorf(codes.Internal, "unmount %s: %v", path, err)
		}
	}
	if !remove {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return status.Error(codes.Internal, err.Error())
	}
	return nil
}

func isMount(path string) bool {
	var s unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, unix.STATX_TYPE, &s)
	return err == nil && s.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}
