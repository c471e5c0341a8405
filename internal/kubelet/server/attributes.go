package server

import (
	"net/http"
	"strings"
)

// verbs maps methods to the API's verbs; others have none, which nobody may.
var verbs = map[string]string{
	http.MethodPost:   "create",
	http.MethodGet:    "get",
	http.MethodPut:    "update",
	http.MethodPatch:  "patch",
	http.MethodDelete: "delete",
}

// subresources says which subresources of the node open a path and all below
// it; one of them is enough. Paths that are not listed need proxy.
var subresources = []struct {
	path string
	need []string
}{
	{"/stats", []string{"stats"}},
	{"/metrics", []string{"metrics"}},
	{"/logs", []string{"log"}},
	{"/checkpoint", []string{"checkpoint"}},
	{"/statusz", []string{"statusz"}},
	{"/flagz", []string{"configz"}},
	{"/pods", []string{"pods", "proxy"}},
	{"/runningpods", []string{"pods", "proxy"}},
	{"/allocatedPods", []string{"pods", "proxy"}},
	{"/healthz", []string{"healthz", "proxy"}},
	{"/configz", []string{"configz", "proxy"}},
}

// attributes maps a request to what its sender must be allowed, as the
// upstream kubelet's GetRequestAttributes does.
func attributes(method, path string) (verb string, need []string) {
	for _, row := range subresources {
		if below, ok := strings.CutPrefix(path, row.path); ok && (below == "" || below[0] == '/') {
			return verbs[method], row.need
		}
	}
	return verbs[method], []string{"proxy"}
}
