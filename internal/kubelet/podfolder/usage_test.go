package podfolder

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

func usagePod() *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"},
		Spec: v1.PodSpec{Volumes: []v1.Volume{
			{Name: "disk", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
			{Name: "memory", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}},
			{Name: "host", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/"}}},
			{Name: "none", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
		}},
	}
}

// within reports whether n bytes are what was written, and little more: blocks
// and folders.
func within(n, written uint64) bool { return n >= written && n < written+64<<10 }

func TestUsage(t *testing.T) {
	f, root := newFolders(t)
	volume := filepath.Join(root, "kubelet", "pods", "u", "volumes", "kubernetes.io~empty-dir", "disk")
	outside := filepath.Join(root, "outside")
	write(t, filepath.Join(volume, "sub", "big"), strings.Repeat("x", 1<<20))
	write(t, filepath.Join(outside, "secret"), strings.Repeat("x", 4<<20))
	if err := os.Link(filepath.Join(volume, "sub", "big"), filepath.Join(volume, "again")); err != nil {
		t.Fatal(err)
	}
	for _, link := range []string{outside, "/", filepath.Join(outside, "secret")} {
		if err := os.Symlink(link, filepath.Join(volume, "to"+strings.ReplaceAll(link, "/", "-"))); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(root, "logs", "ns_p_u", "a", "0.log"), strings.Repeat("x", 300<<10))
	write(t, filepath.Join(root, "logs", "ns_p_u", "a", "0.log.20260101-000000.gz"), strings.Repeat("x", 200<<10))
	write(t, filepath.Join(root, "logs", "ns_p_u", "b", "0.log"), "x")

	logs, volumes, err := f.Usage(t.Context(), usagePod())
	if err != nil {
		t.Fatal(err)
	}
	if len(logs) != 2 || !within(*logs["a"].UsedBytes, 500<<10) || !within(*logs["b"].UsedBytes, 1) || *logs["a"].InodesUsed != 3 {
		t.Errorf("logs: a %d bytes, b %d bytes, a %d inodes", *logs["a"].UsedBytes, *logs["b"].UsedBytes, *logs["a"].InodesUsed)
	}
	used := map[string]stats.FsStats{}
	for _, v := range volumes {
		used[v.Name] = v.FsStats
	}
	if len(used) != 2 || *used["none"].UsedBytes != 0 {
		t.Fatalf("volumes %v, want the two on disk", used)
	}
	// The folders, the file once, and the three links themselves.
	if disk := used["disk"]; !within(*disk.UsedBytes, 1<<20) || *disk.InodesUsed != 6 {
		t.Errorf("disk: %d bytes, %d inodes; want 1 MiB, 6", *disk.UsedBytes, *disk.InodesUsed)
	}
}

// TestUsageEnds holds that a count that takes too long ends with what was
// counted.
func TestUsageEnds(t *testing.T) {
	f, root := newFolders(t)
	write(t, filepath.Join(root, "logs", "ns_p_u", "a", "0.log"), "x")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	logs, _, err := f.Usage(ctx, usagePod())
	if err != nil || *logs["a"].InodesUsed != 0 {
		t.Errorf("logs %v, %v", logs, err)
	}
}

func TestUsageOfAPodThatLeadsOut(t *testing.T) {
	f, _ := newFolders(t)
	pod := usagePod()
	pod.UID = "../u"
	if _, _, err := f.Usage(t.Context(), pod); err == nil {
		t.Error("no error")
	}
}
