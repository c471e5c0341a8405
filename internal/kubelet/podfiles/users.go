package podfiles

import (
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// UserIDs are the host's user and group IDs that those of a pod are mapped to,
// from the pod's 0 on.
type UserIDs struct {
	First, Count uint32
}

// WantsUserIDs reports whether a pod has user and group IDs of its own.
func WantsUserIDs(pod *v1.Pod) bool { return pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers }

// CheckUsers returns why a pod cannot have users of its own with the runtime's
// handler called name, in upstream's words, or nil.
func (n *Node) CheckUsers(handler string) error {
	switch {
	case n.separatesUsers(handler):
		return nil
	case handler != "":
		return fmt.Errorf("can't set `spec.hostUsers: false`, RuntimeClass handler %q does not support user namespaces", handler)
	}
	return errors.New("can't set `spec.hostUsers: false`, runtime does not support user namespaces")
}

// userNamespace returns the runtime's form of a pod's IDs; nil: the host's.
func userNamespace(ids *UserIDs) *runtimeapi.UserNamespace {
	if ids == nil {
		return nil
	}
	return &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: idMappings(ids), Gids: idMappings(ids)}
}

func idMappings(ids *UserIDs) []*runtimeapi.IDMapping {
	return []*runtimeapi.IDMapping{{HostId: ids.First, ContainerId: 0, Length: ids.Count}}
}

// mapMounts has the owners in what is mounted be who they are on the host, seen
// from the pod: root's files are root's there.
func mapMounts(mounts []*runtimeapi.Mount, ids *UserIDs) {
	if ids == nil {
		return
	}
	for _, m := range mounts {
		m.UidMappings, m.GidMappings = idMappings(ids), idMappings(ids)
	}
}
