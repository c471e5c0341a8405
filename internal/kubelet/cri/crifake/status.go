package crifake

import (
	"context"

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
