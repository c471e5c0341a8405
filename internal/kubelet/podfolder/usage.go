package podfolder

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"syscall"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

// Usage counts what a pod has on disk beside its containers' writable layers:
// the logs by container, and its emptyDirs that are not in memory. When ctx ends
// it returns what it has counted so far: a pod uses at least that.
func (f *Folders) Usage(ctx context.Context, pod *v1.Pod) (logs map[string]stats.FsStats, volumes []stats.VolumeStats, err error) {
	dir, err := f.logFolder(pod.Namespace, pod.Name, pod.UID)
	if err != nil {
		return nil, nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	logs = map[string]stats.FsStats{}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if logs[e.Name()], err = count(ctx, dir, e.Name()); err != nil {
			return nil, nil, err
		}
	}
	layout := podvolumes.Layout(f.root)
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.EmptyDir == nil || v.EmptyDir.Medium != v1.StorageMediumDefault {
			continue
		}
		used, err := count(ctx, layout.Volume(pod.UID, podvolumes.ID{Kind: podvolumes.EmptyDir, Dir: v.Name}), ".")
		if err != nil {
			return nil, nil, err
		}
		volumes = append(volumes, stats.VolumeStats{Name: v.Name, FsStats: used})
	}
	return logs, volumes, nil
}

// A file is one file, whatever names it has.
type file struct{ device, inode uint64 }

// count adds up the blocks and the inodes below dir/name that are on its
// filesystem, each once. It never follows a link out: a pod writes there. What
// vanishes meanwhile is not counted.
func count(ctx context.Context, dir, name string) (used stats.FsStats, err error) {
	used = stats.FsStats{Time: metav1.Now(), UsedBytes: new(uint64), InodesUsed: new(uint64)}
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return used, nil
	} else if err != nil {
		return used, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	var device uint64
	linked := map[file]bool{}
	err = fs.WalkDir(root.FS(), name, func(path string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return fs.SkipAll
		}
		if err != nil {
			return nil //nolint:nilerr // it vanished, or is being changed
		}
		info, err := d.Info()
		if err != nil {
			return nil //nolint:nilerr // likewise
		}
		s := info.Sys().(*syscall.Stat_t)
		if path == name {
			device = s.Dev
		}
		if s.Dev != device {
			return skip(d)
		}
		if s.Nlink > 1 && !d.IsDir() {
			f := file{s.Dev, s.Ino}
			if linked[f] {
				return nil
			}
			linked[f] = true
		}
		*used.UsedBytes += uint64(s.Blocks) * 512 //nolint:gosec // never negative
		*used.InodesUsed++
		return nil
	})
	return used, err
}

// skip passes over what is mounted in a folder.
func skip(d fs.DirEntry) error {
	if d.IsDir() {
		return fs.SkipDir
	}
	return nil
}
