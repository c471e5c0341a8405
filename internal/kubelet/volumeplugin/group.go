package volumeplugin

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/fsgroup"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
	"github.com/holdfast-dev/holdfast/internal/kubelet/reason"
)

// SetGroup gives the files at path to the volume's group, unless its policy is to
// look at the top alone and that has been given to it.
func (h *Host) SetGroup(ctx context.Context, path string, v *podvolumes.Volume) error {
	if v.FSPolicy == v1.FSGroupChangeOnRootMismatch && fsgroup.Has(path, *v.FSGroup) {
		return nil
	}
	return h.setGroup(ctx, path, v)
}

// setGroup gives the files at path to the volume's group.
func (h *Host) setGroup(ctx context.Context, path string, v *podvolumes.Volume) error {
	result, err := fsgroup.Set(ctx, path, *v.FSGroup, func(files int64) { h.tellSlow(v, files) })
	if result.Refused > 0 {
		h.log.Warn("files of a volume keep their group or permissions, nobody may change them",
			"podUID", v.PodUID, "volume", v.Name, "count", result.Refused, "err", errors.Join(result.Examples...))
	}
	return err
}

// tellSlow makes an event of the pod whose volume has so many files that it
// takes long to give them to its group.
func (h *Host) tellSlow(v *podvolumes.Volume, files int64) {
	pod := &v1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: v.Pod.Namespace, Name: v.Pod.Name, UID: v.PodUID}
	h.events.Eventf(pod, v1.EventTypeWarning, reason.VolumePermissionChangeInProgress,
		"giving the files of %s to fsGroup %d takes long, %d files so far; with fsGroupChangePolicy OnRootMismatch only the top is looked at",
		podvolumes.Describe(v.Name), *v.FSGroup, files)
}
