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
)

// LogUsage counts the logs of a pod, by container. When ctx ends it returns what it has
// counted so far: a pod has at least that.
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

// count adds up what is in a folder. It ends with ctx, with what was counted so far. A
// folder that is not there is empty.
func count(ctx context.Context, dir string) (stats.FsStats, error) {
	used, err := diskusage.Measure(ctx, dir, diskusage.Options{})
	if errors.Is(err, fs.ErrNotExist) || ctx.Err() != nil {
		err = nil
	}
	return stats.FsStats{Time: metav1.Now(), UsedBytes: &used.Bytes, InodesUsed: &used.Inodes}, err
}
