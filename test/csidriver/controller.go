package csidriver

import (
	"context"
	"os"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// GetPluginInfo says who the driver is.
func (d *Driver) GetPluginInfo(context.Context, *spec.GetPluginInfoRequest) (*spec.GetPluginInfoResponse, error) {
	return &spec.GetPluginInfoResponse{Name: d.cfg.Name, VendorVersion: "1.0.0"}, nil
}

// GetPluginCapabilities says that volumes can be made.
func (d *Driver) GetPluginCapabilities(context.Context, *spec.GetPluginCapabilitiesRequest) (*spec.GetPluginCapabilitiesResponse, error) {
	return &spec.GetPluginCapabilitiesResponse{Capabilities: []*spec.PluginCapability{{
		Type: &spec.PluginCapability_Service_{Service: &spec.PluginCapability_Service{Type: spec.PluginCapability_Service_CONTROLLER_SERVICE}},
	}}}, nil
}

// Probe says that the driver is there.
func (d *Driver) Probe(context.Context, *spec.ProbeRequest) (*spec.ProbeResponse, error) {
	return &spec.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}

// ControllerGetCapabilities says what the driver does for a cluster.
func (d *Driver) ControllerGetCapabilities(context.Context, *spec.ControllerGetCapabilitiesRequest) (*spec.ControllerGetCapabilitiesResponse, error) {
	return &spec.ControllerGetCapabilitiesResponse{Capabilities: []*spec.ControllerServiceCapability{{
		Type: &spec.ControllerServiceCapability_Rpc{Rpc: &spec.ControllerServiceCapability_RPC{Type: spec.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME}},
	}}}, nil
}

// CreateVolume makes a volume, whose handle is its name.
func (d *Driver) CreateVolume(_ context.Context, r *spec.CreateVolumeRequest) (*spec.CreateVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	size := r.GetCapacityRange().GetRequiredBytes()
	if has, ok := d.made[r.GetName()]; ok && has != size {
		return nil, status.Errorf(codes.AlreadyExists, "%s has %d bytes, not %d", r.GetName(), has, size)
	}
	if err := os.MkdirAll(d.Data(r.GetName()), 0o755); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	d.made[r.GetName()] = size
	return &spec.CreateVolumeResponse{Volume: &spec.Volume{VolumeId: r.GetName(), CapacityBytes: size}}, nil
}

// DeleteVolume removes a volume with what is in it.
func (d *Driver) DeleteVolume(_ context.Context, r *spec.DeleteVolumeRequest) (*spec.DeleteVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.made[r.GetVolumeId()]; !ok {
		return &spec.DeleteVolumeResponse{}, nil
	}
	if d.staged[r.GetVolumeId()] != "" || len(d.users[r.GetVolumeId()]) > 0 {
		return nil, status.Errorf(codes.FailedPrecondition, "%s is in use", r.GetVolumeId())
	}
	if err := os.RemoveAll(d.Data(r.GetVolumeId())); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	delete(d.made, r.GetVolumeId())
	return &spec.DeleteVolumeResponse{}, nil
}

// ValidateVolumeCapabilities takes every use of a volume that was made.
func (d *Driver) ValidateVolumeCapabilities(_ context.Context, r *spec.ValidateVolumeCapabilitiesRequest) (*spec.ValidateVolumeCapabilitiesResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.made[r.GetVolumeId()]; !ok {
		return nil, status.Errorf(codes.NotFound, "there is no volume %s", r.GetVolumeId())
	}
	return &spec.ValidateVolumeCapabilitiesResponse{Confirmed: &spec.ValidateVolumeCapabilitiesResponse_Confirmed{VolumeCapabilities: r.GetVolumeCapabilities()}}, nil
}

// lacks names a field that the interface demands of a request and that is not set; empty:
// there is none.
func lacks(request any) string {
	if r, ok := request.(interface{ GetVolumeId() string }); ok && r.GetVolumeId() == "" {
		return "volume_id"
	}
	unset := func(field string, is bool) string {
		if is {
			return field
		}
		return ""
	}
	switch r := request.(type) {
	case *spec.CreateVolumeRequest:
		if r.GetName() == "" {
			return "name"
		}
		return unset("volume_capabilities", len(r.GetVolumeCapabilities()) == 0)
	case *spec.ValidateVolumeCapabilitiesRequest:
		return unset("volume_capabilities", len(r.GetVolumeCapabilities()) == 0)
	case *spec.NodeStageVolumeRequest:
		if r.GetStagingTargetPath() == "" {
			return "staging_target_path"
		}
		return unset("volume_capability", r.GetVolumeCapability() == nil)
	case *spec.NodeUnstageVolumeRequest:
		return unset("staging_target_path", r.GetStagingTargetPath() == "")
	case *spec.NodePublishVolumeRequest:
		if r.GetTargetPath() == "" {
			return "target_path"
		}
		return unset("volume_capability", r.GetVolumeCapability() == nil)
	case *spec.NodeUnpublishVolumeRequest:
		return unset("target_path", r.GetTargetPath() == "")
	case *spec.NodeExpandVolumeRequest:
		return unset("volume_path", r.GetVolumePath() == "")
	case *spec.NodeGetVolumeStatsRequest:
		return unset("volume_path", r.GetVolumePath() == "")
	}
	return ""
}
