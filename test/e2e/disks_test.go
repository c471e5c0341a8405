package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// diskVolume is a PersistentVolume on a device of the node, and its claim.
func diskVolume(name, device, mode, fsType, size string) string {
	return fmt.Sprintf(`---
apiVersion: v1
kind: PersistentVolume
metadata: {name: %[1]s}
spec:
  capacity: {storage: %[5]s}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  storageClassName: disks
  volumeMode: %[3]s
  claimRef: {namespace: default, name: %[1]s}
  local: {path: %[2]s%[4]s}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [edge-1]}]}]}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %[1]s}
spec:
  accessModes: [ReadWriteOnce]
  storageClassName: disks
  volumeMode: %[3]s
  volumeName: %[1]s
  resources: {requests: {storage: %[5]s}}
`, name, device, mode, fsType, size)
}

// TestDisks gives pods a disk of the node as a filesystem and another one as it
// is, kills the agent under them, and makes the first disk larger.
func TestDisks(t *testing.T) {
	t.Parallel()
	files, raw := testenv.LoopDevice(t, 320<<20), testenv.LoopDevice(t, 8<<20)
	n := startNode(t)
	n.kubectlIn(`apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: disks}
provisioner: kubernetes.io/no-provisioner
allowVolumeExpansion: true
`+diskVolume("files", files, "Filesystem", ", fsType: xfs", "320Mi")+diskVolume("raw", raw, "Block", "", "8Mi")+"---\n"+
		demoPod("files", "serve", "    volumeMounts: [{name: v, mountPath: /data}]\n  volumes: [{name: v, persistentVolumeClaim: {claimName: files}}]\n")+"---\n"+
		demoPod("raw", "serve", "    volumeDevices: [{name: v, devicePath: /dev/disk}]\n  volumes: [{name: v, persistentVolumeClaim: {claimName: raw}}]\n"), "apply", "-f", "-")
	before := containers(n.running("files")) + containers(n.running("raw"))
	n.kubectl("exec", "files", "--", "/demo", "write", "/data/note", "in a filesystem")
	n.kubectl("exec", "raw", "--", "/demo", "write", "/dev/disk", "on the disk itself")

	kill(t, n.report().PID)
	n.up()
	if after := containers(n.running("files")) + containers(n.running("raw")); after != before {
		t.Errorf("other containers after a crash:\n%s\nbefore:\n%s", after, before)
	}
	if out := n.kubectl("exec", "files", "--", "/demo", "cat", "/data/note"); !strings.Contains(out, "in a filesystem") {
		t.Errorf("the file holds %q", out)
	}
	if got := startOf(t, raw); !strings.HasPrefix(got, "on the disk itself") {
		t.Errorf("the disk holds %q", got)
	}

	t.Run("a larger claim", func(t *testing.T) {
		sub := *n
		sub.t = t
		testLargerClaim(t, &sub, files)
	})

	// What only reads gets the disk so that it cannot do more.
	n.kubectl("delete", "pod", "raw", "--timeout=3m")
	n.kubectlIn(demoPod("reader", "serve", "    volumeDevices: [{name: v, devicePath: /dev/disk}]\n  volumes: [{name: v, persistentVolumeClaim: {claimName: raw, readOnly: true}}]\n"), "apply", "-f", "-")
	n.running("reader")
	if out, err := n.tryKubectl("", "exec", "reader", "--", "/demo", "write", "/dev/disk", "overwritten"); err == nil {
		t.Errorf("a reader wrote: %s", out)
	}
	if got := startOf(t, raw); !strings.HasPrefix(got, "on the disk itself") {
		t.Errorf("the disk holds %q", got)
	}
	n.kubectl("delete", "pod", "files", "reader", "--timeout=3m")
	n.kubectl("delete", "pvc", "files", "raw", "--timeout=3m")
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || bytes.Contains(mounts, []byte(files+" ")) {
		t.Errorf("the disk is still mounted, or %v", err)
	}
}

// testLargerClaim has the filesystem grown while its pod uses it.
func testLargerClaim(t *testing.T, n *node, device string) {
	backing, err := os.ReadFile("/sys/block/" + filepath.Base(device) + "/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(strings.TrimSpace(string(backing)), 400<<20); err != nil {
		t.Fatal(err)
	}
	if out, err := run(t, "", "losetup", "--set-capacity", device); err != nil {
		t.Fatalf("losetup: %v: %s", err, out)
	}
	n.kubectl("patch", "pvc", "files", "-p", `{"spec":{"resources":{"requests":{"storage":"400Mi"}}}}`)
	n.eventually("the claim has its new size", func() error {
		api, err := n.coreAPI()
		if err != nil {
			return err
		}
		ctx, cancel := n.bounded()
		defer cancel()
		claim, err := api.PersistentVolumeClaims(v1.NamespaceDefault).Get(ctx, "files", metav1.GetOptions{})
		if err != nil {
			return err
		}
		pending := slices.ContainsFunc(claim.Status.Conditions, func(c v1.PersistentVolumeClaimCondition) bool {
			return c.Type == v1.PersistentVolumeClaimFileSystemResizePending
		})
		if size := claim.Status.Capacity.Storage(); size.String() != "400Mi" || pending || len(claim.Status.AllocatedResourceStatuses) > 0 {
			return fmt.Errorf("status: %+v", claim.Status)
		}
		return nil
	})
	var stat unix.Statfs_t
	if err := unix.Statfs(filepath.Join(n.root, "kubelet/plugins/kubernetes.io/local-volume/mounts/files"), &stat); err != nil {
		t.Fatal(err)
	}
	if size := int64(stat.Blocks) * stat.Bsize; size < 330<<20 {
		t.Errorf("the filesystem has %d bytes", size)
	}
}

// startOf returns the first bytes of a device, as they are on it.
func startOf(t *testing.T, device string) string {
	t.Helper()
	file, err := os.Open(device)
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, 512)
	_, err = file.ReadAt(data, 0)
	if err = errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	return string(data)
}
