package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// gotten is the status and the body of an answer in one line.
func gotten(code int, body string) string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", code, body))
}

// ask sends a request with a body or a header Accept.
func (r *rig) ask(method, path, accept string, body io.Reader) (code int, header http.Header, text string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.url+path, body)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer admin-token")
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	resp, err := r.client().Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(data)
}

func TestVerbosity(t *testing.T) {
	var told atomic.Value
	r := newRig(t, func(cfg *Config) {
		cfg.SetVerbosity = func(level string) error {
			told.Store(level)
			if level == "much" {
				return errors.New("much is no number")
			}
			return nil
		}
	})
	tests := []struct{ method, body, want, told string }{
		{"GET", "", "406 unsupported http method", ""},
		{"POST", "4", "406 unsupported http method", ""},
		{"PUT", "4\n", "200 successfully set klog.logging.verbosity to 4", "4"},
		{"PUT", "much", "400 much is no number", "much"},
		{"PUT", strings.Repeat("4", maxBodyBytes+1), "400 error reading request body: http: request body too large", ""},
	}
	for _, tt := range tests {
		told.Store("")
		code, _, body := r.ask(tt.method, "/debug/flags/v", "", strings.NewReader(tt.body))
		if got := gotten(code, body); got != tt.want || told.Load() != tt.told {
			t.Errorf("%s %.10q = %q and told %q, want %q and %q", tt.method, tt.body, got, told.Load(), tt.want, tt.told)
		}
	}
}

func TestProfiles(t *testing.T) {
	r := newRig(t, nil)
	for path, want := range map[string]string{
		"/debug/pprof/": "heap", "/debug/pprof/cmdline": ".test", "/debug/pprof/symbol": "num_symbols", "/debug/pprof/goroutine?debug=1": "goroutine profile",
	} {
		if code, body := r.get(path); code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("GET %s = %d %.100q, want %q in it", path, code, body, want)
		}
	}
	if code, _ := r.get("/debug/pprof/none"); code != http.StatusNotFound {
		t.Errorf("GET /debug/pprof/none = %d, want 404", code)
	}
}

func TestPages(t *testing.T) {
	r := newRig(t, withEverything)
	for path, want := range map[string][]string{
		"/flagz":   {"kubelet flagz", "v=2"},
		"/statusz": {"kubelet statusz", "Started: ", "Up: 0 hr 00 min ", "Go version: go1", "Paths: ", " /pods ", " /statusz"},
	} {
		for _, accept := range []string{"", "*/*", "text/plain;q=0.9", "x/y, text/plain"} {
			code, _, body := r.ask("GET", path, accept, http.NoBody)
			for _, part := range want {
				if code != http.StatusOK || !strings.Contains(body, part) {
					t.Errorf("GET %s, Accept %q = %d %q, want %q in it", path, accept, code, body, part)
				}
			}
		}
		if code, _, _ := r.ask("GET", path, "application/json", http.NoBody); code != http.StatusNotAcceptable {
			t.Errorf("GET %s as plain JSON = %d, want 406", path, code)
		}
	}
	for path, want := range map[string]string{"/flagz": "apiVersion flags kind metadata", "/statusz": "apiVersion binaryVersion goVersion kind metadata paths startTime uptimeSeconds"} {
		kind := strings.ToUpper(path[1:2]) + path[2:]
		for ver, warned := range map[string]bool{"v1beta1": false, "v1alpha1": true} {
			code, header, body := r.ask("GET", path, "application/json;as="+kind+";g=config.k8s.io;v="+ver, http.NoBody)
			var object map[string]any
			if err := json.Unmarshal([]byte(body), &object); code != http.StatusOK || err != nil {
				t.Fatalf("GET %s as %s = %d %q: %v", path, ver, code, body, err)
			}
			if got := strings.Join(slices.Sorted(maps.Keys(object)), " "); got != want || object["kind"] != kind || object["apiVersion"] != "config.k8s.io/"+ver {
				t.Errorf("GET %s as %s = %s, want the fields %s", path, ver, body, want)
			}
			if got := header.Get("Warning") != ""; got != warned {
				t.Errorf("GET %s as %s: warning %t, want %t", path, ver, got, warned)
			}
		}
	}
}

func FuzzAccept(f *testing.F) {
	for _, seed := range []string{"", "*/*", "text/plain", "application/json;as=Statusz;g=config.k8s.io;v=v1beta1", "a/b;c=\"", ",,", "text/html,*/*;q=0.1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, accept string) {
		ver, text, ok := acceptedPage(accept, "Statusz")
		if ok != (text || ver != "") || text && ver != "" {
			t.Errorf("acceptedPage(%q) = %q, %t, %t", accept, ver, text, ok)
		}
	})
}

func TestAllocatedPods(t *testing.T) {
	r := newRig(t, nil)
	r.node.pods = append(r.node.pods,
		&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "refused", Namespace: "default", UID: "u2"}, Status: v1.PodStatus{Phase: v1.PodFailed}})
	var list v1.PodList
	code, body := r.get("/allocatedPods")
	if err := json.Unmarshal([]byte(body), &list); code != http.StatusOK || err != nil || list.Kind != "PodList" {
		t.Fatalf("GET /allocatedPods = %d %q: %v", code, body, err)
	}
	if len(list.Items) != 1 || list.Items[0].Name != "web" || list.Items[0].Status.ContainerStatuses != nil {
		t.Errorf("GET /allocatedPods = %s, want web without its status", body)
	}
	for path, want := range map[string]int{
		"/allocatedPods/default/web": 200, "/allocatedPods/default/web/u1": 200, "/allocatedPods/default/web/u9": 404,
		"/allocatedPods/default/refused": 404, "/allocatedPods/other/web": 404,
	} {
		code, body := r.get(path)
		var pod v1.Pod
		if err := json.Unmarshal([]byte(body), &pod); code != want || code == http.StatusOK && (err != nil || pod.Name != "web" || pod.Kind != "Pod") {
			t.Errorf("GET %s = %d %q, want %d", path, code, body, want)
		}
	}
}
