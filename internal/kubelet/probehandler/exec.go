package probehandler

import (
	"context"
	"errors"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podfiles"
)

// command is well if it ends with 0 in time. It sees the container's own
// environment; $(NAME) in it stands for variables that are written out in the
// pod, since others are not known here.
func (h *Handler) command(ctx context.Context, words []string, c *v1.Container, id string, timeout time.Duration) (bool, string, error) {
	expanded := slices.Clone(words)
	for i := range expanded {
		expanded[i] = podfiles.Expand(expanded[i], func(name string) (string, bool) { return writtenOut(c, name) })
	}
	stdout, stderr, code, err := h.exec.ExecSync(ctx, id, expanded, timeout)
	switch {
	case ctx.Err() != nil:
		return false, "", ctx.Err()
	case errors.Is(err, context.DeadlineExceeded):
		return false, err.Error(), nil
	case err != nil:
		return false, "", err
	}
	if code == 0 {
		return true, "", nil
	}
	output := slices.Concat(stdout, stderr)
	return false, string(output[:min(len(output), maxOutput)]), nil
}

func writtenOut(c *v1.Container, name string) (string, bool) {
	for i := range c.Env {
		if c.Env[i].Name == name && c.Env[i].ValueFrom == nil {
			return c.Env[i].Value, true
		}
	}
	return "", false
}
