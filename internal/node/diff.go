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
	"github.com/holdfast-dev/holdfast/internal/kubelet/staticpod"
	"github.com/holdfast-dev/holdfast/internal/manifest"
	"github.com/holdfast-dev/holdfast/internal/manifestdiff"
	"github.com/holdfast-dev/holdfast/internal/manifestdir"
)

// Diff says what would change on an instance if one folder took the place of
// its manifest folder, or if files took the place of those that define the same
// objects. Without paths it is about its manifest folder as it is now. What is
// in force is read from the disk, where the node keeps it, so the node need not
// run. sources are what a running node reports: a name that another source has,
// too, is told.
func Diff(in *instance.Instance, paths []string, sources []control.Source) (control.Difference, error) {
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
	changes := manifestdiff.Compare(inForce, set.Documents, set.Kept, complete.NodeName)
	tellClashes(changes, set.Documents, sources, complete.NodeName)
	return control.Difference{
		Node: complete.NodeName, Running: running, Changes: changes,
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

// tellClashes says of pods that would be new what becomes of them beside those of
// the same name from other sources.
func tellClashes(changes []manifestdiff.Change, docs []manifest.Document, sources []control.Source, node string) {
	owners := map[string]string{} // by the pod's name on the node
	for _, s := range sources {
		for _, o := range s.Objects {
			if s.Name != staticpod.SourceFile && o.Kind == "Pod" {
				owners[o.Namespace+"/"+cmp.Or(o.Pod, o.Name)] = s.Name
			}
		}
	}
	names := map[string]string{} // by object
	for _, d := range docs {
		names[d.Key.String()] = d.Key.Namespace + "/" + staticpod.Name(d.Key.Name, node)
	}
	for i, c := range changes {
		if c.Action != manifestdiff.Add {
			continue
		}
		switch owner := owners[names[c.Object]]; owner {
		case "":
		case staticpod.SourceAPI:
			changes[i].Effect = fmt.Sprintf("the pod starts, but the API does not show it, as it has a pod %s itself", names[c.Object])
		default:
			changes[i].Effect = fmt.Sprintf("the pod is left out, as source %s has a pod %s, which is in force", owner, names[c.Object])
		}
	}
}
