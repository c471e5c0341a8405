package podsync

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podfiles"
	"github.com/holdfast-dev/holdfast/internal/kubelet/reason"
)

// A run is one SyncPod in hand.
type run struct {
	s       *Syncer
	pod     *v1.Pod
	status  *observed.Status // replaced when the sandbox is new
	node    *podfiles.Node
	cgroup  string
	sandbox *runtimeapi.PodSandboxConfig // made when first needed
	users   *podfiles.UserIDs            // the pod's own; nil: the host's, or not known yet
	id      string                       // of the sandbox

	restartAll bool // the pod's status says so

	imageVolumes map[string]imageVolume // those pulled so far, by the pod's names for them

	old     map[string]reason.Wait // of the last run
	waits   map[string]reason.Wait // the same until it is known better
	retryAt time.Time

	narrow bool // the pod's cgroup has to shrink once its containers have
}

func (r *run) do(ctx context.Context) error {
	if err := r.prepare(ctx); err != nil {
		return err
	}
	acts := plan(planInput{
		pod: r.pod, status: r.status, probes: r.s.cfg.Probes, pauses: podPauses{r.s.crash, r.pod}, sizes: r.sizes, now: time.Now(),
		restartAll: r.restartAll,
	})
	if len(acts.resets) > 0 {
		return r.reset(ctx, acts.resets) // which wakes the worker again
	}
	if err := r.stop(ctx, acts); err != nil {
		return err
	}
	r.remove(ctx, acts.removals)
	if acts.killPod && !acts.createSandbox {
		return nil
	}
	if err := r.resize(ctx, acts); err != nil {
		return err
	}
	r.s.cfg.Probes.AddPod(r.pod)
	r.id = acts.sandboxID
	if acts.createSandbox {
		err := r.create(ctx, acts)
		if ctx.Err() == nil {
			r.s.starts.pod(r.pod, err)
		}
		if err != nil {
			return err
		}
	}
	return r.start(ctx, acts)
}

// podPauses are the crash back-offs of one pod.
type podPauses struct {
	backoff *backoff
	pod     *v1.Pod
}

func (p podPauses) until(what string, failed time.Time) (time.Time, time.Duration) {
	return p.backoff.until(p.pod.UID, what, failed)
}

// stop stops what the plan says.
func (r *run) stop(ctx context.Context, acts actions) error {
	if acts.killPod {
		if acts.createSandbox {
			r.s.events.normal(r.pod, reason.SandboxChanged, sandboxChangedText)
		}
		if err := r.s.killPod(ctx, r.pod, r.status, gracePeriod(r.pod, nil)); err != nil {
			if ctx.Err() == nil {
				r.s.events.warn(r.pod, reason.FailedKillPod, "error killing pod: %v", err)
			}
			return fmt.Errorf("stop pod: %w", err)
		}
		return nil
	}
	for _, k := range acts.kills {
		err := r.s.killContainer(ctx, r.pod, stop{
			id: k.id, name: k.name, message: k.message, grace: gracePeriod(r.pod, k.probe), ips: r.status.IPs,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// remove removes the dead. It is tidying up: what cannot be removed now is
// removed the next time, and holds nothing up.
func (r *run) remove(ctx context.Context, dead removals) {
	for i := range dead.containers {
		c := &dead.containers[i]
		err := r.s.cfg.Runtime.RemoveContainer(ctx, c.ID)
		if err == nil && c.LogPath != "" {
			err = r.s.cfg.Folders.RemoveLog(c.LogPath)
		}
		if err != nil && ctx.Err() == nil {
			r.s.log.Warn("dead container stays for now", "pod", r.name(), "container", c.Name, "err", err)
		}
	}
	for _, id := range dead.sandboxes {
		if err := r.s.cfg.Runtime.RemoveSandbox(ctx, id); err != nil && ctx.Err() == nil {
			r.s.log.Warn("dead sandbox stays for now", "pod", r.name(), "object", id, "err", err)
		}
	}
}

func (r *run) name() string { return r.pod.Namespace + "/" + r.pod.Name }

// create makes the sandbox and learns the pod's addresses.
func (r *run) create(ctx context.Context, acts actions) error {
	warnings, err := r.configure(ctx, acts.attempt)
	if err != nil {
		r.s.events.warn(r.pod, reason.FailedCreatePodSandBox, failedSandboxText, err)
		return fmt.Errorf("configure sandbox: %w", err)
	}
	r.s.events.warnings(r.pod, warnings)
	if err := r.s.cfg.Folders.MakeLogs(r.pod.Namespace, r.pod.Name, r.pod.UID, ""); err != nil {
		return fmt.Errorf("make log folder: %w", err)
	}
	r.id, err = r.runSandbox(ctx)
	if err != nil {
		if ctx.Err() == nil {
			r.s.events.warn(r.pod, reason.FailedCreatePodSandBox, failedSandboxText, err)
		}
		return fmt.Errorf("create sandbox: %w", err)
	}
	status, err := r.s.cfg.Runtime.Inspect(ctx, r.pod.UID)
	if err != nil {
		if ctx.Err() == nil {
			r.s.events.warn(r.pod, reason.FailedPodSandBoxStatus, failedInspectionText, err)
		}
		return fmt.Errorf("inspect new sandbox: %w", err)
	}
	r.status = status
	// The pod has its network: that is worth knowing before images are pulled.
	r.s.cfg.Statuses.Report(r.pod, status, r.old)
	return nil
}

// runSandbox makes the sandbox, and sees to it that the ports of the host which
// it takes are nobody else's.
func (r *run) runSandbox(ctx context.Context) (id string, err error) {
	handler, err := r.handler(ctx)
	if err != nil {
		return "", err
	}
	ports := r.sandbox.GetPortMappings()
	if r.pod.Spec.HostNetwork {
		ports = nil // the pod listens itself
	}
	listeners, err := r.s.cfg.HostPorts.Check(ctx, ports)
	if err != nil {
		return "", err
	}
	for _, l := range listeners {
		r.s.events.warn(r.pod, reason.HostPortConflict, "%s: it is no longer reached there, the pod is", l)
	}
	if id, err = r.s.cfg.Runtime.RunSandbox(ctx, r.sandbox, handler); err != nil {
		return "", err
	}
	if err := r.s.cfg.HostPorts.Confirm(ctx, id, ports); err != nil {
		return "", errors.Join(err, r.s.cfg.Runtime.StopSandbox(ctx, id))
	}
	return id, nil
}

// takeUsers learns which of the host's users are the pod's, if it has its own.
func (r *run) takeUsers(ctx context.Context) error {
	if !podfiles.WantsUserIDs(r.pod) || r.users != nil {
		return nil
	}
	handler, err := r.handler(ctx)
	if err != nil {
		return err
	}
	if err := r.node.CheckUsers(handler); err != nil {
		return err
	}
	ids, err := r.s.cfg.Users.Of(ctx, r.pod.UID)
	if err != nil {
		return fmt.Errorf("create user namespace: %w", err)
	}
	r.users = &ids
	return nil
}

func (r *run) configure(ctx context.Context, attempt uint32) ([]podfiles.Warning, error) {
	if err := r.takeUsers(ctx); err != nil {
		return nil, err
	}
	config, warnings, err := r.node.Sandbox(r.pod, attempt, r.cgroup, r.users)
	r.sandbox = config
	return warnings, err
}

// start starts the containers of the plan. One that cannot start does not keep
// the others from starting, except an init container.
func (r *run) start(ctx context.Context, acts actions) error {
	r.waits = map[string]reason.Wait{}
	var errs []error
	for _, st := range acts.starts {
		if r.sandbox == nil {
			if _, err := r.configure(ctx, acts.attempt); err != nil {
				return fmt.Errorf("configure sandbox: %w", err)
			}
		}
		err := r.startOne(ctx, st)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r.s.starts.container(r.pod, st, err)
		if err == nil {
			continue
		}
		errs = append(errs, r.failed(st, err))
		if st.init && !podfiles.IsSidecar(st.container) {
			break
		}
	}
	return errors.Join(errs...)
}

// A startError is why a container did not start, in the words of the API.
type startError struct {
	wait    reason.Wait
	retryAt time.Time // when it may; zero: as soon as the worker likes
	event   string    // what the warning says after "Error: "; empty: there is none
	err     error     // nil: it only has to wait
}

func (e *startError) Error() string {
	if e.err == nil {
		return e.wait.Reason + ": " + e.wait.Message
	}
	return e.wait.Reason + ": " + e.err.Error()
}

func (e *startError) Unwrap() error { return e.err }

// failed notes why a container did not start and returns what the worker has to
// know: nil if the container only has to wait.
func (r *run) failed(st start, err error) error {
	var why *startError
	if !errors.As(err, &why) {
		why = &startError{wait: reason.Wait{Reason: reason.CreateContainerError, Message: err.Error()}, event: err.Error(), err: err}
	}
	name := st.container.Name
	changed := r.old[name] != why.wait
	r.waits[name] = why.wait
	if !why.retryAt.IsZero() && (r.retryAt.IsZero() || why.retryAt.Before(r.retryAt)) {
		r.retryAt = why.retryAt
	}
	if why.event != "" && changed {
		r.s.events.container(r.pod, name, v1.EventTypeWarning, reason.Failed, "Error: "+why.event)
	}
	if !why.retryAt.IsZero() {
		return nil
	}
	return fmt.Errorf("start container %s: %w", name, why)
}

// startOne pulls the image, creates the container and starts it.
func (r *run) startOne(ctx context.Context, st start) error {
	if !st.until.IsZero() {
		if r.old[st.container.Name] != st.wait {
			r.s.events.container(r.pod, st.container.Name, v1.EventTypeWarning, reason.BackOff,
				fmt.Sprintf("Back-off restarting failed container %s in pod %s", st.container.Name, describe(r.pod)))
		}
		return &startError{wait: st.wait, retryAt: st.until}
	}
	if err := r.pullVolumes(ctx, st.container); err != nil {
		return err
	}
	image, err := r.s.puller.ensure(ctx, r.pod, st.container, r.sandbox)
	if err != nil {
		return err
	}
	config, err := r.containerConfig(ctx, st, image)
	if err != nil {
		return &startError{
			wait:    reason.Wait{Reason: reason.CreateContainerConfigError, Message: err.Error()},
			retryAt: time.Now().Add(r.s.cfg.ConfigRetry), event: err.Error(), err: err,
		}
	}
	id, err := r.s.cfg.Runtime.CreateContainer(ctx, r.id, config, r.sandbox)
	if err != nil {
		return &startError{wait: reason.Wait{Reason: reason.CreateContainerError, Message: err.Error()}, event: err.Error(), err: err}
	}
	r.s.rememberSize(r.pod.UID, id, config.GetLinux().GetResources())
	if st.previous != nil && st.previous.State == observed.Exited {
		// Only now: what never got this far was no new run that could crash.
		r.s.crash.lengthen(r.pod.UID, backoffKey(st.container), st.previous.FinishedAt, time.Now())
	}
	r.s.events.container(r.pod, st.container.Name, v1.EventTypeNormal, reason.Created, "Container created")
	if err := r.s.cfg.Runtime.StartContainer(ctx, id); err != nil {
		return &startError{wait: reason.Wait{Reason: reason.RunContainerError, Message: err.Error()}, event: err.Error(), err: err}
	}
	r.s.events.container(r.pod, st.container.Name, v1.EventTypeNormal, reason.Started, "Container started")
	return r.postStart(ctx, st.container, id)
}

// postStart runs a hook to its end; the container is killed if it fails.
func (r *run) postStart(ctx context.Context, c *v1.Container, id string) error {
	if c.Lifecycle == nil || c.Lifecycle.PostStart == nil {
		return nil
	}
	err := r.s.runHook(ctx, r.pod, c, c.Lifecycle.PostStart, hook{containerID: id, ips: r.ips()})
	if err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	// What the hook says stays out of the event, which more people may read.
	r.s.events.container(r.pod, c.Name, v1.EventTypeWarning, reason.FailedPostStartHook, "PostStartHook failed")
	stopErr := r.s.killContainer(ctx, r.pod, stop{id: id, name: c.Name, message: "FailedPostStartHook", grace: gracePeriod(r.pod, nil), ips: r.ips()})
	return &startError{wait: reason.Wait{Reason: reason.PostStartHookError, Message: err.Error()}, err: errors.Join(err, stopErr)}
}

func (r *run) ips() []string {
	if r.pod.Spec.HostNetwork {
		return r.node.IPs
	}
	return r.status.IPs
}
