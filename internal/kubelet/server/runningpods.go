package server

import (
	"net/http"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
)

// serveRunningPods answers /runningpods: the pods of which something runs,
// wanted or not, with the names of their running containers.
func (s *Server) serveRunningPods(w http.ResponseWriter, _ *http.Request) {
	list := podList()
	for _, pod := range s.cfg.Relist.Pods() {
		running := v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID}}
		for _, container := range pod.Containers {
			if container.State == observed.Running {
				running.Spec.Containers = append(running.Spec.Containers, v1.Container{Name: container.Name})
			}
		}
		if len(running.Spec.Containers) > 0 || anyRunning(pod.Sandboxes) {
			list.Items = append(list.Items, running)
		}
	}
	s.writeJSON(w, list)
}

func anyRunning(sandboxes []observed.Sandbox) bool {
	for _, sandbox := range sandboxes {
		if sandbox.State == observed.Running {
			return true
		}
	}
	return false
}
