package server

import (
	"fmt"
	"net/http"
	"strings"
)

// serveHealth answers /healthz with ok or the checks that fail, and
// /healthz/{check} with that check alone. What is wrong goes to the log: the
// health port has no credentials.
func (s *Server) serveHealth(w http.ResponseWriter, r *http.Request) {
	well := func() error { return nil }
	checks := append([]Check{{"ping", well}, {"log", well}}, s.cfg.Checks...) // nothing is buffered on its way to the log
	if name := r.PathValue("check"); name != "" {
		checks = named(checks, name)
		if len(checks) == 0 {
			http.NotFound(w, r)
			return
		}
	}
	var report strings.Builder
	healthy := true
	for _, check := range checks {
		err := check.Err()
		s.checks.observe(check.Name, err)
		if err != nil {
			healthy = false
			s.log.Info("Health check failed", "check", check.Name, "err", err)
			fmt.Fprintf(&report, "[-]%s failed: reason withheld\n", check.Name)
			continue
		}
		fmt.Fprintf(&report, "[+]%s ok\n", check.Name)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	switch {
	case !healthy:
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprintf(w, "%shealthz check failed\n", report.String())
	case r.URL.Query().Has("verbose"):
		fmt.Fprintf(w, "%shealthz check passed\n", report.String())
	default:
		fmt.Fprint(w, "ok")
	}
}

func named(checks []Check, name string) []Check {
	for _, check := range checks {
		if check.Name == name {
			return []Check{check}
		}
	}
	return nil
}
