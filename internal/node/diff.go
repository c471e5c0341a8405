package node

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/control"
	"github.com/holdfast-dev/holdfast/internal/instance"
	"github.com/holdfast-dev/holdfast/internal/kubelet"
	"github.com/holdfast-dev/holdfast/internal/manifest"
	"github.com/holdfast-dev/holdfast/internal/manifestdiff"
	"github.com/holdfast-dev/holdfast/internal/manifestdir"
)

// Diff says what would change on an instance if one folder took the place of
// its manifest folder, or if files took the place of those that define the same
// objects. Without paths it is about its manifest folder as it is now. What is
// in force is read from the disk, where the node keeps it, so the node need not
// run.
func Diff(in *instance.Instance, paths []string) (control.Difference, error) {
	last, err := loadSaved(in)
	if err != nil {
		return control.Difference{}, err
	}
	inForce, err := manifestdir.Saved(manifestState(in), manifest.New())
	if errors.Is(err, fs.ErrPermission) {
		err = fmt.Errorf("%w (what is in force holds Secrets, and root alone may read it: use sudo)", err)
	}
	if err != nil {
		return control.Difference{}, fmt.Errorf("read what is in force: %w", err)
	}
	if len(paths) == 0 {
		paths = []string{cmp.Or(last.ManifestDir, in.ManifestDir())}
	}
	complete, err := Config{NodeName: last.NodeName}.Complete()
	if err != nil {
		return control.Difference{}, err
	}
	cfg := manifestdir.ReadConfig{Recursive: true, Parser: manifest.New(), Check: kubelet.NewCheck(complete.NodeName)}
	folder, err := isFolder(paths)
	if err != nil {
		return control.Difference{}, err
	}
	if folder {
		cfg.Dir, cfg.InForce = paths[0], inForce
	} else {
		cfg.Paths = paths
	}
	set, _, err := manifestdir.Read(cfg)
	if err != nil {
		return control.Difference{}, err
	}
	if !folder { // the others are not spoken of
		inForce = slices.DeleteFunc(inForce, func(d manifest.Document) bool {
			return !slices.ContainsFunc(set.Documents, func(now manifest.Document) bool { return now.Key == d.Key })
		})
	}
	_, running := in.Running()
	return control.Difference{
		Node: complete.NodeName, Running: running, Changes: manifestdiff.Compare(inForce, set.Documents, set.Kept, complete.NodeName),
		Faults: reportFaults(set.Faults), Ignored: ignoredFiles(set.Ignored),
	}, nil
}

// isFolder reports whether paths are one folder. Several, or a folder beside
// files, are an error.
func isFolder(paths []string) (bool, error) {
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return false, err
		}
		if info.IsDir() && len(paths) > 1 {
			return false, fmt.Errorf("%s is a folder: name one folder, which stands for the whole manifest folder, or files", path)
		}
		if info.IsDir() {
			return true, nil
		}
	}
	return false, nil
}
