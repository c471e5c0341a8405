package server

import (
	"bufio"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
)

const (
	oldLog = "2026-01-01T00:00:01Z stdout F old\n"
	newLog = "2026-01-01T00:00:02Z stdout F one\n2026-01-01T00:00:03Z stderr F two\n2026-01-01T00:00:04Z stdout P thr\n2026-01-01T00:00:04Z stdout F ee\n"
)

func TestLogs(t *testing.T) {
	r := newRig(t, nil)
	r.writeLog("web/app/0.log", oldLog)
	r.writeLog("web/app/1.log", newLog)
	outside := filepath.Join(t.TempDir(), "shadow")
	if err := os.WriteFile(outside, []byte(oldLog), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(r.logDir, "link")); err != nil {
		t.Fatal(err)
	}
	r.node.pods = append(r.node.pods,
		podNamed("escape", "u2"), podNamed("link", "u3"), podNamed("missing", "u4"), podNamed("loop", "u5"))
	r.node.pods[len(r.node.pods)-1].Status.ContainerStatuses = []v1.ContainerStatus{
		{Name: "app", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}},
	}
	r.node.set(&observed.Status{UID: "u2", Containers: []observed.ContainerStatus{{ID: "c", Name: "app", State: observed.Running, LogPath: outside}}})
	r.node.set(&observed.Status{UID: "u3", Containers: []observed.ContainerStatus{{ID: "c", Name: "app", State: observed.Running, LogPath: filepath.Join(r.logDir, "link")}}})
	r.node.set(&observed.Status{UID: "u4", Containers: []observed.ContainerStatus{{ID: "c", Name: "app", State: observed.Running, LogPath: filepath.Join(r.logDir, "none")}}})
	r.node.set(&observed.Status{UID: "u5", Containers: []observed.ContainerStatus{{ID: "c", Name: "app", State: observed.Exited, LogPath: filepath.Join(r.logDir, "web/app/0.log")}}})

	tests := []struct {
		name, path string
		code       int
		body       string
	}{
		{"all", "default/web/app", 200, "one\ntwo\nthree"},
		{"tail", "default/web/app?tailLines=1", 200, "three"},
		{"tail by its old name", "default/web/app?tail=2", 200, "two\nthree"},
		{"tail all", "default/web/app?tail=all&tailLines=1", 200, "one\ntwo\nthree"},
		{"limit", "default/web/app?limitBytes=5", 200, "one\nt"},
		{"since", "default/web/app?sinceTime=2026-01-01T00:00:03Z", 200, "two\nthree"},
		{"since seconds", "default/web/app?sinceSeconds=5", 200, ""},
		{"timestamps", "default/web/app?timestamps=true&tailLines=1", 200, "2026-01-01T00:00:04.000000000Z three"},
		{"one stream", "default/web/app?stream=Stderr", 200, "two"},
		{"previous", "default/web/app?previous=true", 200, "old"},
		{"previous of one that waits for its next start", "default/loop/app?previous=true", 200, "old"},
		{"no previous", "default/missing/app?previous=true", 400, `previous terminated container "app" in pod "missing" not found`},
		{"waiting", "default/web/side", 400, `container "side" in pod "web" is waiting to start: Back-off pulling image`},
		{"never created", "default/web/init", 400, `container "init" in pod "web" is waiting to start: it was not created yet`},
		{"no such pod", "default/other/app", 404, `pod "other" does not exist`},
		{"no such namespace", "other/web/app", 404, `pod "web" does not exist`},
		{"no such container", "default/web/other", 404, `container "other" not found in pod "web"`},
		{"no file", "default/missing/app", 404, `container "app" in pod "missing" has no log`},
		{"file outside", "default/escape/app", 500, `container "app" has no log file of ours`},
		{"link to a file outside", "default/link/app", 500, "openat link: path escapes from parent"},
		{"dots for a name", "default/web/%2e%2e%2f%2e%2e", 400, "the path names no pod"},
		{"not a number", "default/web/app?tailLines=x", 400, `unable to decode query: tailLines: "x"`},
		{"negative tail", "default/web/app?tailLines=-1", 422, "tailLines: -1 is negative"},
		{"two sinces", "default/web/app?sinceSeconds=1&sinceTime=2026-01-01T00:00:03Z", 422, "at most one of"},
		{"no such stream", "default/web/app?stream=Both", 422, `stream: "Both"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			code, body := r.get("/containerLogs/" + tt.path)
			if code != tt.code || (code == 200 && body != tt.body) || !strings.HasPrefix(body, tt.body) {
				t.Errorf("GET %s = %d %q, want %d %q", tt.path, code, body, tt.code, tt.body)
			}
		})
	}
}

func podNamed(name, uid string) *v1.Pod {
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "app"}}}}
	pod.Name, pod.Namespace, pod.UID = name, "default", uid2(uid)
	return pod
}

// TestFollowLogs follows a log until its container ends, and until the server
// stops.
func TestFollowLogs(t *testing.T) {
	for _, ending := range []string{"container", "server"} {
		t.Run("until the "+ending+" ends", func(t *testing.T) {
			r := newRig(t, nil)
			r.writeLog("web/app/1.log", newLog)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+"/containerLogs/default/web/app?follow=true&tailLines=1", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer admin-token")
			resp, err := r.client().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			lines := bufio.NewScanner(resp.Body)
			next := func(want string) {
				t.Helper()
				if !lines.Scan() || lines.Text() != want {
					t.Fatalf("followed %q, %v, want %q", lines.Text(), lines.Err(), want)
				}
			}
			next("three")
			r.writeLog("web/app/1.log", "2026-01-01T00:00:05Z stdout F four\n")
			next("four")
			if ending == "server" {
				if err := r.stop(); err != nil {
					t.Fatal(err)
				}
			} else {
				r.writeLog("web/app/1.log", "2026-01-01T00:00:05Z stdout F five\n")
				status, err := r.node.Get("u1")
				if err != nil {
					t.Fatal(err)
				}
				ended := *status
				ended.Containers = []observed.ContainerStatus{status.Containers[0], status.Containers[1]}
				ended.Containers[0].State = observed.Exited
				r.node.set(&ended)
				next("five")
			}
			if lines.Scan() {
				t.Errorf("more: %q", lines.Text())
			}
		})
	}
}

func FuzzLogOptions(f *testing.F) {
	f.Add("follow=true&tailLines=5&sinceTime=2026-01-01T00:00:03Z")
	f.Add("tail=all&limitBytes=1&stream=Stdout&timestamps")
	f.Fuzz(func(t *testing.T, raw string) {
		query, err := url.ParseQuery(raw)
		if err != nil {
			return
		}
		opts, err := logOptions(query)
		if err != nil {
			return
		}
		if opts.TailLines != nil && *opts.TailLines < 0 || opts.LimitBytes != nil && *opts.LimitBytes < 1 {
			t.Errorf("%q gave %+v", raw, opts)
		}
	})
}
