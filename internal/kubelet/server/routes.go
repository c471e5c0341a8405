package server

import (
	"net/http"
	"slices"
	"strings"
)

// A route is one path of the API.
type route struct {
	pattern string // of an http.ServeMux
	// methods are those that are answered; others get 405 and are told these. Empty:
	// the handler sees all.
	methods []string
	handler http.HandlerFunc
}

var (
	getOnly     = []string{http.MethodGet}
	getAndHead  = []string{http.MethodGet, http.MethodHead}
	getAndPost  = []string{http.MethodGet, http.MethodPost}
	postOnly    = []string{http.MethodPost}
	getOrDelete = []string{http.MethodGet, http.MethodDelete}
)

// mux serves routes and nothing else.
func mux(routes ...route) http.Handler {
	m := http.NewServeMux()
	for _, r := range routes {
		m.Handle(r.pattern, only(r.handler, r.methods))
	}
	return m
}

// only answers other methods with 405 and the methods that would do.
func only(handler http.HandlerFunc, methods []string) http.Handler {
	if len(methods) == 0 {
		return handler
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if slices.Contains(methods, r.Method) {
			handler(w, r)
			return
		}
		w.Header().Set("Allow", strings.Join(methods, ", "))
		http.Error(w, "Method Not Allowed", http.StatusMethodNotAllowed)
	})
}

// healthRoutes are those of the health port.
func (s *Server) healthRoutes() []route {
	return []route{
		{"/healthz", getAndHead, s.serveHealth},
		{"/healthz/{check}", getAndHead, s.serveHealth},
	}
}

// routes are what upstream's kubelet serves on its read-only port too, and more
// beside. Nothing new belongs here but in debugging: the read-only port asks for
// no credentials.
func (s *Server) routes(more []route) []route {
	routes := append(s.healthRoutes(),
		route{"/metrics/slis", getOrDelete, s.serveCheckMetrics},
		route{"/pods", getOnly, s.servePods},
		route{"/pods/{$}", getOnly, s.servePods},
	)
	if s.cfg.Metrics != nil {
		routes = append(routes, route{"/metrics", getOnly, serveMetrics(s.cfg.Metrics)})
	}
	if s.cfg.Probes != nil {
		routes = append(routes, route{"/metrics/probes", getOnly, serveMetrics(s.cfg.Probes)})
	}
	if s.cfg.Stats != nil {
		routes = append(routes,
			route{"/stats/summary", getAndPost, s.serveSummary},
			route{"/stats/summary/{$}", getAndPost, s.serveSummary},
			route{"/metrics/resource", getOnly, s.serveResourceMetrics},
			route{"/metrics/cadvisor", getOnly, s.serveCadvisorMetrics},
		)
	}
	return append(routes, more...)
}

// debugging are the routes that only those see who were let in. Paths with a UID
// address that very pod; paths without address whichever has the name.
func (s *Server) debugging() []route {
	if s.policy.NoDebugging {
		return debuggingOff()
	}
	const container, containerOfUID = "/{namespace}/{pod}/{container}", "/{namespace}/{pod}/{uid}/{container}"
	routes := []route{
		{"/runningpods", getOnly, s.serveRunningPods},
		{"/runningpods/{$}", getOnly, s.serveRunningPods},
		{"/allocatedPods", getOnly, s.serveAllocatedPods},
		{"/allocatedPods/{$}", getOnly, s.serveAllocatedPods},
		{"/allocatedPods/{namespace}/{pod}", getOnly, s.serveAllocatedPod},
		{"/allocatedPods/{namespace}/{pod}/{uid}", getOnly, s.serveAllocatedPod},
		{"/containerLogs" + container, getOnly, s.serveLogs},
		{"/exec" + container, getAndPost, s.serveExec},
		{"/exec" + containerOfUID, getAndPost, s.serveExec},
		{"/attach" + container, getAndPost, s.serveAttach},
		{"/attach" + containerOfUID, getAndPost, s.serveAttach},
		{"/portForward/{namespace}/{pod}", getAndPost, s.servePortForward},
		{"/portForward/{namespace}/{pod}/{uid}", getAndPost, s.servePortForward},
		{"/run" + container, postOnly, s.serveRun},
		{"/run" + containerOfUID, postOnly, s.serveRun},
		{"/checkpoint" + container, postOnly, s.serveCheckpoint},
	}
	if s.cfg.Configuration != nil {
		routes = append(routes, route{"/configz", getOnly, s.serveConfigz})
	}
	if s.policy.NoSystemLogs {
		routes = append(routes, disabled("logs endpoint is disabled.", "/logs/"))
	} else {
		routes = append(routes, route{"/logs/{file...}", getOnly, s.serveSystemLogs})
	}
	if s.policy.NoProfiling {
		routes = append(routes, disabled("profiling endpoint is disabled.", "/debug/pprof/"))
	} else {
		routes = append(routes, route{"/debug/pprof/{profile...}", getOnly, serveProfile})
	}
	switch {
	case s.policy.NoDebugFlags:
		routes = append(routes, disabled("flags endpoint is disabled.", "/debug/flags/v"))
	case s.cfg.SetVerbosity != nil:
		routes = append(routes, route{"/debug/flags/v", nil, s.serveVerbosity})
	}
	if s.cfg.Flags != nil {
		routes = append(routes, route{"/flagz", nil, s.serveFlagz})
	}
	return append(routes, route{"/statusz", nil, s.serveStatusz})
}

// debuggingOff are the routes of upstream's kubelet where these handlers are off.
func debuggingOff() []route {
	var routes []route
	for _, path := range []string{"/run/", "/exec/", "/attach/", "/portForward/", "/containerLogs/", "/runningpods/", "/debug/pprof/", "/logs/"} {
		routes = append(routes, disabled("Debug endpoints are disabled.", path))
	}
	return routes
}

// disabled answers as the upstream kubelet for what its configuration forbids.
func disabled(text, path string) route {
	return route{path, nil, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, text, http.StatusMethodNotAllowed)
	}}
}
