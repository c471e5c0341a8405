package server

import "net/http"

// serveConfigz answers /configz: the configuration in force, under the name of
// its component, as the upstream kubelet's does.
func (s *Server) serveConfigz(w http.ResponseWriter, _ *http.Request) {
	s.writeJSON(w, map[string]any{"kubeletconfig": s.cfg.Configuration})
}
