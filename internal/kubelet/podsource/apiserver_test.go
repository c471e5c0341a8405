package podsource

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// An apiServer has pods, and answers lists and watches of them over HTTP as a
// Kubernetes API server does: with versions, a history that it may forget,
// bookmarks, and streaming lists where it is new enough.
type apiServer struct {
	t       *testing.T
	client  kubernetes.Interface
	streams bool // it knows streaming lists

	mu      sync.Mutex // guards the fields below
	pods    []*corev1.Pod
	version int
	oldest  int // what came before this version is forgotten
	history []change
	changed chan struct{} // closed when history grows, or connections are to be cut
	cut     int           // counts the times that connections were cut
	down    bool          // connections are refused
	asked   []string
	watches string // what is wrong with watches: "unreadable", "short", or nothing
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip calls the function.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

type change struct {
	version int
	kind    string
	object  []byte
}

func newAPIServer(t *testing.T, streams bool) *apiServer {
	s := &apiServer{t: t, streams: streams, changed: make(chan struct{}), version: 10, oldest: 10}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	t.Cleanup(func() { s.setDown(true) }) // watches end, which Close waits for
	cfg := &rest.Config{Host: server.URL, QPS: -1, WrapTransport: func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			s.mu.Lock()
			down := s.down
			s.mu.Unlock()
			if down {
				return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
			}
			return next.RoundTrip(r)
		})
	}}
	transport, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(transport.CloseIdleConnections)
	s.client, err = kubernetes.NewForConfigAndClient(cfg, transport)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// put makes or changes a pod; its UID says which.
func (s *apiServer) put(pod *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	pod = pod.DeepCopy()
	pod.ResourceVersion = strconv.Itoa(s.version)
	i := slices.IndexFunc(s.pods, func(p *corev1.Pod) bool { return p.UID == pod.UID })
	if i < 0 {
		s.pods = append(s.pods, pod)
		s.note("ADDED", pod)
		return
	}
	s.pods[i] = pod
	s.note("MODIFIED", pod)
}

func (s *apiServer) remove(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	i := slices.IndexFunc(s.pods, func(p *corev1.Pod) bool { return p.UID == uid })
	pod := s.pods[i].DeepCopy()
	pod.ResourceVersion = strconv.Itoa(s.version)
	s.pods = slices.Delete(s.pods, i, i+1)
	s.note("DELETED", pod)
}

// bookmark tells watches that nothing of theirs has happened up to a version.
func (s *apiServer) bookmark() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version += 10
	s.note("BOOKMARK", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.Itoa(s.version)}})
}

// forget drops the history, as a restart or compaction does.
func (s *apiServer) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version += 100
	s.oldest, s.history = s.version, nil
}

// setDown cuts all connections, and refuses each that comes while it is set.
func (s *apiServer) setDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
	s.cut++
	s.wakeLocked()
}

// setWatches cuts all connections, and makes watches of one kind from now on.
func (s *apiServer) setWatches(kind string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches = kind
	s.cut++
	s.wakeLocked()
}

// questions returns what was asked so far: "list", "stream", "watch 12".
func (s *apiServer) questions() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

// sets returns how often the whole set was asked for.
func (s *apiServer) sets() int {
	n := 0
	for _, q := range s.questions() {
		if q == "list" || q == "stream" {
			n++
		}
	}
	return n
}

func (s *apiServer) note(kind string, pod *corev1.Pod) {
	s.history = append(s.history, change{s.version, kind, encode(s.t, pod)})
	s.wakeLocked()
}

func (s *apiServer) wakeLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func encode(t *testing.T, o runtime.Object) []byte {
	t.Helper()
	if pod, ok := o.(*corev1.Pod); ok {
		pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	}
	data, err := json.Marshal(o)
	if err != nil {
		t.Error(err)
	}
	return data
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	question := "list"
	switch {
	case q.Get("sendInitialEvents") == "true":
		question = "stream"
	case q.Get("watch") == "true":
		question = "watch " + q.Get("resourceVersion")
	}
	if r.URL.Path != "/api/v1/pods" || q.Get("fieldSelector") != "spec.nodeName=n1" {
		s.t.Errorf("asked for %s", r.URL)
	}
	s.mu.Lock()
	s.asked = append(s.asked, question)
	cut := s.cut
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch {
	case question == "stream" && !s.streams:
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = w.Write(encode(s.t, &metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
			Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid, Message: "sendInitialEvents is forbidden",
		}))
	case question == "stream":
		s.stream(w, r, cut)
	case question == "list":
		s.list(w)
	default:
		from, err := strconv.Atoi(q.Get("resourceVersion"))
		if err != nil {
			s.t.Errorf("watch from %q", q.Get("resourceVersion"))
		}
		s.watch(w, r, from, cut)
	}
}

func (s *apiServer) list(w http.ResponseWriter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := &corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
	list.ResourceVersion = strconv.Itoa(s.version)
	for _, p := range s.pods {
		list.Items = append(list.Items, *p)
	}
	_, _ = w.Write(encode(s.t, list))
}

func (s *apiServer) stream(w http.ResponseWriter, r *http.Request, cut int) {
	s.mu.Lock()
	from := s.version
	var first []change
	for _, p := range s.pods {
		first = append(first, change{from, "ADDED", encode(s.t, p.DeepCopy())})
	}
	s.mu.Unlock()
	end := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: strconv.Itoa(from), Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
	}}
	for _, c := range append(first, change{from, "BOOKMARK", encode(s.t, end)}) {
		s.send(w, c)
	}
	s.watch(w, r, from, cut)
}

// watch tells what happens after a version, until connections are cut again.
func (s *apiServer) watch(w http.ResponseWriter, r *http.Request, from, cut int) {
	w.(http.Flusher).Flush()
	for {
		s.mu.Lock()
		changed, gone, forgotten, kind := s.changed, s.cut != cut, from < s.oldest, s.watches
		i := slices.IndexFunc(s.history, func(c change) bool { return c.version > from })
		var news []change
		if i >= 0 {
			news = slices.Clone(s.history[i:])
		}
		s.mu.Unlock()
		switch {
		case gone:
			panic(http.ErrAbortHandler)
		case kind == "short":
			return
		case kind == "unreadable":
			_, _ = fmt.Fprintln(w, `{"type":"MODIFIED","object":{"apiVersion":"v1","kind":"Unheard"}}`)
			return
		case forgotten:
			s.send(w, change{0, "ERROR", encode(s.t, &metav1.Status{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
				Code: http.StatusGone, Reason: metav1.StatusReasonExpired, Message: "too old resource version",
			})})
			return
		}
		for _, c := range news {
			s.send(w, c)
			from = c.version
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

func (s *apiServer) send(w http.ResponseWriter, c change) {
	_, _ = fmt.Fprintf(w, "{\"type\":%q,\"object\":%s}\n", c.kind, strings.TrimSpace(string(c.object)))
	w.(http.Flusher).Flush()
}
