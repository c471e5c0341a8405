package kubelet

import (
	"context"
	"errors"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/hoststats"
	"github.com/holdfast-dev/holdfast/internal/kubelet/imagegc"
	"github.com/holdfast-dev/holdfast/internal/kubelet/logrotate"
	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podfiles"
)

// wireCollectors makes what bounds the disk that images and logs take.
func (k *Kubelet) wireCollectors() {
	k.images = imagegc.New(imagegc.Config{
		Policy: k.cfg.ImageGC, Runtime: k.runtime, Space: k.imageSpace, Wanted: k.wantedImages,
		Events: k.events, Node: k.nodeReference(), Metrics: k.cfg.Metrics, Log: k.cfg.Log.With("part", "imagegc"),
		Listed: k.tidyPulls,
	})
	k.logs = logrotate.New(logrotate.Config{
		Policy: k.cfg.LogRotation, Runtime: k.runtime, Reader: k.folders, Writer: k.folders,
		Containers: k.runningContainers, Log: k.cfg.Log.With("part", "logrotate"),
	})
}

// DeleteUnusedImages removes every image that no container uses and no wanted
// pod names, to make room now.
func (k *Kubelet) DeleteUnusedImages(ctx context.Context) error { return k.images.DeleteUnused(ctx) }

// tidyPulls drops the records of images that are gone.
func (k *Kubelet) tidyPulls(images []*runtimeapi.Image, at time.Time) {
	if err := k.pulls.Tidy(images, at); err != nil {
		k.cfg.Log.Warn("records of pulls cannot be tidied", "err", err)
	}
}

// errNoImageFS is returned by imageSpace for a runtime that names no
// filesystem, as it does while it starts.
var errNoImageFS = errors.New("the container runtime names no filesystem of images")

func (k *Kubelet) imageSpace(ctx context.Context) (imagegc.Space, error) {
	filesystems, err := k.runtime.ImageFS(ctx)
	if err != nil {
		return imagegc.Space{}, err
	}
	if len(filesystems.GetImageFilesystems()) == 0 {
		return imagegc.Space{}, errNoImageFS
	}
	var space imagegc.Space
	space.Capacity, space.Available, err = hoststats.Space(filesystems.GetImageFilesystems()[0].GetFsId().GetMountpoint())
	return space, err
}

// wantedImages returns the images that the wanted pods name, once all sources
// of pods have been seen.
func (k *Kubelet) wantedImages() (names []string, known bool) {
	if !k.workers.Synced() {
		return nil, false
	}
	for _, pod := range k.loop.Pods() {
		names = append(names, podfiles.Images(pod)...)
	}
	return names, true
}

// runningContainers returns what was last seen of the containers that run.
func (k *Kubelet) runningContainers() []observed.ContainerStatus {
	var all []observed.ContainerStatus
	for _, pod := range k.pleg.Pods() {
		status, err := k.cache.Get(pod.UID)
		if err != nil {
			continue // the list of the runtime says so, too
		}
		for _, c := range status.Containers {
			if c.State == observed.Running {
				all = append(all, c)
			}
		}
	}
	return all
}
