package podsync

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/holdfast-dev/holdfast/internal/retry"
)

// classPoll is how often it is looked for a runtime class that may be on its
// way.
const classPoll = 100 * time.Millisecond

// handler returns which of the runtime's handlers the pod's class names, "" for
// the runtime's default. A class that is not there may come in a moment, as when
// the manifest folder brings it together with the pod: that is not worth an
// event.
func (r *run) handler(ctx context.Context) (string, error) {
	name := r.pod.Spec.RuntimeClassName
	if name == nil || *name == "" {
		return "", nil
	}
	notice, cancel := context.WithTimeout(ctx, r.s.cfg.MountNotice)
	defer cancel()
	for {
		class, err := r.s.cfg.Objects.GetRuntimeClass(notice, *name)
		switch {
		case err == nil:
			return class.Handler, nil
		case !apierrors.IsNotFound(err):
			return "", err
		case !retry.Sleep(notice, classPoll):
			return "", fmt.Errorf("%w (make a RuntimeClass of that name: with kubectl, or, on a node that has one, in its manifest folder)", err)
		}
	}
}
