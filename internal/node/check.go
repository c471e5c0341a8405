package node

import (
	"github.com/holdfast-dev/holdfast/internal/control"
	"github.com/holdfast-dev/holdfast/internal/kubelet"
	"github.com/holdfast-dev/holdfast/internal/manifest"
	"github.com/holdfast-dev/holdfast/internal/manifestdir"
)

// A CheckConfig says which manifests to check.
type CheckConfig struct {
	NodeName string   // of the node that they are for; default the host's name
	Paths    []string // files, and folders as a manifest folder is read
	Stdin    []byte   // if it is not nil, one more file
}

// Check says what a node would find wrong with manifests, without one. The
// error is of a path that cannot be read at all.
func Check(cfg CheckConfig) (control.Check, error) {
	complete, err := Config{NodeName: cfg.NodeName}.Complete()
	if err != nil {
		return control.Check{}, err
	}
	set, files, err := manifestdir.Read(manifestdir.ReadConfig{
		Paths: cfg.Paths, Stdin: cfg.Stdin, Recursive: true, Parser: manifest.New(), Check: kubelet.NewCheck(complete.NodeName),
	})
	if err != nil {
		return control.Check{}, err
	}
	return control.Check{Documents: len(set.Documents), Files: files, Faults: reportFaults(set.Faults), Ignored: ignoredFiles(set.Ignored)}, nil
}
