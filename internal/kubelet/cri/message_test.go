package cri

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/runtimelabels"
)

const logHead = "2026-01-02T03:04:05.678901234Z "

func TestMessage(t *testing.T) {
	const (
		running  = runtimeapi.ContainerState_CONTAINER_RUNNING
		exited   = runtimeapi.ContainerState_CONTAINER_EXITED
		fallback = "FallbackToLogsOnError"
	)
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	log := write("log", logHead+"stdout F last words\n")
	link := filepath.Join(dir, "link")
	if err := os.Symlink(write("secret", "secret"), link); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name   string
		state  runtimeapi.ContainerState
		code   int32
		reason string
		own    string // the runtime's message
		file   string // host path of the message file
		policy string
		log    string
		want   string
	}{
		{name: "running", state: running, file: write("early", "not yet")},
		{name: "from the file", state: exited, file: write("file", "bye"), want: "bye"},
		{name: "runtime and file", state: exited, own: "killed", file: write("both", "bye"), want: "killed: bye"},
		{name: "runtime alone", state: exited, own: "killed", want: "killed"},
		{name: "no file", state: exited, file: filepath.Join(dir, "none")},
		{name: "file too long", state: exited, file: write("long", "cut"+strings.Repeat("x", 4096)), want: strings.Repeat("x", 4096)},
		{name: "file is a link", state: exited, file: link, want: "termination message cannot be read: open " + link + ": too many levels of symbolic links"},
		{name: "file is a folder", state: exited, file: dir, want: "termination message cannot be read: " + dir + " is not a regular file"},
		{name: "not text", state: exited, file: write("bytes", "a\xffb"), want: "a\uFFFDb"},
		{name: "log after an error", state: exited, code: 1, policy: fallback, log: log, want: "last words\n"},
		{name: "file before log", state: exited, code: 1, policy: fallback, log: log, file: write("first", "bye"), want: "bye"},
		{name: "empty file, then log", state: exited, code: 1, policy: fallback, log: log, file: write("empty", ""), want: "last words\n"},
		{name: "log without an error", state: exited, policy: fallback, log: log},
		{name: "log not wanted", state: exited, code: 1, policy: "File", log: log},
		{name: "never started", state: exited, code: 128, reason: "StartError", own: "no such program", policy: fallback, log: log, want: "no such program"},
		{name: "no log", state: exited, code: 1, policy: fallback, log: filepath.Join(dir, "none")},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := &runtimeapi.ContainerStatus{
				State: test.state, ExitCode: test.code, Reason: test.reason, Message: test.own, LogPath: test.log,
				Annotations: map[string]string{runtimelabels.TerminationPolicy: test.policy},
			}
			if test.file != "" {
				c.Annotations[runtimelabels.TerminationMessagePath] = "/dev/termination-log"
				c.Mounts = []*runtimeapi.Mount{
					{ContainerPath: "/data", HostPath: dir},
					{ContainerPath: "/dev/termination-log", HostPath: test.file},
				}
			}
			if got := message(c); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestParseLogTail(t *testing.T) {
	var many, wide strings.Builder
	for i := range 100 {
		fmt.Fprintf(&many, "%sstdout F %d\n", logHead, i)
		fmt.Fprintf(&wide, "%sstdout F %s\n", logHead, strings.Repeat("é", 100))
	}
	var last strings.Builder
	for i := 20; i < 100; i++ {
		fmt.Fprintf(&last, "%d\n", i)
	}
	for _, test := range []struct{ name, log, want string }{
		{"nothing", "", ""},
		{"both streams", logHead + "stdout F a\n" + logHead + "stderr F b\n", "a\nb\n"},
		{"partial lines", logHead + "stdout P a\n" + logHead + "stdout F b\n", "ab\n"},
		{"tag with an attribute", logHead + "stdout P:x a\n" + logHead + "stdout F b\n", "ab\n"},
		{"empty line", logHead + "stdout F \n", "\n"},
		{"spaces kept", logHead + "stdout F  a  b \n", " a  b \n"},
		{"first line cut", "4:05Z stdout F a\n" + logHead + "stdout F b\n", "b\n"},
		{"last line without its end", logHead + "stdout F a", "a"},
		{"not a log", "hello world, how are you\n", ""},
		{"most lines", many.String(), last.String()},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := parseLogTail([]byte(test.log)); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
	got := parseLogTail([]byte(wide.String()))
	if len(got) > maxMessageLog || len(got) < maxMessageLog-utf8.UTFMax || !utf8.ValidString(got) {
		t.Errorf("wide lines: %d bytes, valid %v", len(got), utf8.ValidString(got))
	}
}

func FuzzParseLogTail(f *testing.F) {
	f.Add([]byte(logHead + "stdout F a\n" + logHead + "stderr P b"))
	f.Add([]byte("4:05Z stdout F a\n\n" + logHead + "stdout F:x\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		got := parseLogTail(data)
		if len(got) > maxMessageLog {
			t.Errorf("%d bytes", len(got))
		}
		if utf8.Valid(data) && !utf8.ValidString(got) {
			t.Errorf("characters were cut: %q", got)
		}
		// A whole line after any other adds its text at the end.
		if len(data) == 0 || data[len(data)-1] == '\n' {
			more := parseLogTail(append(data, logHead+"stdout F end\n"...))
			if !strings.HasSuffix(more, "end\n") {
				t.Errorf("line after %q is lost: %q", data, more)
			}
		}
	})
}
