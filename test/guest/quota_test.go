package guest_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/test/guest/wire"
)

// sized is a pod with an emptyDir of 16 MiB. %[1]s is its name, %[2]v whether it has the
// machine's users.
const sized = `apiVersion: v1
kind: Pod
metadata:
  name: %[1]s
spec:
  hostUsers: %[2]v
  terminationGracePeriodSeconds: 1
  containers:
    - name: app
      image: holdfast.local/demo:latest
      args: [serve]
      volumeMounts: [{name: v, mountPath: /v}]
  volumes:
    - {name: v, emptyDir: {sizeLimit: 16Mi}}
`

// TestNodeWithQuota has a node on a disk with project quota: its emptyDirs are not
// counted file by file, one has the size that it says, and who goes beyond is evicted.
func TestNodeWithQuota(t *testing.T) {
	n := newNode(t, wire.Disk{MiB: 4096, FS: "ext4", Options: "prjquota", MkfsArgs: []string{"-O", "quota,project", "-E", "quotatype=prjquota"}})
	n.write("own.yaml", fmt.Sprintf(sized, "own", false))
	n.write("shared.yaml", fmt.Sprintf(sized, "shared", true))
	n.up()
	for _, name := range []string{"own-edge-1", "shared-edge-1"} {
		pod := n.running(name, "")
		volume := fmt.Sprintf("/var/lib/holdfast/kubelet/pods/%s/volumes/kubernetes.io~empty-dir/v", pod.Annotations["kubernetes.io/config.hash"])
		size := sh(t, n.m, "stat -f -c '%b %S' "+volume+" | awk '{ print $1 * $2 }'")
		if isSized := size == "16777216\n"; isSized != hasOwnUsers(pod) {
			t.Errorf("%s: statfs says %s bytes", name, size)
		}
		n.eventually(name+" is measured by quota", []string{"holdfast", "kubectl", "get", "--raw", "/api/v1/nodes/edge-1/proxy/metrics"}, func(metrics string) bool {
			return strings.Contains(metrics, fmt.Sprintf(`holdfast_volume_used_bytes{method="quota",namespace="default",pod=%q,source="emptyDir",volume="v"}`, name))
		})
		out := sh(t, n.m, "holdfast kubectl exec "+name+" -- /demo burn disk /v/file 64Mi 2>&1 && echo all of it || true")
		if wrote := strings.Contains(out, "all of it"); wrote == hasOwnUsers(pod) {
			t.Errorf("%s wrote 64 MiB: %v\n%s", name, wrote, out)
		}
		n.eventually(name+" is evicted", []string{"holdfast", "kubectl", "get", "pod", name, "-o", "json"}, func(stdout string) bool {
			var pod v1.Pod
			return json.Unmarshal([]byte(stdout), &pod) == nil && pod.Status.Reason == "Evicted" && pod.Status.Message == `Usage of EmptyDir volume "v" exceeds the limit "16Mi". `
		})
		n.eventually("the volume of "+name+" is gone", []string{"sh", "-ec", "test ! -e " + volume + " && echo gone"}, func(stdout string) bool { return stdout == "gone\n" })
	}
}

// hasOwnUsers reports whether a pod's users are nobody on the machine.
func hasOwnUsers(pod *v1.Pod) bool { return pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers }
