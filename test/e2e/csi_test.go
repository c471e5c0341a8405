package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/testenv"
	"github.com/holdfast-dev/holdfast/test/csidriver"
)

// csiObjects are those of a driver: %[1]s is its name, %[2]s short for it, and
// %[3]v whether its volumes are attached.
const csiObjects = `apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: %[1]s}
spec: {attachRequired: %[3]v, podInfoOnMount: true, fsGroupPolicy: File, volumeLifecycleModes: [Persistent, Ephemeral]}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: %[2]s}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  storageClassName: ""
  claimRef: {namespace: default, name: %[2]s}
  csi: {driver: %[1]s, volumeHandle: handle-%[2]s, fsType: ext4}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %[2]s, namespace: default}
spec:
  accessModes: [ReadWriteOnce]
  storageClassName: ""
  volumeName: %[2]s
  resources: {requests: {storage: 1Gi}}
`

// TestCSI has a driver, beside the node as its own pods would be, give volumes
// to pods: it registers while the node runs, and the agent dies in between.
func TestCSI(t *testing.T) {
	t.Parallel()
	testenv.Need(t, "root")
	n := startNode(t)
	n.importBusybox()
	disks := csiDriver(t, "disks.example.com")
	n.kubectlIn(fmt.Sprintf(csiObjects, "disks.example.com", "disk", false), "apply", "-f", "-")
	n.busyboxPod("one", "echo hello > /disk/file; sleep 1000", "    volumeMounts: [{name: d, mountPath: /disk}]\n", "  securityContext: {fsGroup: 4711}\n  volumes: [{name: d, persistentVolumeClaim: {claimName: disk}}]\n")
	n.eventually("the pod says that it waits for the driver", func() error {
		out, err := n.tryKubectl("", "get", "events", "-o", "jsonpath={.items[*].message}")
		return errors.Join(err, wants(out, "CSI driver disks.example.com is not registered on this node: start its node plugin"))
	})
	disks.Announce(t, filepath.Join(n.root, "kubelet", "plugins_registry"))
	n.running("one")
	n.busyboxPod("two", "cat /disk/file; sleep 1000",
		"    volumeMounts: [{name: d, mountPath: /disk, readOnly: true}, {name: s, mountPath: /scratch}]\n",
		"  volumes:\n  - {name: d, persistentVolumeClaim: {claimName: disk}}\n  - {name: s, csi: {driver: disks.example.com}}\n")
	n.running("two")
	n.eventually("the second pod reads what the first wrote", func() error {
		return wants(n.kubectl("logs", "two"), "hello")
	})
	if info, err := os.Stat(disks.Data("handle-disk")); err != nil || info.Mode()&os.ModeSetgid == 0 {
		t.Errorf("the volume was not given to the pod's group: %v, %v", info, err)
	}
	n.eventually("the API knows the driver", func() error {
		return wants(n.kubectl("get", "csinode", n.name, "-o", "jsonpath={.spec.drivers[*].nodeID}"), "node-of-disks.example.com")
	})

	n.csiGrow(disks)
	device := n.csiDevice(disks)
	n.eventually("the volumes have their driver's figures", func() error {
		return wants(n.kubectl("get", "--raw", "/api/v1/nodes/"+n.name+"/proxy/metrics"),
			`kubelet_volume_stats_inodes{namespace="default",persistentvolumeclaim="disk"} 10`,
			`kubelet_volume_stats_capacity_bytes{namespace="default",persistentvolumeclaim="raw"} 1.048576e+06`)
	})

	// The next agent finds what there is, and asks for nothing.
	names := []string{"one", "two", "raw"}
	containersNow := func() (all string) {
		for _, name := range names {
			n.running(name)
			all += containers(n.pod(name)) + "\n"
		}
		return all
	}
	before := containersNow()
	disks.Forget()
	kill(t, n.report().PID)
	n.up()
	if after := containersNow(); after != before {
		t.Errorf("containers are others:\n%s\n%s", before, after)
	}
	if calls := disks.Calls("NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume"); len(calls) > 0 {
		t.Errorf("the driver was called: %v", calls)
	}
	n.kubectl("delete", "pod", "one", "two", "raw", "--wait=false")
	n.eventually("the driver has unstaged the volume", func() error {
		if left := disks.Left(); len(left) > 0 {
			return errors.New(strings.Join(left, ", "))
		}
		return nil
	})
	if got, err := os.ReadFile(device); err != nil || !strings.HasPrefix(string(got), "hello") {
		t.Errorf("the device does not hold what the pod wrote: %v", err)
	}
	n.csiAttach(csiDriver(t, "far.example.com"))
	if broken := disks.Broken(); len(broken) > 0 {
		t.Errorf("rules were broken: %q", broken)
	}
}

// csiGrow has a volume grow while two pods have it. Who says that it is the node's
// turn is the test, in place of the driver's own resizer.
func (n *node) csiGrow(disks *csidriver.Driver) {
	n.t.Helper()
	n.kubectl("patch", "pv", "disk", "--type=merge", "-p", `{"spec":{"capacity":{"storage":"2Gi"}}}`)
	n.kubectl("patch", "pvc", "disk", "--subresource=status", "--type=merge", "-p", `{"status":{"allocatedResources":{"storage":"2Gi"},"allocatedResourceStatuses":{"storage":"NodeResizePending"}}}`)
	n.eventually("the claim says that the volume has grown", func() error {
		out := n.kubectl("get", "pvc", "disk", "-o", "jsonpath={.status.capacity.storage} {.status.allocatedResourceStatuses}")
		if out != "2Gi " {
			return errors.New(out)
		}
		return nil
	})
	if got := disks.Size("handle-disk"); got != 2<<30 {
		n.t.Errorf("the driver has grown it to %d bytes", got)
	}
}

const csiDeviceObjects = `apiVersion: v1
kind: PersistentVolume
metadata: {name: raw}
spec:
  capacity: {storage: 1Mi}
  volumeMode: Block
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  storageClassName: ""
  claimRef: {namespace: default, name: raw}
  csi: {driver: disks.example.com, volumeHandle: handle-raw}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: raw, namespace: default}
spec:
  accessModes: [ReadWriteOnce]
  volumeMode: Block
  storageClassName: ""
  volumeName: raw
  resources: {requests: {storage: 1Mi}}
`

// csiDevice has a pod write to a device of a driver, and returns the device.
func (n *node) csiDevice(disks *csidriver.Driver) string {
	n.t.Helper()
	device := testenv.LoopDevice(n.t, 1<<20)
	if err := os.Symlink(device, disks.Data("handle-raw")); err != nil {
		n.t.Fatal(err)
	}
	n.kubectlIn(csiDeviceObjects, "apply", "-f", "-")
	n.busyboxPod("raw", "echo hello > /dev/disk && sync && echo written; sleep 1000", "    volumeDevices: [{name: d, devicePath: /dev/disk}]\n", "  volumes: [{name: d, persistentVolumeClaim: {claimName: raw}}]\n")
	n.running("raw")
	n.eventually("the pod has written to its device", func() error { return wants(n.kubectl("logs", "raw"), "written") })
	return device
}

// csiAttach has a volume attached before its pod gets it. Who attaches it is the
// test, in place of the driver's own controller.
func (n *node) csiAttach(far *csidriver.Driver) {
	n.t.Helper()
	far.Announce(n.t, filepath.Join(n.root, "kubelet", "plugins_registry"))
	n.kubectlIn(fmt.Sprintf(csiObjects, "far.example.com", "far", true), "apply", "-f", "-")
	n.busyboxPod("attached", "sleep 1000", "    volumeMounts: [{name: d, mountPath: /disk}]\n", "  volumes: [{name: d, persistentVolumeClaim: {claimName: far}}]\n")
	const inUse = "kubernetes.io/csi/far.example.com^handle-far"
	var attachment string
	n.eventually("the volume is to be attached, and the node says that it uses it", func() error {
		attachment = n.kubectl("get", "volumeattachment", "-o", "jsonpath={.items[*].metadata.name}")
		if attachment == "" {
			return errors.New("no VolumeAttachment")
		}
		return wants(n.kubectl("get", "node", n.name, "-o", "jsonpath={.status.volumesInUse}"), inUse)
	})
	if calls := far.Calls("NodeStageVolume", "NodePublishVolume"); len(calls) > 0 {
		n.t.Errorf("the driver was called before the volume was attached: %v", calls)
	}
	n.kubectl("patch", "volumeattachment", attachment, "--subresource=status", "--type=merge", "-p", `{"status":{"attached":true}}`)
	n.running("attached")
	n.kubectl("delete", "pod", "attached", "--wait=false")
	n.eventually("the volume is to be detached", func() error {
		if out := n.kubectl("get", "volumeattachment", "-o", "name"); out != "" {
			return errors.New(out)
		}
		return nil
	})
	if left := far.Left(); len(left) > 0 {
		n.t.Errorf("it is detached while the driver has it: %v", left)
	}
	if broken := far.Broken(); len(broken) > 0 {
		n.t.Errorf("rules were broken: %q", broken)
	}
}

// csiDriver starts a driver whose volumes are folders.
func csiDriver(t *testing.T, name string) *csidriver.Driver {
	t.Helper()
	d := csidriver.New(csidriver.Config{Name: name, Dir: t.TempDir(), Mount: true})
	d.Serve(t)
	return d
}
