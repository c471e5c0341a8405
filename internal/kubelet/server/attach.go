package server

import (
	"net/http"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// serveAttach answers /attach: the streams of a container's own process.
func (s *Server) serveAttach(w http.ResponseWriter, r *http.Request) {
	streams, ok := streamsOf(w, r)
	if !ok {
		return
	}
	id, ok := s.findRunning(w, r)
	if !ok {
		return
	}
	url, err := s.cfg.Runtime.Attach(r.Context(), &runtimeapi.AttachRequest{
		ContainerId: id,
		Stdin:       streams.Stdin, Stdout: streams.Stdout, Stderr: streams.Stderr, Tty: streams.Tty,
	})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	s.proxyStreams(w, r, url, streams)
}
