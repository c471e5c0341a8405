package kubeconfigfile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// a good kubeconfig, by the user's part.
func text(user string) string {
	return `apiVersion: v1
kind: Config
current-context: here
clusters:
- {name: c, cluster: {server: "https://10.0.0.1:6443", insecure-skip-tls-verify: true}}
contexts:
- {name: here, context: {cluster: c, user: u}}
users:
- {name: u, user: {` + user + `}}
`
}

func write(t *testing.T, content string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoad(t *testing.T) {
	for name, test := range map[string]struct {
		user string
		ok   func(path string, c *rest.Config) bool
	}{
		"token": {"token: abc", func(_ string, c *rest.Config) bool { return c.BearerToken == "abc" }},
		"token file": {"tokenFile: token", func(path string, c *rest.Config) bool {
			return c.BearerTokenFile == filepath.Join(filepath.Dir(path), "token")
		}},
		"files": {"client-certificate: token, client-key: /dev/null", func(path string, c *rest.Config) bool {
			return c.CertFile == filepath.Join(filepath.Dir(path), "token") && c.KeyFile == "/dev/null"
		}},
		"data": {"client-certificate-data: YQ==, client-key-data: Yg==", func(_ string, c *rest.Config) bool { return string(c.CertData) == "a" && string(c.KeyData) == "b" }},
		"program": {"exec: {apiVersion: client.authentication.k8s.io/v1, command: ask, interactiveMode: Never}", func(_ string, c *rest.Config) bool {
			return c.ExecProvider != nil && c.ExecProvider.Command == "ask"
		}},
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, text(test.user), 0o600)
			if strings.Contains(test.user, "token") {
				if err := os.WriteFile(filepath.Join(filepath.Dir(path), "token"), []byte("abc"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			c, note, err := Load(path)
			if err != nil || note != "" || !test.ok(path, c) || c.Host != "https://10.0.0.1:6443" {
				t.Errorf("got %v, %q, %v", c, note, err)
			}
		})
	}
}

func TestLoadRefuses(t *testing.T) {
	good := text("token: abc")
	for name, test := range map[string]struct{ content, want string }{
		"empty":           {"\n", "is empty"},
		"no kubeconfig":   {"- a", "is not a kubeconfig"},
		"no context":      {strings.Replace(good, "current-context: here", "current-context: there", 1), `current-context is "there"`},
		"another cluster": {strings.Replace(good, "cluster: c,", "cluster: d,", 1), `names the cluster "d"`},
		"another user":    {strings.Replace(good, "user: u}}", "user: v}}", 1), `names the user "v"`},
		"no server":       {strings.Replace(good, "https://10.0.0.1:6443", "", 1), `the server of the cluster "c" is ""`},
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, test.content, 0o600)
			_, _, err := Load(path)
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("got %v, want %q and the file in it", err, test.want)
			}
		})
	}
	if _, _, err := Load(filepath.Join(t.TempDir(), "none")); !errors.Is(err, ErrNone) {
		t.Errorf("no file: got %v, want ErrNone", err)
	}
	if _, note, err := Load(write(t, good, 0o644)); err != nil || !strings.Contains(note, "chmod 600") {
		t.Errorf("others may read it: got %q, %v, want what to run", note, err)
	}
}

func TestWrite(t *testing.T) {
	from, _, err := Load(write(t, text("token: abc"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "etc", "kubelet.conf")
	pair := filepath.Join(filepath.Dir(path), "current.pem")
	if err := Write(path, from, pair); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Load(path); !errors.Is(err, ErrNoCertificate) {
		t.Errorf("before there is a certificate: got %v, want ErrNoCertificate", err)
	}
	if err := os.WriteFile(pair, []byte("a certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, note, err := Load(path)
	if err != nil || note != "" {
		t.Fatalf("%q, %v", note, err)
	}
	if c.Host != from.Host || !c.Insecure || c.CertFile != pair || c.KeyFile != pair || c.BearerToken != "" {
		t.Errorf("got %v", c)
	}
}

func FuzzLoad(f *testing.F) {
	f.Add(text("token: abc"))
	f.Add(text("exec: {command: x}"))
	f.Add("current-context: \"\"\ncontexts:\n- {name: \"\"}\n")
	f.Add("clusters: [{name: a, cluster: null}]\ncontexts: [{name: a, context: {cluster: a}}]\ncurrent-context: a")
	f.Fuzz(func(t *testing.T, content string) {
		c, _, err := Load(write(t, content, 0o600))
		if (c == nil) == (err == nil) {
			t.Errorf("got %v, %v, want one of them", c, err)
		}
	})
}
