package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/kubernetes/pkg/volume"

	"github.com/holdfast-dev/holdfast/internal/kubelet/fsgroup"
)

const (
	perFolder = 1000
	group     = 5000
)

// A tree is what files look like before they are given to a group.
type tree struct {
	name   string
	uid    int
	folder fs.FileMode
}

// trees are those that are measured.
var trees = []tree{{"root's", 0, 0o755}, {"a pod's", 1000, 0o775}}

// makeFiles makes empty files in folders of a thousand.
func makeFiles(dir string, files int) error {
	for i := range files {
		folder := filepath.Join(dir, fmt.Sprintf("folder-%d", i/perFolder))
		if i%perFolder == 0 {
			if err := os.Mkdir(folder, 0o755); err != nil {
				return err
			}
		}
		if err := os.WriteFile(filepath.Join(folder, fmt.Sprintf("file-%d", i)), nil, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// givers are the two sides: each gives all files in dir to the group.
func givers(ctx context.Context, dir string) map[string]func() error {
	return map[string]func() error{
		"upstream": func() error {
			gid := int64(group)
			return volume.NewVolumeOwnership(mounter{}, dir, &gid, nil, nil).ChangePermissions()
		},
		"ours": func() error {
			_, err := fsgroup.Set(ctx, dir, group, nil)
			return err
		},
	}
}

// groups writes the table of files given to an fsGroup.
func groups(ctx context.Context, to *strings.Builder, o options) (err error) {
	dir, err := os.MkdirTemp(o.dir, "holdfast-bench-fsgroup-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	fmt.Fprintf(progress, "make %d files\n", o.files)
	if err := makeFiles(dir, o.files); err != nil {
		return err
	}
	fmt.Fprintf(to, head, fmt.Sprintf("fsGroup, %d files in %d folders", o.files, (o.files+perFolder-1)/perFolder))
	for _, kind := range trees {
		all, none := map[string]costs{}, map[string]costs{}
		for round := range o.rounds {
			fmt.Fprintf(progress, "fsGroup of files that are %s, round %d of %d\n", kind.name, round+1, o.rounds)
			for name, side := range givers(ctx, dir) {
				if err := kind.reset(dir); err != nil {
					return err
				}
				for _, to := range []map[string]costs{all, none} {
					one, err := measure(side)
					if err != nil {
						return fmt.Errorf("%s: %w", name, err)
					}
					to[name] = append(to[name], one)
				}
			}
		}
		row(to, kind.name+", all change", all["upstream"], all["ours"])
		row(to, kind.name+", none changes", none["upstream"], none["ours"])
	}
	return nil
}

// reset makes all files what they were.
func (k tree) reset(dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		if entry.IsDir() {
			mode = k.folder
		}
		return errors.Join(os.Lchown(path, k.uid, k.uid), os.Chmod(path, mode))
	})
}

// mounter is what upstream asks of the volume: whether it is read-only.
type mounter struct{ volume.Mounter }

func (mounter) GetAttributes() volume.Attributes { return volume.Attributes{} }
