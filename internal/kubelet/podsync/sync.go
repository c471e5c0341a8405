package podsync

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
	"github.com/holdfast-dev/holdfast/internal/kubelet/reason"
)

// SyncPod makes a pod's containers match its specification. It reports
// terminal once the pod's phase is Succeeded or Failed. A container that only
// has to wait, for the end of a back-off or for an object, is no error: RetryAt
// then says when to call again.
func (s *Syncer) SyncPod(ctx context.Context, pod, _ *v1.Pod, status *observed.Status) (terminal bool, err error) {
	old := s.waits(pod.UID)
	r := &run{s: s, pod: pod, status: status, node: s.cfg.Node(), old: old, waits: old}
	r.beginResize()
	s.starts.saw(pod, status, time.Now())
	api := s.cfg.Statuses.Report(pod, status, old)
	if api.Phase == v1.PodSucceeded || api.Phase == v1.PodFailed {
		if api.Reason == reason.DeadlineExceeded {
			s.events.normal(pod, api.Reason, "%s", api.Message)
		}
		return true, nil
	}
	r.restartAll = restartsAll(&api)
	err = r.do(ctx)
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	s.remember(pod.UID, r.waits, r.retryAt)
	if r.endResize() || !maps.Equal(r.old, r.waits) {
		s.cfg.Statuses.Report(pod, r.status, r.waits)
	}
	return false, err
}

// prepare gets ready what containers need besides the runtime: the network,
// the cgroup, the folder and the volumes.
func (r *run) prepare(ctx context.Context) error {
	if !r.pod.Spec.HostNetwork {
		if err := r.s.cfg.NetworkReady(); err != nil {
			r.s.events.warn(r.pod, reason.NetworkNotReady, networkNotReadyText, err)
			return fmt.Errorf(networkNotReadyText, err)
		}
	}
	wide, narrow := r.widest()
	r.narrow = narrow
	var err error
	if r.cgroup, err = r.s.cfg.Cgroups.Ensure(wide); err != nil {
		r.s.events.warn(r.pod, reason.FailedToCreatePodContainer, "unable to ensure pod container exists: %v", err)
		return fmt.Errorf("make cgroup: %w", err)
	}
	if err := r.s.cfg.Folders.Make(r.pod.UID); err != nil {
		return fmt.Errorf("make pod folder: %w", err)
	}
	return r.s.waitForVolumes(ctx, r.pod)
}

// waitForVolumes waits for the pod's volumes. What it waits for becomes an
// event soon, and a failure late.
func (s *Syncer) waitForVolumes(ctx context.Context, pod *v1.Pod) error {
	notice, cancel := context.WithTimeout(ctx, s.cfg.MountNotice)
	defer cancel()
	err := s.cfg.Volumes.WaitForMount(notice, pod)
	if err == nil || ctx.Err() != nil {
		return err
	}
	s.mountEvent(pod, err)
	if notice.Err() == nil {
		return fmt.Errorf("mount volumes: %w", err) // it failed, not only took long
	}
	late, cancel := context.WithTimeout(ctx, s.cfg.MountWait-s.cfg.MountNotice)
	defer cancel()
	if err := s.cfg.Volumes.WaitForMount(late, pod); err != nil {
		if ctx.Err() == nil {
			s.mountEvent(pod, err)
		}
		return fmt.Errorf("mount volumes: %w", err)
	}
	return nil
}

// mountEvent says what a pod's volumes lack, in upstream's words. Of volumes that
// wait for objects, each has an event of its own.
func (s *Syncer) mountEvent(pod *v1.Pod, err error) {
	waiting := podvolumes.Waiting(err)
	for _, w := range waiting {
		s.events.warn(pod, reason.FailedMount, "MountVolume.SetUp failed for volume %q : %s: %s", w.Volume, w.Ref, w.Why())
	}
	if len(waiting) == 0 {
		s.events.warn(pod, reason.FailedMount, "Unable to attach or mount volumes: %v", err)
	}
}

// SyncTerminating stops everything that runs of a pod within grace seconds (nil:
// the pod's own grace period) and returns nil only when nothing runs any more.
func (s *Syncer) SyncTerminating(ctx context.Context, pod *v1.Pod, status *observed.Status, grace *int64) error {
	s.cfg.Statuses.Report(pod, status, s.waits(pod.UID))
	s.cfg.Probes.Terminate(pod.UID)
	period := gracePeriod(pod, nil)
	if grace != nil {
		period = time.Duration(*grace) * time.Second
	}
	if err := s.killPod(ctx, pod, status, period); err != nil {
		if ctx.Err() == nil {
			s.events.warn(pod, reason.FailedKillPod, "error killing pod: %v", err)
		}
		return err
	}
	after, err := s.cfg.Runtime.Inspect(ctx, pod.UID)
	if err != nil {
		return fmt.Errorf("inspect after stop: %w", err)
	}
	if after.Running() {
		return errors.New("something still runs after everything was stopped")
	}
	s.cfg.Probes.RemovePod(pod.UID)
	s.cfg.Statuses.Report(pod, after, s.waits(pod.UID))
	return nil
}

// SyncTerminated gives back what a pod held beside its containers: volumes and
// cgroup.
func (s *Syncer) SyncTerminated(ctx context.Context, pod *v1.Pod, status *observed.Status) error {
	s.cfg.Statuses.Report(pod, status, s.waits(pod.UID))
	if err := s.release(ctx, pod.UID); err != nil {
		return err
	}
	s.forget(pod.UID)
	s.starts.forget(pod.UID)
	return nil
}

// RemoveFinished removes what the runtime and the disk still have of pods that
// have ended, their logs too, to make room. It is for pods that SyncTerminated
// has been done for, and may run beside anything.
func (s *Syncer) RemoveFinished(ctx context.Context, pods []*v1.Pod) error {
	var errs []error
	for _, pod := range pods {
		status, err := s.cfg.Runtime.Inspect(ctx, pod.UID)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if status.Running() {
			continue // it was put back
		}
		errs = append(errs, s.removeAll(ctx, status), s.cfg.Folders.RemoveLogs(pod.Namespace, pod.Name, pod.UID))
	}
	return errors.Join(errs...)
}

// SyncRemains removes, if a pod is being deleted, its dead containers and their
// logs. Of a pod that stays in the API the newest dead container of each name stays,
// for its log and its exit code.
func (s *Syncer) SyncRemains(ctx context.Context, pod *v1.Pod, status *observed.Status) error {
	if pod.DeletionTimestamp == nil {
		(&run{s: s, pod: pod}).remove(ctx, deadOnes(pod, status, actions{}))
		return nil
	}
	if err := s.removeAll(ctx, status); err != nil {
		return err
	}
	if err := s.cfg.Folders.RemoveLogs(pod.Namespace, pod.Name, pod.UID); err != nil {
		return fmt.Errorf("remove logs: %w", err)
	}
	return nil
}

// SyncOrphan stops and removes a pod that only the runtime knows.
func (s *Syncer) SyncOrphan(ctx context.Context, orphan observed.Pod) error {
	status, err := s.cfg.Runtime.Inspect(ctx, orphan.UID)
	if err != nil {
		return fmt.Errorf("inspect orphan: %w", err)
	}
	if err := s.killPod(ctx, nil, status, s.cfg.OrphanGrace); err != nil {
		return err
	}
	if err := s.removeAll(ctx, status); err != nil {
		return err
	}
	if err := s.release(ctx, orphan.UID); err != nil {
		return err
	}
	if orphan.Namespace != "" && orphan.Name != "" {
		if err := s.cfg.Folders.RemoveLogs(orphan.Namespace, orphan.Name, orphan.UID); err != nil {
			return fmt.Errorf("remove logs: %w", err)
		}
	}
	s.forget(orphan.UID)
	return nil
}

// killWait is how long a killed process may take to die. One that waits for a dead
// disk takes longer, and the step is tried again.
const killWait = 5 * time.Second

// release unmounts a pod's volumes and removes its cgroup.
func (s *Syncer) release(ctx context.Context, uid types.UID) error {
	limited, cancel := context.WithTimeout(ctx, s.cfg.MountWait)
	defer cancel()
	if err := s.cfg.Volumes.Unmount(limited, uid); err != nil {
		return fmt.Errorf("unmount volumes: %w", err)
	}
	limited, cancel = context.WithTimeout(ctx, killWait)
	defer cancel()
	if err := s.cfg.Cgroups.End(limited, uid); err != nil {
		return fmt.Errorf("remove cgroup: %w", err)
	}
	return nil
}

// removeAll removes every container and sandbox of a pod that has stopped.
func (s *Syncer) removeAll(ctx context.Context, status *observed.Status) error {
	var errs []error
	for i := range status.Containers {
		errs = append(errs, s.cfg.Runtime.RemoveContainer(ctx, status.Containers[i].ID))
	}
	for _, sandbox := range status.Sandboxes {
		errs = append(errs, s.cfg.Runtime.RemoveSandbox(ctx, sandbox.GetId()))
	}
	return errors.Join(errs...)
}
