package server

import (
	"encoding/json"
	"net/http"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
