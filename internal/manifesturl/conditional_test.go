package manifesturl

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestConditional(t *testing.T) {
	for name, header := range map[string][2]string{
		"ETag":          {"ETag", "If-None-Match"},
		"Last-Modified": {"Last-Modified", "If-Modified-Since"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, httptest.NewServer)
			file := filepath.Join(t.TempDir(), "state.json")
			var full, saved atomic.Int32
			good := func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set(header[0], "v1")
				if r.Header.Get(header[1]) == "v1" {
					saved.Add(1)
					w.WriteHeader(http.StatusNotModified)
					return
				}
				full.Add(1)
				_, _ = w.Write([]byte(twoPods))
			}
			s.serve(good)
			f := follow(t, Source{URL: s.URL}, withState(file))
			f.want("a=1 b=1")
			s.serve(status(500))
			f.want("a=1* b=1* !Unreadable")
			s.serve(good) // 304: it counts again
			f.want("a=1 b=1")
			f.stop()
			f = follow(t, Source{URL: s.URL}, withState(file))
			f.want("a=1 b=1")
			if full.Load() != 1 || saved.Load() == 0 {
				t.Errorf("%d whole answers, %d times 304; want one whole one", full.Load(), saved.Load())
			}
			if name == "ETag" && f.url.State().ETag != "v1" {
				t.Errorf("state: %+v", f.url.State())
			}
		})
	}
}

// An answer with a fault is asked for again as a whole: after a restart nobody
// would know the fault.
func TestNoConditionOnFaults(t *testing.T) {
	s := newSite(t, httptest.NewServer)
	s.serve(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("If-None-Match") != "" {
			t.Error("a conditional request")
		}
		w.Header().Set("ETag", "v1")
		_, _ = w.Write([]byte(pod("a", "") + "---\n" + pod("b", "1")))
	})
	f := follow(t, Source{URL: s.URL})
	f.want("b=1 !Invalid")
	asked := s.asked.Load()
	for s.asked.Load() < asked+3 {
		time.Sleep(time.Millisecond)
	}
}

// TestConditionOfAnotherRequest: "not modified" would be about another document.
// The one that is asked for now is the older.
func TestConditionOfAnotherRequest(t *testing.T) {
	newer, older := time.Unix(2000000, 0), time.Unix(1000000, 0)
	serve := func(w http.ResponseWriter, r *http.Request, name string, modified time.Time) {
		http.ServeContent(w, r, "", modified, strings.NewReader(pod(name, "1")))
	}
	t.Run("another query, after a restart", func(t *testing.T) {
		s := newSite(t, httptest.NewServer)
		s.serve(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("of") == "a" {
				serve(w, r, "a", newer)
			} else {
				serve(w, r, "b", older)
			}
		})
		file := filepath.Join(t.TempDir(), "state.json")
		f := follow(t, Source{URL: s.URL + "/?of=a"}, withState(file))
		f.want("a=1")
		f.stop()
		follow(t, Source{URL: s.URL + "/?of=b"}, withState(file)).want("b=1")
	})
	t.Run("another header, after a restart", func(t *testing.T) {
		s := newSite(t, httptest.NewServer)
		s.serve(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Of") == "a" {
				serve(w, r, "a", newer)
			} else {
				serve(w, r, "b", older)
			}
		})
		file := filepath.Join(t.TempDir(), "state.json")
		f := follow(t, Source{URL: s.URL, Headers: map[string][]string{"Of": {"a"}}}, withState(file))
		f.want("a=1")
		f.stop()
		follow(t, Source{URL: s.URL, Headers: map[string][]string{"Of": {"b"}}}, withState(file)).want("b=1")
	})
	t.Run("another redirect", func(t *testing.T) {
		s := newSite(t, httptest.NewServer)
		var to atomic.Value
		to.Store("/a")
		s.serve(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/a":
				serve(w, r, "a", newer)
			case "/b":
				serve(w, r, "b", older)
			default:
				http.Redirect(w, r, to.Load().(string), http.StatusFound)
			}
		})
		f := follow(t, Source{URL: s.URL})
		f.want("a=1")
		to.Store("/b")
		f.want("b=1")
	})
}
