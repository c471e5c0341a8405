package crifake

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func (s *runtimeService) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{
		Version:           "0.1.0",
		RuntimeName:       "crifake",
		RuntimeVersion:    "1.0.0",
		RuntimeApiVersion: "v1",
	}, nil
}

func (s *runtimeService) Status(context.Context, *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	s.fake.mu.Lock()
	defer s.fake.mu.Unlock()
	network := &runtimeapi.RuntimeCondition{Type: runtimeapi.NetworkReady, Status: s.fake.networkReady}
	if !s.fake.networkReady {
		network.Reason, network.Message = "NetworkPluginNotReady", "cni plugin not initialized"
	}
	var handlers []*runtimeapi.RuntimeHandler
	for _, name := range s.fake.handlers {
		handlers = append(handlers, &runtimeapi.RuntimeHandler{Name: name})
	}
	return &runtimeapi.StatusResponse{
		Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
			{Type: runtimeapi.RuntimeReady, Status: true}, network,
		}},
		RuntimeHandlers: handlers,
	}, nil
}

// SetCgroupDriver has the runtime say by what it makes cgroups. Until then it does not
// say, as old ones do not.
func (f *Fake) SetCgroupDriver(driver runtimeapi.CgroupDriver) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cgroupDriver = &driver
}

func (s *runtimeService) RuntimeConfig(context.Context, *runtimeapi.RuntimeConfigRequest) (*runtimeapi.RuntimeConfigResponse, error) {
	s.fake.mu.Lock()
	defer s.fake.mu.Unlock()
	if s.fake.cgroupDriver == nil {
		return nil, status.Error(codes.Unimplemented, "method RuntimeConfig not implemented")
	}
	return &runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: *s.fake.cgroupDriver}}, nil
}

// PodCIDR returns the networks of pods that the runtime was told last.
func (f *Fake) PodCIDR() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.podCIDR
}

func (s *runtimeService) UpdateRuntimeConfig(_ context.Context, req *runtimeapi.UpdateRuntimeConfigRequest) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	s.fake.mu.Lock()
	defer s.fake.mu.Unlock()
	s.fake.podCIDR = req.GetRuntimeConfig().GetNetworkConfig().GetPodCidr()
	return &runtimeapi.UpdateRuntimeConfigResponse{}, nil
}
