package node

import (
	"cmp"
	"log/slog"

	"github.com/holdfast-dev/holdfast/internal/control"
	"github.com/holdfast-dev/holdfast/internal/instance"
	"github.com/holdfast-dev/holdfast/internal/runtimehost"
)

// Offline reports on an instance that no process runs: what its last start
// saved, and whether anything of it still runs. Its one fault says what to do.
func Offline(in *instance.Instance) (*control.Report, error) {
	last, err := loadSaved(in)
	if err != nil {
		return nil, err
	}
	left, err := runtimehost.New(hostConfig(in, slog.New(slog.DiscardHandler), nil)).Left()
	if err != nil {
		return nil, err
	}
	message := "no process runs this node, and none of its pods"
	switch {
	case last.ContainerRuntimeEndpoint != "":
		message = "no process runs this node; pods that it started may still run on " + last.ContainerRuntimeEndpoint
	case left:
		message = "no process runs this node; pods that it started still run"
	}
	name, dir := cmp.Or(last.NodeName, in.ID), cmp.Or(last.ManifestDir, in.ManifestDir())
	return &control.Report{
		Node: name, RootDir: in.Root, ID: in.ID, Kubeconfig: in.Kubeconfig(), ManifestDir: dir,
		Sources: append(offlineSources(in, dir, name), offlineURL(in, last.ManifestURL, name)...),
		Parts:   []control.Part{}, Pods: []control.Pod{}, Images: []control.Image{}, Faults: []control.Fault{{Message: message}},
	}, nil
}
