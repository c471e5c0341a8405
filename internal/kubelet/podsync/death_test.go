package podsync

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/cri"
	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
)

// deadly is a runtime whose caller dies at one of its changes, before it is
// made or after, with the answer lost.
type deadly struct {
	*cri.Runtime
	die   context.CancelFunc
	left  int // changes until then
	after bool
}

// change makes a change, unless the caller dies first.
func (d *deadly) change(ctx context.Context, do func() error) error {
	if d.left--; d.left >= 0 {
		return do()
	}
	if d.left == -1 && d.after {
		if err := do(); err != nil {
			return err
		}
	}
	d.die()
	return ctx.Err()
}

func (d *deadly) RunSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (id string, err error) {
	err = d.change(ctx, func() error { id, err = d.Runtime.RunSandbox(ctx, config, handler); return err })
	return id, err
}

func (d *deadly) CreateContainer(ctx context.Context, sandboxID string, config *runtimeapi.ContainerConfig, sandbox *runtimeapi.PodSandboxConfig) (id string, err error) {
	err = d.change(ctx, func() error {
		id, err = d.Runtime.CreateContainer(ctx, sandboxID, config, sandbox)
		return err
	})
	return id, err
}

func (d *deadly) StartContainer(ctx context.Context, id string) error {
	return d.change(ctx, func() error { return d.Runtime.StartContainer(ctx, id) })
}

func (d *deadly) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	return d.change(ctx, func() error { return d.Runtime.StopContainer(ctx, id, grace) })
}

func (d *deadly) RemoveContainer(ctx context.Context, id string) error {
	return d.change(ctx, func() error { return d.Runtime.RemoveContainer(ctx, id) })
}

func (d *deadly) StopSandbox(ctx context.Context, id string) error {
	return d.change(ctx, func() error { return d.Runtime.StopSandbox(ctx, id) })
}

func (d *deadly) RemoveSandbox(ctx context.Context, id string) error {
	return d.change(ctx, func() error { return d.Runtime.RemoveSandbox(ctx, id) })
}

// TestDiesAtEachStep holds that whoever comes after a process that died at any
// step of a pod's life goes on from there: no container twice, none restarted,
// nothing left.
func TestDiesAtEachStep(t *testing.T) {
	for _, after := range []bool{false, true} {
		died := true
		for n := 0; died; n++ {
			t.Run(fmt.Sprintf("change %d, after=%v", n, after), func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var runtime *deadly
				w := newWorld(t, func(c *Config) {
					runtime = &deadly{Runtime: c.Runtime.(*cri.Runtime), die: cancel, left: n, after: after}
					c.Runtime = runtime
				})
				w.pod.Spec.InitContainers = []v1.Container{{Name: "side", Image: image, RestartPolicy: new(v1.ContainerRestartPolicyAlways)}}
				w.live(ctx)
				died = ctx.Err() != nil

				w.cfg.Runtime = w.runtime
				w.Syncer = New(w.cfg)
				if w.pod.DeletionTimestamp == nil {
					for range 4 {
						w.mustSync()
					}
					var got []string
					for _, c := range w.inspect().Containers {
						got = append(got, fmt.Sprintf("%s %s %d", c.Name, c.State, c.RestartCount))
					}
					if diff := cmp.Diff(got, []string{"main running 0", "side running 0"}); diff != "" {
						t.Errorf("got -, want +:\n%s", diff)
					}
					if got := len(w.inspect().Sandboxes); got != 1 {
						t.Errorf("got %d sandboxes, want 1", got)
					}
				}
				w.live(t.Context())
				if st := w.inspect(); len(st.Containers)+len(st.Sandboxes) > 0 {
					t.Errorf("left: %+v", st)
				}
			})
		}
	}
}

// live brings the pod through its life, from where it is, until ctx ends.
func (w *world) live(ctx context.Context) {
	w.t.Helper()
	for range 4 {
		if w.pod.DeletionTimestamp != nil || w.step(ctx, w.syncOnly) {
			break
		}
	}
	if ctx.Err() != nil {
		return
	}
	w.pod.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	for _, step := range []func(context.Context, *observed.Status) error{
		func(ctx context.Context, st *observed.Status) error {
			return w.SyncTerminating(ctx, w.pod, st, new(int64(5)))
		},
		w.terminated,
	} {
		if w.step(ctx, step) {
			return
		}
	}
}

// syncOnly is a step of a pod that lives.
func (w *world) syncOnly(ctx context.Context, st *observed.Status) error {
	_, err := w.SyncPod(ctx, w.pod, nil, st)
	return err
}

// step makes one step and reports whether ctx has ended.
func (w *world) step(ctx context.Context, do func(context.Context, *observed.Status) error) bool {
	w.t.Helper()
	err := do(ctx, w.inspect())
	if err != nil && ctx.Err() == nil {
		w.t.Fatal(err)
	}
	return ctx.Err() != nil
}
