package cri

import (
	"context"
	"fmt"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// noPauseImage is what to do where a runtime that is not ours has no registry to
// get its pause image from.
const noPauseImage = "the configuration of the runtime names its pause image, as sandbox_image: without a registry set it to holdfast.local/pause:1, " +
	"restart the runtime, and give it that image: holdfast export-image pause | ctr --namespace k8s.io images import -"

// noHandler is what to do where the runtime has no handler of the name that a
// RuntimeClass says.
const noHandler = "the RuntimeClass names a handler that this node's runtime has not; those it has are in the Node's status.runtimeHandlers, " +
	"and the private containerd gets more by runtimeHandlers in the node's configuration file"

// RunSandbox creates and starts a sandbox with the runtime's handler of that
// name, empty for its default, and returns its ID. It takes up to twice the
// timeout, since the network is set up in it. The end of ctx does not break it off
// within its first seconds.
func (r *Runtime) RunSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (id string, err error) {
	ctx, cancel := throughout(ctx, 2*r.timeout)
	defer cancel()
	got, err := r.runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config, RuntimeHandler: handler})
	if err != nil {
		err = translate(err)
		switch said := err.Error(); { // containerd's words
		case strings.Contains(said, "get sandbox image"):
			err = fmt.Errorf("%w (%s)", err, noPauseImage)
		case strings.Contains(said, "no runtime for"):
			err = fmt.Errorf("%w (%s)", err, noHandler)
		}
		return "", fmt.Errorf("run sandbox of pod %s/%s: %w", config.GetMetadata().GetNamespace(), config.GetMetadata().GetName(), err)
	}
	return got.GetPodSandboxId(), nil
}
