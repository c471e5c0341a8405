package main

import (
	"context"
	"net/http"

	"github.com/emicklei/go-restful/v3"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/kubernetes/pkg/kubelet/metrics/collectors"
	"k8s.io/kubernetes/pkg/kubelet/server/stats"
)

// provider has the figures of a Summary ready made. What it does not implement is not
// asked for.
type provider struct {
	stats.Provider
	of *statsapi.Summary
}

func (p *provider) GetNode(context.Context) (*v1.Node, error) {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: p.of.Node.NodeName}}, nil
}

func (p *provider) GetNodeConfig() cm.NodeConfig {
	return cm.NodeConfig{KubeletCgroupsName: "/kubelet", RuntimeCgroupsName: "/runtime"}
}

func (p *provider) GetPodCgroupRoot() string { return "/kubepods" }

func (p *provider) GetCgroupStats(_ context.Context, group string, _ bool) (*statsapi.ContainerStats, *statsapi.NetworkStats, error) {
	n := &p.of.Node
	if group == "/" {
		return &statsapi.ContainerStats{CPU: n.CPU, Memory: n.Memory, Swap: n.Swap, IO: n.IO}, n.Network, nil
	}
	c := n.SystemContainers[0]
	return &c, nil, nil
}

func (p *provider) RootFsStats() (*statsapi.FsStats, error) { return p.of.Node.Fs, nil }

func (p *provider) ImageFsStats(context.Context) (images, layers *statsapi.FsStats, err error) {
	return p.of.Node.Runtime.ImageFs, p.of.Node.Runtime.ContainerFs, nil
}

func (p *provider) RlimitStats() (*statsapi.RlimitStats, error) { return p.of.Node.Rlimit, nil }

func (p *provider) ListPodStats(context.Context) ([]statsapi.PodStats, error) { return p.of.Pods, nil }

func (p *provider) ListPodCPUAndMemoryStats(context.Context) ([]statsapi.PodStats, error) {
	return p.of.Pods, nil
}

func (p *provider) GetCgroupCPUAndMemoryStats(group string, update bool) (*statsapi.ContainerStats, error) {
	s, _, err := p.GetCgroupStats(ctx, group, update)
	return s, err
}

// newUpstream serves what its kubelet serves, by its own handlers.
func newUpstream(of *statsapi.Summary) http.Handler {
	p := &provider{of: of}
	summaries := stats.NewSummaryProvider(ctx, p)
	container := restful.NewContainer()
	container.Add(stats.CreateHandlers("/stats", p, summaries))
	registry := metrics.NewKubeRegistry()
	registry.CustomMustRegister(collectors.NewResourceMetricsCollector(summaries))
	container.Handle(resourcePath, metrics.HandlerFor(registry, metrics.HandlerOpts{ErrorHandling: metrics.ContinueOnError}))
	return container
}
