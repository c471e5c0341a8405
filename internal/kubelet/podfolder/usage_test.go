package podfolder

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func usagePod() *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"}}
}

// within reports whether n bytes are what was written, and little more: blocks
// and folders.
func within(n, written uint64) bool { return n >= written && n < written+64<<10 }

func TestLogUsage(t *testing.T) {
	f, root := newFolders(t)
	dir := filepath.Join(root, "logs", "ns_p_u")
	write(t, filepath.Join(dir, "a", "0.log"), strings.Repeat("x", 300<<10))
	write(t, filepath.Join(dir, "a", "0.log.20260101-000000.gz"), strings.Repeat("x", 200<<10))
	write(t, filepath.Join(dir, "b", "0.log"), "x")
	outside := filepath.Join(root, "outside")
	write(t, outside, strings.Repeat("x", 4<<20))
	if err := os.Symlink(outside, filepath.Join(dir, "b", "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(filepath.Join(dir, "a", "0.log"), filepath.Join(dir, "a", "again")); err != nil {
		t.Fatal(err)
	}
	logs, err := f.LogUsage(t.Context(), usagePod())
	if err != nil {
		t.Fatal(err)
	}
	if len(logs) != 2 || !within(*logs["a"].UsedBytes, 500<<10) || !within(*logs["b"].UsedBytes, 1) || *logs["a"].InodesUsed != 3 {
		t.Errorf("logs: a %d bytes, b %d bytes, a %d inodes", *logs["a"].UsedBytes, *logs["b"].UsedBytes, *logs["a"].InodesUsed)
	}
}

// TestLogUsageEnds holds that a count that takes too long ends with what was
// counted.
func TestLogUsageEnds(t *testing.T) {
	f, root := newFolders(t)
	write(t, filepath.Join(root, "logs", "ns_p_u", "a", "0.log"), "x")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	logs, err := f.LogUsage(ctx, usagePod())
	if err != nil || *logs["a"].InodesUsed != 0 {
		t.Errorf("logs %v, %v", logs, err)
	}
}

func TestLogUsageOfAPodThatLeadsOut(t *testing.T) {
	f, _ := newFolders(t)
	pod := usagePod()
	pod.UID = "../u"
	if _, err := f.LogUsage(t.Context(), pod); err == nil {
		t.Error("no error")
	}
}
