package podstatus

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/holdfast-dev/holdfast/internal/kubelet/staticpod"
	"github.com/holdfast-dev/holdfast/internal/retry"
)

// send sends what is dirty until ctx is done or done reports true, and waits
// for the calls that it started.
func (m *Manager) send(ctx context.Context, done func() bool) {
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, m.cfg.Parallel)
	for !done() {
		select {
		case <-ctx.Done():
			return
		case slots <- struct{}{}:
		}
		job, wait := m.next(time.Now())
		if job == nil {
			<-slots
			m.sleep(ctx, wait)
			continue
		}
		wg.Go(func() {
			defer func() { <-slots }()
			api, err := m.bring(ctx, job)
			m.settle(job, api, err)
		})
	}
}

// sleep waits until something gets dirty, or for a while.
func (m *Manager) sleep(ctx context.Context, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-m.wake:
	case <-timer.C:
	}
}

// A job is one pod's status on its way to the API.
type job struct {
	entry    *entry
	status   v1.PodStatus
	api      *v1.Pod
	mirror   bool
	finished bool
	running  bool // containers may run
	gone     bool // the API has no such pod any more
	deleted  bool
}

// next takes the first entry that is due, or says how long until one is.
func (m *Manager) next(now time.Time) (*job, time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.queue = slices.DeleteFunc(m.queue, func(e *entry) bool { return !e.dirty || e.sending })
	wait := m.cfg.RetryMax
	for _, e := range m.queue {
		if until := e.after.Sub(now); until > 0 {
			wait = min(wait, until)
			continue
		}
		if e.api == nil || e.pod == nil { // it went while it was queued
			e.dirty = false
			continue
		}
		e.dirty, e.sending = false, true
		m.inFlight++
		return &job{
			entry: e, status: *e.status.DeepCopy(), api: e.api,
			mirror: staticpod.IsStatic(e.pod), finished: e.finished,
		}, 0
	}
	return nil, wait
}

// settle takes in how a job went: api is the answer of the patch, nil if none
// was needed.
func (m *Manager) settle(j *job, api *v1.Pod, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.inFlight--
	e := j.entry
	e.sending = false
	e.held = j.running && terminal(&j.status) && !terminal(&j.api.Status)
	e.deleted = e.deleted || j.deleted
	if j.gone && e.api == j.api {
		e.api = nil // until it is seen again
	}
	if api != nil {
		e.take(api) // its watch may have been faster
	}
	again := e.dirty || err != nil // asked for while it was sent
	e.dirty = false
	if err == nil {
		e.failures, e.after = 0, time.Time{}
	} else {
		m.failedLocked(j, err)
	}
	if again {
		m.dirtyLocked(e)
	}
	m.wake.Ring()
}

func (m *Manager) failedLocked(j *job, err error) {
	if errors.Is(err, context.Canceled) {
		return // stopping: the rest is sent by the flush
	}
	e := j.entry
	e.failures++
	e.after = time.Now().Add(retry.Pause(e.failures, m.cfg.RetryMin, m.cfg.RetryMax))
	if e.failures == 1 {
		m.cfg.Log.Warn("send pod status, trying again", "pod", j.api.Namespace+"/"+j.api.Name, "podUID", e.uid, "err", err)
	}
}

// bring makes the API's status of a pod ours, and deletes the pod if it is to
// go and nothing of it is left.
func (m *Manager) bring(ctx context.Context, j *job) (*v1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.Timeout)
	defer cancel()
	pods := m.cfg.Pods.Pods(j.api.Namespace)
	j.running = m.cfg.CouldHaveRunning(j.entry.uid)

	patch, err := statusPatch(j.api, merge(j.api.Status, j.status, j.running))
	if err != nil {
		return nil, err
	}
	api := j.api
	var answer *v1.Pod
	if patch != nil {
		answer, err = pods.Patch(ctx, api.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		if isGone(err) {
			j.gone = true
			return nil, nil
		} else if err != nil {
			return nil, fmt.Errorf("patch status of pod %s/%s: %w", api.Namespace, api.Name, err)
		}
		api = answer
	}
	// Upstream, too, waits for a last phase to be seen before it deletes.
	if !j.finished || j.mirror || api.DeletionTimestamp == nil || !terminal(&api.Status) {
		return answer, nil
	}
	err = pods.Delete(ctx, api.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)),
		Preconditions:      metav1.NewUIDPreconditions(string(api.UID)),
	})
	if err != nil && !isGone(err) {
		return answer, fmt.Errorf("delete pod %s/%s: %w", api.Namespace, api.Name, err)
	}
	j.deleted = true
	return answer, nil
}

// isGone reports whether a call failed because the pod, or the one of that UID,
// does not exist any more.
func isGone(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsConflict(err) }

// merge returns the status that the API is to have: ours, with what others
// write as it is there. As long as containers may run, the phase does not become
// Succeeded or Failed: controllers take that for permission to replace the pod;
// nor is it told that the node ended it.
func merge(old, status v1.PodStatus, running bool) v1.PodStatus {
	var all []v1.PodCondition
	for _, c := range old.Conditions {
		if !slices.Contains(ours, c.Type) {
			all = append(all, c)
		}
	}
	for _, c := range status.Conditions {
		if slices.Contains(ours, c.Type) {
			all = append(all, c)
		}
	}
	status.Conditions = withDisruption(all, &status, terminal(&status) && !running)
	status.NominatedNodeName = old.NominatedNodeName
	status.ResourceClaimStatuses = old.ResourceClaimStatuses
	status.ExtendedResourceClaimStatus = old.ExtendedResourceClaimStatus
	status.NodeAllocatableResourceClaimStatuses = old.NodeAllocatableResourceClaimStatuses
	status.VolumeHealth = old.VolumeHealth
	if running && terminal(&status) && !terminal(&old) {
		status.Phase, status.Reason, status.Message = old.Phase, old.Reason, old.Message
	}
	return status
}

// statusPatch returns the patch from what the API has to status, or nil if they
// are the same. It applies to this UID only.
func statusPatch(api *v1.Pod, status v1.PodStatus) ([]byte, error) {
	old, err := json.Marshal(v1.Pod{Status: api.Status})
	if err != nil {
		return nil, fmt.Errorf("encode pod status: %w", err)
	}
	wanted, err := json.Marshal(v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: api.UID}, Status: status})
	if err != nil {
		return nil, fmt.Errorf("encode pod status: %w", err)
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(old, wanted, v1.Pod{})
	if err != nil {
		return nil, fmt.Errorf("make status patch: %w", err)
	}
	if bytes.Equal(patch, fmt.Appendf(nil, `{"metadata":{"uid":%q}}`, api.UID)) {
		return nil, nil
	}
	return patch, nil
}

// retryNow forgets all pauses.
func (m *Manager) retryNow() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.entries {
		e.after = time.Time{}
	}
}

// idle reports whether everything was sent once, even if it failed.
func (m *Manager) idle() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.inFlight == 0 && !slices.ContainsFunc(m.queue, func(e *entry) bool { return e.dirty && e.after.IsZero() })
}

func terminal(s *v1.PodStatus) bool { return podutil.IsPodPhaseTerminal(s.Phase) }
