package server

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// withEverything configures all that can be served.
func withEverything(cfg *Config) {
	cfg.Stats = fakeStats{}
	cfg.Configuration = &kubeletconfig.KubeletConfiguration{}
	cfg.Flags = map[string]string{"v": "2"}
	cfg.SetVerbosity = func(string) error { return nil }
}

// allRoutes are what the API serves: pattern, methods, and whether the read-only
// port has it. Whoever adds a path adds it here, and looks at attributes.
var allRoutes = []string{
	"/allocatedPods GET",
	"/allocatedPods/{$} GET",
	"/allocatedPods/{namespace}/{pod} GET",
	"/allocatedPods/{namespace}/{pod}/{uid} GET",
	"/attach/{namespace}/{pod}/{container} GET, POST",
	"/attach/{namespace}/{pod}/{uid}/{container} GET, POST",
	"/checkpoint/{namespace}/{pod}/{container} POST",
	"/configz GET",
	"/containerLogs/{namespace}/{pod}/{container} GET",
	"/debug/flags/v ",
	"/debug/pprof/{profile...} GET",
	"/exec/{namespace}/{pod}/{container} GET, POST",
	"/exec/{namespace}/{pod}/{uid}/{container} GET, POST",
	"/flagz ",
	"/healthz GET, HEAD open",
	"/healthz/{check} GET, HEAD open",
	"/logs/{file...} GET",
	"/metrics GET open",
	"/metrics/cadvisor GET open",
	"/metrics/probes GET open",
	"/metrics/resource GET open",
	"/metrics/slis GET, DELETE open",
	"/pods GET open",
	"/pods/{$} GET open",
	"/portForward/{namespace}/{pod} GET, POST",
	"/portForward/{namespace}/{pod}/{uid} GET, POST",
	"/run/{namespace}/{pod}/{container} POST",
	"/run/{namespace}/{pod}/{uid}/{container} POST",
	"/runningpods GET",
	"/runningpods/{$} GET",
	"/stats/summary GET, POST open",
	"/stats/summary/{$} GET, POST open",
	"/statusz ",
}

func TestRoutes(t *testing.T) {
	r := newRig(t, withEverything)
	s := New(r.cfg)
	open := map[string]bool{}
	for _, route := range s.routes(nil) {
		open[route.pattern] = true
	}
	var got []string
	for _, route := range s.routes(s.debugging()) {
		line := route.pattern + " " + strings.Join(route.methods, ", ")
		if open[route.pattern] {
			line += " open"
		}
		got = append(got, line)
	}
	slices.Sort(got)
	if diff := cmp.Diff(allRoutes, got); diff != "" {
		t.Errorf("routes (-listed +served):\n%s", diff)
	}
}

var wildcard = regexp.MustCompile(`{[^}]*}`)

// example is a path that a pattern matches.
func example(pattern string) string {
	return wildcard.ReplaceAllString(strings.TrimSuffix(pattern, "{$}"), "a")
}

// TestNobodyGetsIn asks for every route with every method and no credentials, and
// with those of somebody who may nothing.
func TestNobodyGetsIn(t *testing.T) {
	r := newRig(t, withEverything)
	client := r.client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	paths := []string{"/", "/none", "/pods/../exec/default/web/app", "/debug/", "/%70ods", "//pods", "/cri/"}
	for _, route := range New(r.cfg).routes(New(r.cfg).debugging()) {
		paths = append(paths, example(route.pattern))
	}
	for _, path := range paths {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "OTHER"} {
			if code, _, _ := r.do(client, method, r.url+path, ""); code != http.StatusUnauthorized {
				t.Errorf("%s %s without credentials = %d, want 401", method, path, code)
			}
			if code, _, _ := r.do(client, method, r.url+path, "nobody-token"); code != http.StatusForbidden {
				t.Errorf("%s %s without rights = %d, want 403", method, path, code)
			}
		}
	}
}

// TestReadOnly checks that the read-only port has its own routes and no others.
func TestReadOnly(t *testing.T) {
	r := newRig(t, func(cfg *Config) {
		withEverything(cfg)
		cfg.ReadOnly = append(cfg.ReadOnly, listen(t))
	})
	base := "http://" + r.cfg.ReadOnly[0].Addr().String()
	s := New(r.cfg)
	open := map[string]bool{}
	for _, route := range s.routes(nil) {
		open[route.pattern] = true
	}
	off := regexp.MustCompile(`^/(run|exec|attach|portForward|containerLogs|runningpods/|debug/pprof|logs)`)
	for _, route := range s.routes(s.debugging()) {
		code, _, body := r.do(r.client(), http.MethodGet, base+example(route.pattern), "")
		want := http.StatusNotFound
		switch {
		case open[route.pattern] && route.pattern != "/healthz/{check}":
			want = http.StatusOK
		case off.MatchString(route.pattern) && route.pattern != "/runningpods":
			want = http.StatusMethodNotAllowed
		case route.pattern == "/runningpods":
			want = http.StatusMethodNotAllowed // after a redirect
		}
		if code != want {
			t.Errorf("GET %s = %d %q, want %d", route.pattern, code, body, want)
		}
		if code == http.StatusMethodNotAllowed && body != "Debug endpoints are disabled.\n" {
			t.Errorf("GET %s says %q", route.pattern, body)
		}
	}
}

// TestOff switches handlers off.
func TestOff(t *testing.T) {
	tests := []struct {
		name   string
		policy Policy
		want   map[string]string // answers by path, their beginnings
	}{
		{"nothing", Policy{}, map[string]string{"/debug/pprof/cmdline": "200 ", "/logs/": "200 ", "/debug/flags/v": "406 unsupported http method", "/configz": "200 "}},
		{"debugging", Policy{NoDebugging: true}, map[string]string{
			"/exec/default/web/app": "405 Debug endpoints are disabled.", "/logs/": "405 Debug endpoints are disabled.",
			"/runningpods/": "405 Debug endpoints are disabled.", "/debug/pprof/heap": "405 Debug endpoints are disabled.",
			"/configz": "404", "/statusz": "404", "/flagz": "404", "/debug/flags/v": "404", "/checkpoint/a/b/c": "404", "/pods": "200",
		}},
		{"logs", Policy{NoSystemLogs: true}, map[string]string{"/logs/": "405 logs endpoint is disabled.", "/logs/x": "405 logs endpoint is disabled.", "/configz": "200"}},
		{"profiles", Policy{NoProfiling: true}, map[string]string{"/debug/pprof/heap": "405 profiling endpoint is disabled.", "/debug/flags/v": "406"}},
		{"flags", Policy{NoDebugFlags: true}, map[string]string{"/debug/flags/v": "405 flags endpoint is disabled.", "/debug/pprof/cmdline": "200"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, func(cfg *Config) {
				withEverything(cfg)
				cfg.Policy, cfg.SystemLogs = tt.policy, t.TempDir()
			})
			for path, want := range tt.want {
				code, body := r.get(path)
				if got := fmt.Sprint(code, " ", body); !strings.HasPrefix(got, want) {
					t.Errorf("GET %s = %q, want %q", path, got, want)
				}
			}
		})
	}
}

// FuzzPath checks that no path is served for less than what it needs: what is
// asked of the API goes by the same path as what answers.
func FuzzPath(f *testing.F) {
	for _, seed := range []string{
		"/pods", "/stats/../exec/a/b/c", "/metrics%2f..%2fexec/a/b/c", "//exec/a/b/c", "/%65xec/a/b/c", "/logs/../../etc/shadow",
		"/metrics/./x", "/healthz/%2e%2e/exec/a/b/c", "/pods/a?b=/exec", "/exec%2fa/b/c/d", "/allocatedPods/..%2f..%2fexec/b",
	} {
		f.Add("GET", seed)
		f.Add("CONNECT", seed)
	}
	cfg := Config{Metrics: prometheus.NewRegistry(), Probes: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)}
	withEverything(&cfg)
	s := New(cfg)
	m := mux(s.routes(s.debugging())...).(*http.ServeMux)
	f.Fuzz(func(t *testing.T, method, raw string) {
		u, err := url.ParseRequestURI(raw)
		if err != nil || u.Host != "" || !strings.HasPrefix(u.Path, "/") {
			return
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
		r.Method, r.URL, r.RequestURI = method, u, raw
		handler, pattern := m.Handler(r)
		if _, ours := handler.(http.HandlerFunc); !ours || pattern == "" {
			return // a redirect to the same path, cleaned, or nothing
		}
		_, got := attributes(method, u.Path)
		if _, want := attributes(method, example(pattern)); !slices.Equal(got, want) {
			t.Errorf("%s %q is served as %s for %q, which needs %q", method, raw, pattern, got, want)
		}
	})
}
