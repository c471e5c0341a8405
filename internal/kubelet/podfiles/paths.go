package podfiles

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// PodFolder returns a pod's folder under the kubelet's folder.
func PodFolder(root string, uid types.UID) string {
	return filepath.Join(root, "pods", string(uid))
}

// ContainerFolder returns where a container's termination message lies.
func ContainerFolder(root string, uid types.UID, container string) string {
	return filepath.Join(PodFolder(root, uid), "containers", container)
}

// HostsPath returns where a pod's /etc/hosts lies on the node.
func HostsPath(root string, uid types.UID) string {
	return filepath.Join(PodFolder(root, uid), "etc-hosts")
}

// LogFolder returns a pod's log folder under the folder of all pods' logs, as
// the upstream kubelet names it.
func LogFolder(logs, namespace, name string, uid types.UID) string {
	return filepath.Join(logs, fmt.Sprintf("%s_%s_%s", namespace, name, uid))
}

// LogPath returns a container's log file, relative to the pod's log folder.
func LogPath(container string, attempt int32) string {
	return filepath.Join(container, strconv.Itoa(int(attempt))+".log")
}

// IsFolderName reports whether a name, such as a pod's UID, stays a single
// element of a path.
func IsFolderName(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\x00")
}
