package server

import (
	"fmt"
	"maps"
	"mime"
	"net/http"
	goruntime "runtime"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/version"
)

// The pages for people who look for faults: text, or an object of the API for
// those that ask for one.
const (
	component = "kubelet"
	pageGroup = "config.k8s.io"
	pageText  = `
%s %s
Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.
`
)

// pageHead begins the object that a page is.
func pageHead(kind, ver string) map[string]any {
	return map[string]any{"kind": kind, "apiVersion": pageGroup + "/" + ver, "metadata": map[string]any{"name": component}}
}

// serveFlagz answers /flagz: the flags in force.
func (s *Server) serveFlagz(w http.ResponseWriter, r *http.Request) {
	s.servePage(w, r, "Flagz", func(text *strings.Builder) {
		for _, name := range slices.Sorted(maps.Keys(s.cfg.Flags)) {
			fmt.Fprintf(text, "%s=%s\n", name, s.cfg.Flags[name])
		}
	}, func(object map[string]any) { object["flags"] = s.cfg.Flags })
}

// serveStatusz answers /statusz: what runs, since when, and its paths.
func (s *Server) serveStatusz(w http.ResponseWriter, r *http.Request) {
	up := time.Since(s.begun)
	paths := s.paths()
	s.servePage(w, r, "Statusz", func(text *strings.Builder) {
		seconds := int64(up.Seconds())
		fmt.Fprintf(text, "Started: %s\nUp: %d hr %02d min %02d sec\nGo version: %s\nBinary version: %s\nPaths: %s\n",
			s.begun.Format(time.UnixDate), seconds/3600, seconds/60%60, seconds%60, goruntime.Version(), version.Kubernetes, strings.Join(paths, " "))
	}, func(object map[string]any) {
		object["startTime"] = s.begun.UTC().Format(time.RFC3339)
		object["uptimeSeconds"] = int64(up.Seconds())
		object["goVersion"], object["binaryVersion"], object["paths"] = goruntime.Version(), strings.TrimPrefix(version.Kubernetes, "v"), paths
	})
}

// paths are the first parts of all paths that are served.
func (s *Server) paths() []string {
	var paths []string
	for _, r := range s.routes(s.debugging()) {
		first, _, _ := strings.Cut(r.pattern[1:], "/")
		paths = append(paths, "/"+first)
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

func (s *Server) servePage(w http.ResponseWriter, r *http.Request, kind string, text func(*strings.Builder), object func(map[string]any)) {
	ver, asText, ok := acceptedPage(r.Header.Get("Accept"), kind)
	switch {
	case !ok:
		http.Error(w, fmt.Sprintf("only the following media types are accepted: text/plain, application/json;as=%s;v=v1beta1;g=%s", kind, pageGroup), http.StatusNotAcceptable)
	case asText:
		var page strings.Builder
		fmt.Fprintf(&page, pageText, component, strings.ToLower(kind))
		text(&page)
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprint(w, page.String())
	default:
		if ver == "v1alpha1" {
			w.Header().Set("Warning", fmt.Sprintf(`299 - "This version of the %s endpoint is deprecated. Please use a newer version."`, strings.ToLower(kind)))
		}
		o := pageHead(kind, ver)
		object(o)
		s.writeJSON(w, o)
	}
}

// acceptedPage reads a header Accept: in which form a page of that kind is wanted,
// by the first form in it that there is.
func acceptedPage(accept, kind string) (ver string, text, ok bool) {
	if strings.TrimSpace(accept) == "" {
		return "", true, true
	}
	for clause := range strings.SplitSeq(accept, ",") {
		media, params, err := mime.ParseMediaType(strings.TrimSpace(clause))
		if err != nil {
			continue
		}
		switch media {
		case "text/plain", "text/*", "*/*":
			return "", true, true
		case "application/json":
			if params["as"] == kind && params["g"] == pageGroup && (params["v"] == "v1beta1" || params["v"] == "v1alpha1") {
				return params["v"], false, true
			}
		}
	}
	return "", false, false
}
