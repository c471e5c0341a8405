package volumeplugin

import (
	"errors"
	"io/fs"
	"os"

	"github.com/holdfast-dev/holdfast/internal/kubelet/atomicdir"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

// setUpContent writes the files of a ConfigMap, Secret, projected or downward
// API volume; all but ConfigMaps on a tmpfs of their own, so that no secret
// reaches a disk. Nothing is written if the tmpfs cannot be had.
func (h *Host) setUpContent(dir string, v *podvolumes.Volume) error {
	isMount, err := mounted(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err != nil {
		if err := makeDir(dir); err != nil {
			return err
		}
	}
	if v.Kind.InMemory() && !isMount {
		if err := mountTmpfs(dir, 0, 0o755); err != nil {
			return err
		}
	}
	mode := fs.FileMode(0o755)
	if v.FSGroup != nil {
		if err := os.Lchown(dir, -1, int(*v.FSGroup)); err != nil {
			return err
		}
		mode |= fs.ModeSetgid
	}
	if err := os.Chmod(dir, mode); err != nil {
		return err
	}
	if err := makeNested(dir, v.Nested); err != nil {
		return err
	}
	changed, err := atomicdir.Write(dir, v.Files, atomicdir.Options{GID: v.FSGroup})
	if changed {
		h.log.Debug("volume content written", "podUID", v.PodUID, "volume", v.Name)
	}
	return err
}

// makeNested makes the folders on which other volumes are mounted.
func makeNested(dir string, nested []string) error {
	if len(nested) == 0 {
		return nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range nested {
		if _, err := root.Stat(name); err == nil {
			continue // a file of the content, on which a subPath is mounted
		}
		errs = append(errs, root.MkdirAll(name, 0o755))
	}
	return errors.Join(append(errs, root.Close())...)
}
