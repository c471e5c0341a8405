package e2e

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// protocols are the two that kubectl speaks, by what makes it speak them.
var protocols = map[string][]string{
	"WebSocket": {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS=true", "KUBECTL_PORT_FORWARD_WEBSOCKETS=true"},
	"SPDY":      {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false", "KUBECTL_PORT_FORWARD_WEBSOCKETS=false"},
}

// TestSessions is what kubectl does with a container that runs: its streams,
// its ports, its files, its log. The parts are independent of each other and
// share one node.
func TestSessions(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	n.importBusybox()
	for name, test := range map[string]func(*testing.T, *node){
		"exec, codes and streams":       testExec,
		"exec in a terminal":            testExecTerminal,
		"attach":                        testAttach,
		"attach in a terminal":          testAttachTerminal,
		"input once":                    testStdinOnce,
		"run and remove":                testRunRemove,
		"forwarded ports":               testPortForward,
		"nothing listens":               testPortForwardNobody,
		"copied files":                  testCopy,
		"logs of all kinds":             testLogs,
		"logs of the run before":        testLogsPrevious,
		"the end of the pod ends them":  testSessionsEnd,
		"a container that is not there": testSessionsNobody,
	} {
		t.Run(name, func(t *testing.T) {
			sub := *n
			sub.t = t
			test(t, &sub)
		})
	}
}

// busyboxPod starts a pod of the image with a shell, which runs a script.
// container is more of the container, indented by four. It is killed a second
// after it was asked to end, where spec does not say otherwise.
func (n *node) busyboxPod(name, script, container, spec string) {
	n.t.Helper()
	if !strings.Contains(spec, "terminationGracePeriodSeconds:") {
		spec += "  terminationGracePeriodSeconds: 1\n"
	}
	n.kubectlIn(fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  name: %s
spec:
  restartPolicy: Never
  containers:
  - name: main
    image: %s
    imagePullPolicy: Never
    command: [sh, -c, %q]
%s%s`, name, busyboxImage, script, container, spec), "apply", "-f", "-")
}

func testExec(t *testing.T, n *node) {
	n.busyboxPod("exec", "sleep 1000", "", "")
	n.running("exec")
	for protocol, env := range protocols {
		t.Run(protocol, func(t *testing.T) {
			sub := *n
			sub.t = t
			s := sub.start(env, "exec", "-i", "exec", "--", "sh", "-c", "cat; echo to stderr >&2; exit 42")
			s.send("to stdin\n")
			s.expect("to stdin\n")
			if err := s.in.Close(); err != nil { // cat ends with its input
				t.Error(err)
			}
			out, err := s.wait()
			if err == nil || s.cmd.ProcessState.ExitCode() != 42 {
				t.Errorf("exit code: %v", err)
			}
			if err := wants(out, "to stderr\n"); err != nil {
				t.Error(err)
			}
			big := sub.start(env, "exec", "exec", "--", "sh", "-c", "i=0; while [ $i -lt 20000 ]; do echo 0123456789012345678901234567890123456789; i=$((i+1)); done")
			if out, err := big.wait(); err != nil || len(out) != 20000*41 {
				t.Errorf("got %d bytes, %v; want %d", len(out), err, 20000*41)
			}
		})
	}
	out, err := n.tryKubectl("", "exec", "exec", "--", "/no/such/program")
	if err == nil || !strings.Contains(out, "no such file or directory") {
		t.Errorf("a program that is not there: %v, %s", err, out)
	}
	n.kubectl("delete", "pod", "exec", "--timeout=3m")
}

func testExecTerminal(t *testing.T, n *node) {
	n.busyboxPod("terminal", "sleep 1000", "", "")
	n.running("terminal")
	s := n.startInTerminal("exec", "-it", "terminal", "--", "sh")
	s.expect("# ")
	s.send("stty size; echo $((6*7))\r")
	s.expect("24 80")
	s.expect("42")
	s.resize(132, 50)
	s.send("while [ \"$(stty size)\" != '50 132' ]; do sleep 0.1; done; echo re''sized\r")
	s.expect("resized")
	s.send("sh -c 'trap \"echo inter''rupted; exit\" INT; echo wait''ing; while :; do sleep 0.1; done'\r")
	s.expect("waiting")
	s.send("\x03") // Ctrl-C goes to the program, not to kubectl
	s.expect("interrupted")
	s.send("echo st''ill; exit 5\r")
	s.expect("still")
	if _, err := s.wait(); err == nil || s.cmd.ProcessState.ExitCode() != 5 {
		t.Errorf("exit code: %v", err)
	}
	n.kubectl("delete", "pod", "terminal", "--timeout=3m")
}

func testAttach(t *testing.T, n *node) {
	n.busyboxPod("attach", "while read line; do echo got $line; done; echo ended", "    stdin: true\n", "")
	n.running("attach")
	for protocol, env := range protocols {
		t.Run(protocol, func(t *testing.T) {
			sub := *n
			sub.t = t
			s := sub.start(env, "attach", "-i", "attach")
			s.send("from " + protocol + "\n")
			s.expect("got from " + protocol + "\n")
			s.interrupt()
		})
	}
	// The container goes on, and its log has everything.
	n.eventually("the log has it", func() error {
		return wants(n.kubectl("logs", "attach"), "got from SPDY\n", "got from WebSocket\n")
	})
	watching := n.start(nil, "attach", "attach")
	typing := n.start(nil, "attach", "-i", "attach")
	watching.expect("If you don't see a command prompt")
	typing.send("to both\n")
	typing.expect("got to both\n")
	n.eventually("who only watches sees it", func() error {
		typing.send("again\n") // the watcher may have come after the first line
		return wants(watching.printed(), "got again\n")
	})
	watching.interrupt()
	typing.interrupt()
	n.kubectl("delete", "pod", "attach", "--timeout=3m")
}

func testAttachTerminal(t *testing.T, n *node) {
	n.busyboxPod("attach-terminal", "exec sh", "    stdin: true\n    tty: true\n", "")
	n.running("attach-terminal")
	s := n.startInTerminal("attach", "-it", "attach-terminal")
	s.send("\r")
	s.expect("# ")
	s.send("stty size\r")
	s.expect("24 80")
	s.send("exit\r")
	if out, err := s.wait(); err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
	n.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/attach-terminal", "--timeout=3m")
	n.kubectl("delete", "pod", "attach-terminal")
}

func testStdinOnce(t *testing.T, n *node) {
	n.busyboxPod("once", "cat; echo ended", "    stdin: true\n    stdinOnce: true\n", "")
	n.running("once")
	s := n.start(nil, "attach", "-i", "once")
	s.send("the only input\n")
	s.expect("the only input\n")
	if err := s.in.Close(); err != nil {
		t.Error(err)
	}
	if out, err := s.wait(); err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
	n.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/once", "--timeout=3m")
	if got, want := n.kubectl("logs", "once"), "the only input\nended\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	n.kubectl("delete", "pod", "once")
}

func testRunRemove(t *testing.T, n *node) {
	s := n.startInTerminal("run", "visitor", "-it", "--rm", "--restart=Never", "--image="+busyboxImage, "--image-pull-policy=Never", "--", "sh")
	s.expect("# ")
	s.send("echo $((6*7)); exit\r")
	s.expect("42")
	if out, err := s.wait(); err != nil || !strings.Contains(out, `pod "visitor" deleted`) {
		t.Errorf("%v:\n%s", err, out)
	}
	if n.pod("visitor") != nil {
		t.Error("the pod is still there")
	}
	out, err := n.tryKubectl("two words\n", "run", "counter", "-i", "--rm", "--restart=Never", "--image="+busyboxImage, "--image-pull-policy=Never", "--", "sh", "-c", "read a b; echo $b $a; exit 7")
	if err == nil || !strings.Contains(out, "words two") {
		t.Errorf("%v:\n%s", err, out)
	}
	n.eventually("it goes", func() error {
		if n.pod("counter") != nil {
			return errors.New("still there")
		}
		return nil
	})
}

// forwarded waits until kubectl port-forward has said where it listens for a
// port.
func (s *session) forwarded(port int) string {
	s.t.Helper()
	s.expect(fmt.Sprintf("-> %d", port))
	m := regexp.MustCompile(fmt.Sprintf(`Forwarding from (127\.0\.0\.1:\d+) -> %d`, port)).FindStringSubmatch(s.printed())
	if m == nil {
		s.t.Fatalf("no address in:\n%s", s.printed())
	}
	return m[1]
}

func testPortForward(t *testing.T, n *node) {
	n.kubectlIn(demoPod("ports", "serve", ""), "apply", "-f", "-")
	n.running("ports")
	n.busyboxPod("echo", "nc -ll -p 7000 -e cat", "", "")
	n.running("echo")
	n.busyboxPod("both", "nc -ll -p 7001 -e echo one & nc -ll -p 7002 -e echo two", "", "")
	n.running("both")
	for protocol, env := range protocols {
		t.Run(protocol, func(t *testing.T) {
			sub := *n
			sub.t = t
			s := sub.start(env, "port-forward", "pod/ports", ":8080")
			url := "http://" + s.forwarded(8080) + "/healthz"
			for range 3 { // each on a connection of its own
				if code, body := ask(t, url, ""); code != http.StatusOK {
					t.Errorf("%d %s", code, body)
				}
			}
			s.interrupt()

			s = sub.start(env, "port-forward", "both", ":7001", ":7002")
			for port, want := range map[int]string{7001: "one\n", 7002: "two\n"} {
				address := s.forwarded(port)
				sub.eventually("it listens", func() error {
					if got := talk(t, address, ""); got != want {
						return fmt.Errorf("port %d: got %q, want %q", port, got, want)
					}
					return nil
				})
			}
			s.interrupt()

			s = sub.start(env, "port-forward", "echo", ":7000")
			address := s.forwarded(7000)
			big := strings.Repeat("0123456789abcdef", 1<<14) // 256 KiB, both ways at once
			if got := talk(t, address, big); got != big {
				t.Errorf("got %d bytes, want %d", len(got), len(big))
			}
			s.interrupt()
		})
	}
	n.kubectl("delete", "pod", "ports", "echo", "both", "--timeout=3m")
}

// talk sends text over a new connection and returns what comes back.
func talk(t *testing.T, address, text string) string {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	sent := make(chan error, 1)
	go func() {
		_, err := io.WriteString(conn, text)
		sent <- errors.Join(err, conn.(*net.TCPConn).CloseWrite())
	}()
	got := make([]byte, len(text))
	if text == "" {
		got, err = io.ReadAll(conn)
	} else {
		_, err = io.ReadFull(conn, got)
	}
	if err := errors.Join(err, <-sent); err != nil {
		t.Logf("%s: %v", address, err)
	}
	return string(got)
}

func testPortForwardNobody(t *testing.T, n *node) {
	n.busyboxPod("deaf", "sleep 1000", "", "")
	n.running("deaf")
	for protocol, env := range protocols {
		t.Run(protocol, func(t *testing.T) {
			sub := *n
			sub.t = t
			s := sub.start(env, "port-forward", "deaf", ":4444")
			if got := talk(t, s.forwarded(4444), ""); got != "" {
				t.Errorf("got %q", got)
			}
			s.expect("connection refused")
			s.interrupt()
		})
	}
	n.kubectl("delete", "pod", "deaf", "--timeout=3m")
}

func testCopy(t *testing.T, n *node) {
	n.busyboxPod("files", "mkdir -p /data/deep; sleep 1000", "", "")
	n.running("files")
	dir := t.TempDir()
	content := strings.Repeat("a line of text\n", 100_000)
	for name, text := range map[string]string{"big.txt": content, "tree/a": "a", "tree/sub/b": "b"} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o640)); err != nil {
			t.Fatal(err)
		}
	}
	n.kubectl("cp", filepath.Join(dir, "big.txt"), "files:/data/big.txt")
	n.kubectl("cp", filepath.Join(dir, "tree"), "default/files:/data/deep", "-c", "main")
	if got, want := n.kubectl("exec", "files", "--", "cat", "/data/deep/tree/a", "/data/deep/tree/sub/b"), "ab"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	n.kubectl("cp", "files:/data", filepath.Join(dir, "back"))
	for name, want := range map[string]string{"big.txt": content, "deep/tree/sub/b": "b"} {
		got, err := os.ReadFile(filepath.Join(dir, "back", name))
		if err != nil || string(got) != want {
			t.Errorf("%s: %v, %d bytes, want %d", name, err, len(got), len(want))
		}
	}
	// kubectl may end, with 0, at the end of the archive and before it has printed what tar says: what tar says is asked for by itself.
	_, _ = n.tryKubectl("", "cp", "files:/nowhere", filepath.Join(dir, "nowhere"))
	if _, err := os.Stat(filepath.Join(dir, "nowhere")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there left something here: %v", err)
	}
	out, err := n.tryKubectl("", "exec", "files", "--", "tar", "cf", "-", "/nowhere")
	if err == nil || !strings.Contains(out, "No such file") {
		t.Errorf("tar of a file that is not there: %v, %q", err, out)
	}
	n.kubectl("delete", "pod", "files", "--timeout=3m")
}

func testLogs(t *testing.T, n *node) {
	n.busyboxPod("logs", "echo first; echo second; sleep 3; echo last; sleep 1000", "", `  - name: side
    image: `+busyboxImage+`
    imagePullPolicy: Never
    command: [sh, -c, "echo from the side >&2; sleep 1000"]
  initContainers:
  - name: before
    image: `+busyboxImage+`
    imagePullPolicy: Never
    command: [sh, -c, "echo from init"]
`)
	n.running("logs")
	n.eventually("all is said", func() error { return wants(n.kubectl("logs", "logs", "-c", "main"), "last") })
	for _, test := range []struct {
		args []string
		want string // a regular expression
	}{
		{[]string{}, "Defaulted container \"main\" out of: main, side, before \\(init\\)\nfirst\nsecond\nlast\n"},
		{[]string{"-c", "main"}, "first\nsecond\nlast\n"},
		{[]string{"-c", "before"}, "from init\n"},
		{[]string{"-c", "side", "--prefix"}, `\[pod/logs/side\] from the side` + "\n"},
		{[]string{"--all-containers", "--prefix", "--tail=1"}, `(\[pod/logs/(before|main|side)\] (from init|last|from the side)` + "\n){3}"},
		{[]string{"-c", "main", "--tail=2"}, "second\nlast\n"},
		{[]string{"-c", "main", "--tail=0"}, ""},
		{[]string{"-c", "main", "--limit-bytes=8"}, "first\nse"},
		{[]string{"-c", "main", "--since=1h"}, "first\nsecond\nlast\n"},
		{[]string{"-c", "main", "--since-time=2100-01-01T00:00:00Z"}, ""},
		{[]string{"-c", "main", "--tail=1", "--timestamps"}, `\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z last` + "\n"},
	} {
		got := n.kubectl(append([]string{"logs", "logs"}, test.args...)...)
		if !regexp.MustCompile("^" + test.want + "$").MatchString(got) {
			t.Errorf("%q: got %q, want %q", test.args, got, test.want)
		}
	}
	stamped := n.kubectl("logs", "logs", "-c", "main", "--tail=1", "--timestamps")
	at, _, _ := strings.Cut(stamped, " ")
	if got := n.kubectl("logs", "logs", "-c", "main", "--since-time="+at); got != "last\n" {
		t.Errorf("since %s: got %q", at, got)
	}
	if out, err := n.tryKubectl("", "logs", "logs", "-c", "none"); err == nil || !strings.Contains(out, "container none is not valid for pod logs") {
		t.Errorf("a container that is not there: %v, %s", err, out)
	}
	n.kubectl("label", "pod", "logs", "app=logs")
	if err := wants(n.kubectl("logs", "-l", "app=logs", "--all-containers"), "from init", "first", "from the side"); err != nil {
		t.Error(err)
	}
	n.kubectl("delete", "pod", "logs", "--timeout=3m")
}

func testLogsPrevious(t *testing.T, n *node) {
	n.busyboxPod("steady", "sleep 1000", "", "")
	n.running("steady")
	n.kubectlIn(fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: counting}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: %s
    imagePullPolicy: Never
    command: [sh, -c, "n=$(ls /data | wc -l); touch /data/$n; echo run $n; test $n != 0 || exit 1; sleep 1000"]
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, emptyDir: {}}]
`, busyboxImage), "apply", "-f", "-")
	n.eventually("it came again", func() error {
		pod := n.pod("counting")
		if len(pod.Status.ContainerStatuses) == 0 || pod.Status.ContainerStatuses[0].RestartCount != 1 || pod.Status.Phase != v1.PodRunning {
			return fmt.Errorf("status: %+v", pod.Status)
		}
		return wants(n.kubectl("logs", "counting"), "run 1\n")
	})
	if got, want := n.kubectl("logs", "-p", "counting"), "run 0\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	out, err := n.tryKubectl("", "logs", "-p", "steady")
	if err == nil || !strings.Contains(out, `previous terminated container "main" in pod "steady" not found`) {
		t.Errorf("without a run before: %v, %s", err, out)
	}
	n.kubectl("delete", "pod", "counting", "steady", "--timeout=3m")
}

func testSessionsEnd(t *testing.T, n *node) {
	n.busyboxPod("ends", "sleep 1000", "", "")
	n.running("ends")
	s := n.start(nil, "exec", "-i", "ends", "--", "sh", "-c", "echo here; cat")
	s.expect("here")
	n.kubectl("delete", "pod", "ends", "--timeout=3m")
	if _, err := s.wait(); err == nil {
		t.Error("a command whose pod was deleted ended well")
	}
}

func testSessionsNobody(t *testing.T, n *node) {
	n.busyboxPod("done", "true", "", "")
	n.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/done", "--timeout=3m")
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"exec", "done", "--", "true"}, "cannot exec into a container in a completed pod"},
		{[]string{"attach", "done"}, "cannot attach a container in a completed pod"},
		{[]string{"port-forward", "done", ":80"}, "unable to forward port because pod is not running"},
		{[]string{"exec", "nobody", "--", "true"}, `pods "nobody" not found`},
	} {
		out, err := n.tryKubectl("", test.args...)
		if err == nil || !strings.Contains(out, test.want) {
			t.Errorf("%q: %v, got %q, want %q", test.args, err, out, test.want)
		}
	}
	n.kubectl("delete", "pod", "done")
}
