package main

import (
	"context"
	"log/slog"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
	"github.com/holdfast-dev/holdfast/internal/kubelet/volumemanager"
	"github.com/holdfast-dev/holdfast/internal/kubelet/volumeplugin"
)

// ours is our volume manager with our plugins.
type ours struct {
	manager *volumemanager.Manager
	cancel  context.CancelFunc
	ended   chan error
}

func startOurs(ctx context.Context, w *world, dir string) side {
	host := volumeplugin.New(volumeplugin.Config{Dir: dir, Log: slog.New(slog.DiscardHandler)})
	o := &ours{ended: make(chan error, 1), manager: volumemanager.New(volumemanager.Config{
		Log: slog.New(slog.DiscardHandler), Mounts: host, SubPaths: host, Folders: host, Holder: nothingHeld{}, Objects: objects{world: w},
	})}
	ctx, o.cancel = context.WithCancel(ctx)
	go func() { o.ended <- o.manager.Run(ctx) }()
	return o
}

func (o *ours) mount(ctx context.Context, pod *v1.Pod) error { return o.manager.WaitForMount(ctx, pod) }

func (o *ours) unmount(ctx context.Context, pod *v1.Pod) error {
	return o.manager.Unmount(ctx, pod.UID)
}

func (o *ours) stop() error {
	o.cancel()
	return <-o.ended
}

// nothingHeld is for objects that are in memory anyway.
type nothingHeld struct{}

func (nothingHeld) Hold(*v1.Pod)      {}
func (nothingHeld) Release(types.UID) {}

// objects are the world's, as our side asks for them. The other kinds are not
// asked for, and would end the program.
type objects struct {
	podvolumes.Objects
	*world
}

func (o objects) GetConfigMap(_ context.Context, namespace, name string) (*v1.ConfigMap, error) {
	return o.getConfigMap(namespace, name)
}

func (o objects) GetSecret(_ context.Context, namespace, name string) (*v1.Secret, error) {
	return o.getSecret(namespace, name)
}

func (o objects) Token(_ context.Context, namespace, name string, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	return o.getToken(namespace, name, request)
}
