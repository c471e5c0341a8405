package server

import (
	"fmt"
	"net/http"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
)

// A target is the pod, and mostly the container, that a request's path names.
type target struct {
	pod       *v1.Pod
	container string
	status    *observed.Status
}

// find looks up what a request's path names, or answers the request and
// returns false.
func (s *Server) find(w http.ResponseWriter, r *http.Request) (target, bool) {
	namespace, name, container := r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container")
	bad := slices.Concat(validation.IsDNS1123Label(namespace), validation.IsDNS1123Subdomain(name))
	hasContainer := r.Pattern != "/portForward/{namespace}/{pod}" && r.Pattern != "/portForward/{namespace}/{pod}/{uid}"
	if hasContainer {
		bad = append(bad, validation.IsDNS1123Label(container)...)
	}
	if len(bad) > 0 {
		http.Error(w, fmt.Sprintf("the path names no pod: %s", bad[0]), http.StatusBadRequest)
		return target{}, false
	}
	pod, ok := s.cfg.Pods.PodByName(namespace, name)
	if uid := types.UID(r.PathValue("uid")); ok && uid != "" && uid != pod.UID {
		ok = false
	}
	if !ok {
		http.Error(w, fmt.Sprintf("pod %q does not exist", name), http.StatusNotFound)
		return target{}, false
	}
	if hasContainer && !declares(pod, container) {
		http.Error(w, fmt.Sprintf("container %q not found in pod %q", container, name), http.StatusNotFound)
		return target{}, false
	}
	status, err := s.cfg.Statuses.Get(pod.UID)
	if err != nil && status == nil {
		http.Error(w, fmt.Sprintf("the status of pod %q is not known: %v", name, err), http.StatusInternalServerError)
		return target{}, false
	}
	return target{pod, container, status}, true
}

// findRunning looks up the ID of the container that a request's path names and
// that has to run, or answers the request and returns false.
func (s *Server) findRunning(w http.ResponseWriter, r *http.Request) (id string, ok bool) {
	target, ok := s.find(w, r)
	if !ok {
		return "", false
	}
	return target.running(w)
}

// declares reports whether a pod has a container of that name, of any kind.
func declares(pod *v1.Pod, name string) bool {
	for _, containers := range [][]v1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			if containers[i].Name == name {
				return true
			}
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if pod.Spec.EphemeralContainers[i].Name == name {
			return true
		}
	}
	return false
}
