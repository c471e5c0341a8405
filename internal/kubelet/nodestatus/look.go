package nodestatus

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// patience is how long a runtime may fail to answer before the node stops
// being ready, as for the upstream kubelet: a restart of containerd is shorter.
const patience = 30 * time.Second

// look is what the last look at the runtime saw.
type look struct {
	at         time.Time // when the runtime last answered; zero: never
	version    string    // containerd://2.2.1
	runtimeErr error
	networkErr error
	handlers   []v1.NodeRuntimeHandler
	features   *v1.NodeFeatures
}

// lookAtRuntime asks the runtime how it is and reports whether its or the
// network's readiness changed.
func (r *Reporter) lookAtRuntime(ctx context.Context) bool {
	r.mu.Lock()
	before := r.mu.look
	r.mu.Unlock()

	now, err := r.ask(ctx, before)
	if ctx.Err() != nil {
		return false
	}
	if err != nil {
		now = before
		if before.at.IsZero() || time.Since(before.at) > patience {
			now.runtimeErr = fmt.Errorf("%w: %w", errRuntimeDown, err)
		}
	}
	r.mu.Lock()
	r.mu.look = now
	r.mu.Unlock()

	changed := textOf(before.runtimeErr) != textOf(now.runtimeErr) || textOf(before.networkErr) != textOf(now.networkErr)
	if changed {
		r.log.Info("Runtime readiness changed", "runtime", now.version, "runtimeErr", textOf(now.runtimeErr), "networkErr", textOf(now.networkErr))
	}
	return changed
}

func (r *Reporter) ask(ctx context.Context, before look) (look, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.CallTimeout)
	defer cancel()
	now := look{version: before.version}
	// The version is asked again after each time the runtime was away: it may
	// have been upgraded meanwhile.
	if before.version == "" || before.runtimeErr != nil || time.Since(before.at) > 2*r.cfg.LookPeriod {
		version, err := r.cfg.Runtime.Version(ctx)
		if err != nil {
			return look{}, err
		}
		now.version = version.GetRuntimeName() + "://" + version.GetRuntimeVersion()
	}
	status, err := r.cfg.Runtime.Status(ctx)
	if err != nil {
		return look{}, err
	}
	now.at = time.Now()
	now.runtimeErr = conditionErr(status.GetStatus(), runtimeapi.RuntimeReady, "container runtime not ready")
	now.networkErr = conditionErr(status.GetStatus(), runtimeapi.NetworkReady, "container runtime network not ready")
	now.handlers, now.features = handlersOf(status), featuresOf(status)
	return now, nil
}

// conditionErr reads one condition of the runtime's report; the wording is the
// upstream kubelet's, which people search for.
func conditionErr(status *runtimeapi.RuntimeStatus, kind, what string) error {
	for _, c := range status.GetConditions() {
		if c.GetType() != kind {
			continue
		}
		if c.GetStatus() {
			return nil
		}
		return fmt.Errorf("%s: %s=false reason:%s message:%s", what, kind, c.GetReason(), c.GetMessage())
	}
	return fmt.Errorf("%s: the runtime does not report %s", what, kind)
}

func handlersOf(status *runtimeapi.StatusResponse) []v1.NodeRuntimeHandler {
	var handlers []v1.NodeRuntimeHandler
	for _, h := range status.GetRuntimeHandlers() {
		handlers = append(handlers, v1.NodeRuntimeHandler{
			Name: h.GetName(),
			Features: &v1.NodeRuntimeHandlerFeatures{
				RecursiveReadOnlyMounts: new(h.GetFeatures().GetRecursiveReadOnlyMounts()),
				UserNamespaces:          new(h.GetFeatures().GetUserNamespaces()),
			},
		})
	}
	return handlers
}

func featuresOf(status *runtimeapi.StatusResponse) *v1.NodeFeatures {
	if status.GetFeatures() == nil {
		return nil
	}
	return &v1.NodeFeatures{SupplementalGroupsPolicy: new(status.GetFeatures().GetSupplementalGroupsPolicy())}
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
