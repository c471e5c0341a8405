package podfolder

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/holdfast-dev/holdfast/internal/diskusage"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

// Usage counts what a pod has on disk beside its containers' writable layers:
// the logs by container, and its emptyDirs that are not in memory. When ctx ends
// it returns what it has counted so far: a pod uses at least that.
func (f *Folders) Usage(ctx context.Context, pod *v1.Pod) (logs map[string]stats.FsStats, volumes []stats.VolumeStats, err error) {
	if logs, err = f.LogUsage(ctx, pod); err != nil {
		return nil, nil, err
	}
	layout := podvolumes.Layout(f.root)
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.EmptyDir == nil || v.EmptyDir.Medium != v1.StorageMediumDefault {
			continue
		}
		used, err := count(ctx, layout.Volume(pod.UID, podvolumes.ID{Kind: podvolumes.EmptyDir, Dir: v.Name}))
		if err != nil {
			return nil, nil, err
		}
		volumes = append(volumes, stats.VolumeStats{Name: v.Name, FsStats: used})
	}
	return logs, volumes, nil
}

// LogUsage counts the logs of a pod, by container, as Usage does.
func (f *Folders) LogUsage(ctx context.Context, pod *v1.Pod) (map[string]stats.FsStats, error) {
	dir, err := f.logFolder(pod.Namespace, pod.Name, pod.UID)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	logs := map[string]stats.FsStats{}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if logs[e.Name()], err = count(ctx, filepath.Join(dir, e.Name())); err != nil {
			return nil, err
		}
	}
	return logs, nil
}

// count adds up what is in a folder that a pod may write in. It ends with ctx, with
// what was counted so far. A folder that is not there is empty.
func count(ctx context.Context, dir string) (stats.FsStats, error) {
	used, err := diskusage.Measure(ctx, dir, diskusage.Options{})
	if errors.Is(err, fs.ErrNotExist) || ctx.Err() != nil {
		err = nil
	}
	return stats.FsStats{Time: metav1.Now(), UsedBytes: &used.Bytes, InodesUsed: &used.Inodes}, err
}
