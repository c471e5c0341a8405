package podsync

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podfiles"
	"github.com/holdfast-dev/holdfast/internal/kubelet/reason"
)

// resetText is the message of the event when a container is killed because
// another one of its pod has all start again, upstream's.
const resetText = "killing"

// restartsAll reports whether a pod's status says that all its containers are
// to start again. The status keeps that over a restart of the agent.
func restartsAll(status *v1.PodStatus) bool {
	return slices.ContainsFunc(status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.AllContainersRestarting && c.Status == v1.ConditionTrue
	})
}

// resets returns the containers to take away so that the pod starts from the
// beginning in its sandbox. Those whose end is the cause come last: as long as
// one is there, it says that this is not done yet.
func resets(pod *v1.Pod, status *observed.Status) []observed.ContainerStatus {
	var first, last []observed.ContainerStatus
	for _, list := range [][]v1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			for _, c := range status.Containers {
				switch {
				case c.Name != list[i].Name:
				case c.State == observed.Exited && podfiles.RestartsAll(&list[i], c.ExitCode):
					last = append(last, c)
				default:
					first = append(first, c)
				}
			}
		}
	}
	return append(first, last...)
}

// reset stops and removes what the plan says, one after the other. As
// upstream's, it gives them no time to end. Of each container the last log
// stays: its number is how often the container was restarted.
func (r *run) reset(ctx context.Context, list []observed.ContainerStatus) error {
	r.waits = map[string]reason.Wait{}
	for i := range list {
		c := &list[i]
		if c.State != observed.Exited {
			err := r.s.killContainer(ctx, r.pod, stop{id: c.ID, name: c.Name, message: resetText, now: true, ips: r.status.IPs})
			if err != nil {
				return err
			}
		}
		if err := r.s.cfg.Runtime.RemoveContainer(ctx, c.ID); err != nil {
			return fmt.Errorf("remove %s, so that it starts again: %w", c.Name, err)
		}
		if c.LogPath == "" || c.RestartCount == 0 {
			continue
		}
		before := filepath.Join(filepath.Dir(c.LogPath), filepath.Base(podfiles.LogPath(c.Name, c.RestartCount-1)))
		if err := r.s.cfg.Folders.RemoveLog(before); err != nil {
			r.s.log.Warn("log of an earlier run stays", "pod", r.name(), "container", c.Name, "err", err)
		}
	}
	return nil
}
