package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	"k8s.io/kubernetes/pkg/kubelet/config"
	"k8s.io/kubernetes/pkg/kubelet/volumemanager"
	"k8s.io/kubernetes/pkg/volume"
	"k8s.io/kubernetes/pkg/volume/configmap"
	"k8s.io/kubernetes/pkg/volume/emptydir"
	"k8s.io/kubernetes/pkg/volume/projected"
	"k8s.io/kubernetes/pkg/volume/secret"
	"k8s.io/kubernetes/pkg/volume/util/hostutil"
	"k8s.io/kubernetes/pkg/volume/util/subpath"
	"k8s.io/kubernetes/pkg/volume/util/volumepathhandler"
	"k8s.io/mount-utils"
)

// upstream is upstream's volume manager with upstream's plugins.
type upstream struct {
	manager volumemanager.VolumeManager
	pods    *podTable
	cancel  context.CancelFunc
	ended   chan struct{}
}

func startUpstream(ctx context.Context, w *world, dir string) (side, error) {
	plugins := &volume.VolumePluginMgr{}
	// The manager unmounts nothing before it has seen its node.
	client := fake.NewClientset(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "bench"}})
	host := &upstreamHost{world: w, dir: dir, mounter: mount.New(""), plugins: plugins, client: client, informers: informers.NewSharedInformerFactory(client, 0)}
	var all []volume.VolumePlugin
	for _, probe := range []func() []volume.VolumePlugin{
		emptydir.ProbeVolumePlugins, configmap.ProbeVolumePlugins, secret.ProbeVolumePlugins, projected.ProbeVolumePlugins,
	} {
		all = append(all, probe()...)
	}
	if err := plugins.InitPlugins(all, nil, host); err != nil {
		return nil, err
	}
	u := &upstream{pods: &podTable{pods: map[types.UID]*v1.Pod{}, ending: map[types.UID]bool{}}, ended: make(chan struct{})}
	u.manager = volumemanager.NewVolumeManager(true, "bench", u.pods, u.pods, client, plugins, host.mounter, hostutil.NewHostUtil(),
		host.GetPodsDir(), &record.FakeRecorder{}, volumepathhandler.NewBlockVolumePathHandler(), nil, 0)
	ctx, u.cancel = context.WithCancel(ctx)
	ready := config.NewSourcesReady(func(sets.Set[string]) bool { return true })
	go func() {
		u.manager.Run(ctx, ready)
		close(u.ended)
	}()
	return u, nil
}

func (u *upstream) mount(ctx context.Context, pod *v1.Pod) error {
	u.pods.add(pod)
	return u.manager.WaitForAttachAndMount(ctx, pod)
}

func (u *upstream) unmount(ctx context.Context, pod *v1.Pod) error {
	u.pods.end(pod.UID)
	return u.manager.WaitForUnmount(ctx, pod)
}

func (u *upstream) stop() error {
	u.cancel()
	<-u.ended
	return nil
}

// podTable is what upstream's pod manager and pod workers say about pods.
type podTable struct {
	mu     sync.Mutex // guards the fields below
	pods   map[types.UID]*v1.Pod
	ending map[types.UID]bool
}

func (p *podTable) add(pod *v1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pods[pod.UID] = pod
}

func (p *podTable) end(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ending[uid] = true
}

func (p *podTable) GetPodByUID(uid types.UID) (*v1.Pod, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pod, ok := p.pods[uid]
	return pod, ok
}

func (p *podTable) GetPods() (pods []*v1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pod := range p.pods {
		pods = append(pods, pod)
	}
	return pods
}

func (p *podTable) ShouldPodContainersBeTerminating(uid types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ending[uid]
}

func (p *podTable) ShouldPodRuntimeBeRemoved(uid types.UID) bool {
	return p.ShouldPodContainersBeTerminating(uid)
}

// upstreamHost is what upstream's plugins know of their kubelet. What is not
// here is not asked for by those that are measured.
type upstreamHost struct {
	volume.VolumeHost
	volume.KubeletVolumeHost
	*world
	dir     string
	mounter mount.Interface
	plugins *volume.VolumePluginMgr

	client    clientset.Interface
	informers informers.SharedInformerFactory
}

func (h *upstreamHost) GetPodsDir() string { return filepath.Join(h.dir, "pods") }

func (h *upstreamHost) GetPodVolumeDir(uid types.UID, plugin, volume string) string {
	return filepath.Join(h.GetPodsDir(), string(uid), "volumes", strings.ReplaceAll(plugin, "/", "~"), volume)
}

func (h *upstreamHost) GetPodPluginDir(uid types.UID, plugin string) string {
	return filepath.Join(h.GetPodsDir(), string(uid), "plugins", strings.ReplaceAll(plugin, "/", "~"))
}

func (h *upstreamHost) GetPluginDir(plugin string) string {
	return filepath.Join(h.dir, "plugins", plugin)
}

func (h *upstreamHost) NewWrapperMounter(name string, spec volume.Spec, pod *v1.Pod) (volume.Mounter, error) {
	if spec.Volume != nil {
		spec.Volume.Name = "wrapped_" + name
	}
	plugin, err := h.plugins.FindPluginBySpec(&spec)
	if err != nil {
		return nil, err
	}
	return plugin.NewMounter(&spec, pod)
}

func (h *upstreamHost) NewWrapperUnmounter(name string, spec volume.Spec, uid types.UID) (volume.Unmounter, error) {
	if spec.Volume != nil {
		spec.Volume.Name = "wrapped_" + name
	}
	plugin, err := h.plugins.FindPluginBySpec(&spec)
	if err != nil {
		return nil, err
	}
	return plugin.NewUnmounter(spec.Name(), uid)
}

func (h *upstreamHost) GetInformerFactory() informers.SharedInformerFactory { return h.informers }

func (h *upstreamHost) GetSubpather() subpath.Interface { return subpath.New(h.mounter) }

func (h *upstreamHost) GetKubeClient() clientset.Interface { return h.client }
func (h *upstreamHost) GetMounter() mount.Interface        { return h.mounter }
func (h *upstreamHost) GetNodeName() types.NodeName        { return "bench" }
func (h *upstreamHost) GetEventRecorder() record.EventRecorder {
	return &record.FakeRecorder{}
}

func (h *upstreamHost) GetNodeAllocatable() (v1.ResourceList, error) { return v1.ResourceList{}, nil }

func (h *upstreamHost) GetConfigMapFunc() func(namespace, name string) (*v1.ConfigMap, error) {
	return h.getConfigMap
}

func (h *upstreamHost) GetSecretFunc() func(namespace, name string) (*v1.Secret, error) {
	return h.getSecret
}

func (h *upstreamHost) GetServiceAccountTokenFunc() func(namespace, name string, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	return h.getToken
}

func (h *upstreamHost) DeleteServiceAccountTokenFunc() func(types.UID) { return func(types.UID) {} }

func (h *upstreamHost) GetNodeLabels() (map[string]string, error) { return nil, fmt.Errorf("no node") }
