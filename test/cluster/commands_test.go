package cluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// commands uses each kubectl command that reaches a node through the API server.
func (c *cluster) commands() {
	c.apply(`apiVersion: v1
kind: Pod
metadata: {name: shell, labels: {app: shell}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: ` + busyboxImage + `
    imagePullPolicy: Never
    command: [sh, -c, echo begun; exec sleep 100000]
---
apiVersion: v1
kind: Pod
metadata: {name: echo}
spec:
  restartPolicy: Never
  containers:
  - name: main
    image: ` + busyboxImage + `
    imagePullPolicy: Never
    stdin: true
    stdinOnce: true
    command: [sh, -c, 'while read line; do echo "got $line"; done; sleep 1']
`)
	c.awaitPods("shell", 1, nil)
	c.eventually("logs", prints("begun"), "logs", "shell")
	if out := c.kubectl("exec", "shell", "--", "sh", "-c", "echo out; echo err >&2"); !strings.Contains(out, "out") || !strings.Contains(out, "err") {
		c.t.Errorf("exec printed %q", out)
	}
	if out, err := c.try("", kubectlBin, "exec", "shell", "--", "sh", "-c", "exit 7"); err == nil || !strings.Contains(out, "exit code 7") {
		c.t.Errorf("exec of what fails: %v, %q, want exit code 7", err, out)
	}
	c.kubectl("wait", "--for=jsonpath={.status.phase}=Running", "pod/echo", "--timeout=4m")
	if out := c.kubectlIn("hello\n", "attach", "-i", "echo"); !strings.Contains(out, "got hello") {
		c.t.Errorf("attach printed %q, want got hello", out)
	}

	dir := c.t.TempDir()
	there, back := filepath.Join(dir, "there"), filepath.Join(dir, "back")
	if err := os.WriteFile(there, []byte("content"), 0o600); err != nil {
		c.t.Fatal(err)
	}
	c.kubectl("cp", there, "shell:/tmp/file")
	c.kubectl("cp", "shell:/tmp/file", back)
	if got, err := os.ReadFile(back); err != nil || string(got) != "content" {
		c.t.Errorf("copied there and back: %q, %v", got, err)
	}

	c.kubectl("debug", "shell", "--image="+busyboxImage, "--image-pull-policy=Never", "--target=main", "-c", "looks", "--", "sh", "-c", "echo came")
	c.eventually("what the debug container wrote", prints("came"), "logs", "shell", "-c", "looks")

	web := c.awaitPods("web", 4, nil)[0]
	c.forward(web.Name)

	for _, args := range [][]string{{"top", "nodes"}, {"top", "pods"}} {
		want := map[string]string{"nodes": c.nodes[1].name, "pods": web.Name}[args[1]]
		c.Eventually("holdfast "+strings.Join(args, " ")+" shows "+want, func(context.Context) (bool, error) {
			out, err := c.try("", holdfastBin, append(args, "--kubeconfig", c.Kubeconfig())...)
			return err == nil && strings.Contains(out, want), errors.Join(err, fmt.Errorf("it prints %s", out))
		})
	}
	c.kubectl("delete", "pod", "shell", "echo", "--timeout=4m")
}

var forwarding = regexp.MustCompile(`Forwarding from 127\.0\.0\.1:(\d+)`)

// forward asks a pod's web server through kubectl port-forward.
func (c *cluster) forward(pod string) {
	c.t.Helper()
	cmd := exec.CommandContext(c.t.Context(), kubectlBin, "port-forward", "pod/"+pod, ":8080")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig(), "HOME="+filepath.Dir(c.audit))
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	found := forwarding.FindStringSubmatch(line)
	if found == nil {
		c.t.Fatalf("port-forward said %q, %v", line, err)
	}
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, "http://127.0.0.1:"+found[1]+"/healthz", http.NoBody)
	if err != nil {
		c.t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(body), "ok") {
		c.t.Errorf("through the forwarded port: %q, %v, want ok", body, err)
	}
}
