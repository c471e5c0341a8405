package server

import (
	"fmt"
	"io"
	"net/http"
	"net/http/pprof"
	"strings"
)

// serveProfile answers /debug/pprof.
func serveProfile(w http.ResponseWriter, r *http.Request) {
	switch r.PathValue("profile") {
	case "profile":
		pprof.Profile(w, r)
	case "symbol":
		pprof.Symbol(w, r)
	case "cmdline":
		pprof.Cmdline(w, r)
	case "trace":
		pprof.Trace(w, r)
	default:
		pprof.Index(w, r)
	}
}

// serveVerbosity answers /debug/flags/v: a number that is put there is what is
// logged from then on. Its answers are upstream's.
func (s *Server) serveVerbosity(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPut {
		http.Error(w, "unsupported http method", http.StatusNotAcceptable)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, "error reading request body: "+err.Error(), http.StatusBadRequest)
		return
	}
	level := strings.TrimSpace(string(body))
	if err := s.cfg.SetVerbosity(level); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	fmt.Fprintf(w, "successfully set klog.logging.verbosity to %s\n", level)
}
