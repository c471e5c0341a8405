package cri

import (
	"context"
	"encoding/json"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// UsedImages returns the IDs and names of the images that containers are of,
// running or not, as far as the runtime tells; some twice.
func (r *Runtime) UsedImages(ctx context.Context) ([]string, error) {
	ctx, cancel := r.deadline(ctx)
	defer cancel()
	list, err := r.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", translate(err))
	}
	var used []string
	for _, c := range list.GetContainers() {
		// Runtimes differ in which of these is the image's ID.
		for _, ref := range []string{c.GetImageId(), c.GetImageRef(), c.GetImage().GetImage(), c.GetImage().GetUserSpecifiedImage()} {
			if ref != "" {
				used = append(used, ref)
			}
		}
	}
	return used, nil
}

// SandboxImage returns the name of the image that the runtime makes sandboxes
// of, or nothing if it does not tell. containerd before 2 tells it in its
// configuration alone; later ones pin the image.
func (r *Runtime) SandboxImage(ctx context.Context) (string, error) {
	ctx, cancel := r.deadline(ctx)
	defer cancel()
	got, err := r.runtime.Status(ctx, &runtimeapi.StatusRequest{Verbose: true})
	if err != nil {
		return "", fmt.Errorf("ask the runtime for its configuration: %w", translate(err))
	}
	return sandboxImage(got.GetInfo()["config"]), nil
}

// sandboxImage finds the image in containerd's configuration, as it writes it
// down for people; another runtime's may be anything.
func sandboxImage(config string) string {
	var c struct {
		SandboxImage string `json:"sandboxImage"`
	}
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		return ""
	}
	return c.SandboxImage
}
