package podresources

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubelet/pkg/apis/podresources/v1alpha1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podfiles"
)

// version1 answers the requests of version v1.
type version1 struct {
	podresourcesv1.UnimplementedPodResourcesListerServer
	*Server
}

// List returns the pods that hold resources.
func (s version1) List(context.Context, *podresourcesv1.ListPodResourcesRequest) (*podresourcesv1.ListPodResourcesResponse, error) {
	s.metrics.count("v1", s.metrics.list)
	var out podresourcesv1.ListPodResourcesResponse
	for _, pod := range s.cfg.Active() {
		out.PodResources = append(out.PodResources, s.resourcesOf(pod))
	}
	return &out, nil
}

// Get returns one pod, whether it has ended or not, as upstream's does. An unknown
// one is an error.
func (s version1) Get(_ context.Context, req *podresourcesv1.GetPodResourcesRequest) (*podresourcesv1.GetPodResourcesResponse, error) {
	s.metrics.count("v1", s.metrics.get)
	pod, ok := s.cfg.Pods.PodByName(req.GetPodNamespace(), req.GetPodName())
	if !ok {
		s.metrics.getErrors.WithLabelValues("v1").Inc()
		return nil, fmt.Errorf("pod %s in namespace %s not found", req.GetPodName(), req.GetPodNamespace())
	}
	return &podresourcesv1.GetPodResourcesResponse{PodResources: s.resourcesOf(pod)}, nil
}

// GetAllocatableResources returns what containers could have for themselves: devices,
// and with the policies "none" nothing else.
func (s version1) GetAllocatableResources(context.Context, *podresourcesv1.AllocatableResourcesRequest) (*podresourcesv1.AllocatableResourcesResponse, error) {
	s.metrics.count("v1", s.metrics.allocatable)
	return &podresourcesv1.AllocatableResourcesResponse{Devices: s.cfg.Allocatable()}, nil
}

// resourcesOf returns a pod's containers: the sidecars, then the regular ones. Init
// containers that end give back what they have, and are not named.
func (s *Server) resourcesOf(pod *v1.Pod) *podresourcesv1.PodResources {
	out := &podresourcesv1.PodResources{Name: pod.Name, Namespace: pod.Namespace}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; podfiles.IsSidecar(c) {
			out.Containers = append(out.Containers, s.resourcesOfContainer(pod, c))
		}
	}
	for i := range pod.Spec.Containers {
		out.Containers = append(out.Containers, s.resourcesOfContainer(pod, &pod.Spec.Containers[i]))
	}
	return out
}

func (s *Server) resourcesOfContainer(pod *v1.Pod, c *v1.Container) *podresourcesv1.ContainerResources {
	return &podresourcesv1.ContainerResources{Name: c.Name, Devices: s.cfg.Devices(pod.UID, c.Name)}
}

// alpha answers the request of version v1alpha1, which knows no sidecars.
type alpha struct {
	v1alpha1.UnimplementedPodResourcesListerServer
	*Server
}

// List returns the pods that are wanted, also those that have ended, as upstream's
// does in this version.
func (s alpha) List(context.Context, *v1alpha1.ListPodResourcesRequest) (*v1alpha1.ListPodResourcesResponse, error) {
	s.metrics.total.WithLabelValues("v1alpha1").Inc()
	var out v1alpha1.ListPodResourcesResponse
	for _, pod := range s.cfg.Pods.Pods() {
		p := &v1alpha1.PodResources{Name: pod.Name, Namespace: pod.Namespace}
		for i := range pod.Spec.Containers {
			c := &v1alpha1.ContainerResources{Name: pod.Spec.Containers[i].Name}
			for _, d := range s.cfg.Devices(pod.UID, c.Name) {
				c.Devices = append(c.Devices, &v1alpha1.ContainerDevices{ResourceName: d.GetResourceName(), DeviceIds: d.GetDeviceIds()})
			}
			p.Containers = append(p.Containers, c)
		}
		out.PodResources = append(out.PodResources, p)
	}
	return &out, nil
}
