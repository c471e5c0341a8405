package server

import (
	"context"
	"fmt"
	"net/http"
	"strings"
)

// serveRun answers /run: a command to its end, its output at once. The command
// is split at spaces, as the upstream kubelet does.
func (s *Server) serveRun(w http.ResponseWriter, r *http.Request) {
	command := strings.Split(r.URL.Query().Get("cmd"), " ")
	if command[0] == "" {
		http.Error(w, `query parameter "cmd" is required`, http.StatusBadRequest)
		return
	}
	id, ok := s.findRunning(w, r)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
	defer cancel()
	stdout, stderr, code, err := s.cfg.Runtime.ExecSync(ctx, id, command, 0)
	if err == nil && code != 0 {
		err = fmt.Errorf("command exited with %d: %s", code, stderr)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	for _, part := range [][]byte{stdout, stderr} {
		if _, err := w.Write(part); err != nil {
			s.log.Debug("Answer was not written", "err", err)
			return
		}
	}
}
