package server

import (
	"encoding/json"
	"net/http"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// servePods answers /pods: the pods that this node is to run, with their
// status.
func (s *Server) servePods(w http.ResponseWriter, _ *http.Request) {
	list := podList()
	for _, pod := range s.cfg.Pods.Pods() {
		list.Items = append(list.Items, *pod)
	}
	s.writeJSON(w, list)
}

// serveAllocatedPods answers /allocatedPods: the pods that were admitted, with the
// resources that they have here, without their status.
func (s *Server) serveAllocatedPods(w http.ResponseWriter, _ *http.Request) {
	list := podList()
	for _, pod := range s.cfg.Pods.Pods() {
		if allocated(pod) {
			list.Items = append(list.Items, withoutStatus(pod))
		}
	}
	s.writeJSON(w, list)
}

// serveAllocatedPod answers /allocatedPods for one of them.
func (s *Server) serveAllocatedPod(w http.ResponseWriter, r *http.Request) {
	pod, ok := s.cfg.Pods.PodByName(r.PathValue("namespace"), r.PathValue("pod"))
	if uid := types.UID(r.PathValue("uid")); !ok || !allocated(pod) || uid != "" && uid != pod.UID {
		http.Error(w, "pod not found", http.StatusNotFound)
		return
	}
	one := withoutStatus(pod)
	one.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	s.writeJSON(w, one)
}

// allocated reports whether a pod has resources of this node: one that was
// refused, or has ended, has none.
func allocated(pod *v1.Pod) bool {
	return pod.Status.Phase != v1.PodFailed && pod.Status.Phase != v1.PodSucceeded
}

func withoutStatus(pod *v1.Pod) v1.Pod {
	one := *pod
	one.Status = v1.PodStatus{}
	return one
}

func podList() *v1.PodList {
	return &v1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []v1.Pod{}}
}

func (s *Server) writeJSON(w http.ResponseWriter, value any) {
	data, err := json.Marshal(value)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if _, err := w.Write(data); err != nil {
		s.log.Debug("Answer was not written", "err", err)
	}
}
