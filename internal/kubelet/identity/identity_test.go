package identity

import (
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A folder is what a node has on disk.
type folder struct {
	dir  string
	cfg  Config
	auth *authority
}

func newFolder(t *testing.T) *folder {
	t.Helper()
	dir := t.TempDir()
	return &folder{dir, Config{
		Node: "n1", Kubeconfig: filepath.Join(dir, "kubelet.conf"), Dir: filepath.Join(dir, "pki"), Rotate: true,
		Log: slog.New(slog.DiscardHandler),
	}, newAuthority(t)}
}

// kubeconfig writes one of a user.
func (f *folder) kubeconfig(t *testing.T, name, user string) string {
	t.Helper()
	path := filepath.Join(f.dir, name)
	content := "current-context: c\nclusters: [{name: c, cluster: {server: \"https://127.0.0.1:1\", insecure-skip-tls-verify: true}}]\n" +
		"contexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {" + user + "}}]\n"
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// files writes a client certificate and returns the user of it.
func (f *folder) files(t *testing.T, life time.Duration) (user string) {
	t.Helper()
	cert, key := f.auth.pem(t, "system:node:n1", life)
	path := filepath.Join(f.dir, "client.pem")
	if err := os.WriteFile(path, append(cert, key...), 0o600); err != nil {
		t.Fatal(err)
	}
	return "client-certificate: client.pem, client-key: client.pem"
}

func (f *folder) open() (*Identity, error) {
	f.cfg.Metrics = prometheus.NewRegistry()
	return New(f.cfg)
}

// TestBootstrapGoesOn holds that a node which nobody has let in yet starts as often
// as it is started, with the key of the one request.
func TestBootstrapGoesOn(t *testing.T) {
	f := newFolder(t)
	f.cfg.Bootstrap = f.kubeconfig(t, "bootstrap.conf", "token: abc")
	var key string
	for range 3 {
		i, err := f.open()
		if err != nil {
			t.Fatal(err)
		}
		if i.client == nil || i.client.good() {
			t.Error("no certificate is kept, or one is there before it was issued")
		}
		k, err := i.client.store.Key()
		if err != nil {
			t.Fatal(err)
		}
		if key != "" && key != string(k.PEM) {
			t.Error("another key after a restart")
		}
		key = string(k.PEM)
	}
}

func TestOpen(t *testing.T) {
	for name, test := range map[string]struct {
		make func(f *folder)
		kept bool   // whether the client certificate is kept
		good bool   // whether it counts
		err  string // part of it; empty: there is none
	}{
		"a token":              {func(f *folder) { f.kubeconfig(t, "kubelet.conf", "token: abc") }, false, false, ""},
		"a certificate":        {func(f *folder) { f.kubeconfig(t, "kubelet.conf", f.files(t, time.Hour)) }, true, true, ""},
		"without rotation":     {func(f *folder) { f.kubeconfig(t, "kubelet.conf", f.files(t, time.Hour)); f.cfg.Rotate = false }, false, false, ""},
		"expired":              {func(f *folder) { f.kubeconfig(t, "kubelet.conf", f.files(t, -time.Minute)) }, false, false, "expired on "},
		"expired, no rotation": {func(f *folder) { f.kubeconfig(t, "kubelet.conf", f.files(t, -time.Minute)); f.cfg.Rotate = false }, false, false, "expired on "},
		"expired, with a token": {func(f *folder) {
			f.kubeconfig(t, "kubelet.conf", f.files(t, -time.Minute))
			f.cfg.Bootstrap = f.kubeconfig(t, "bootstrap.conf", "token: abc")
		}, true, false, ""},
		"nothing":        {func(*folder) {}, false, false, "--bootstrap-kubeconfig"},
		"no certificate": {func(f *folder) { f.kubeconfig(t, "kubelet.conf", "client-certificate: x.pem, client-key: x.pem") }, false, false, "is not there"},
		"no bootstrap":   {func(f *folder) { f.cfg.Bootstrap = filepath.Join(f.dir, "none") }, false, false, "--bootstrap-kubeconfig: kubeconfig"},
		"no serving file": {func(f *folder) {
			f.kubeconfig(t, "kubelet.conf", "token: abc")
			f.cfg.ServingCert, f.cfg.ServingKey = "/none", "/none"
		}, false, false, "tlsCertFile"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFolder(t)
			test.make(f)
			i, err := f.open()
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("got %v, want %q in it", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if (i.client != nil) != test.kept || i.client != nil && i.client.good() != test.good {
				t.Errorf("kept: %v, want %v, good: %v", i.client != nil, test.kept, test.good)
			}
		})
	}
}

// A node without files signs its own certificate once.
func TestSelfSigned(t *testing.T) {
	f := newFolder(t)
	f.kubeconfig(t, "kubelet.conf", "token: abc")
	var first []byte
	for range 2 {
		i, err := f.open()
		if err != nil {
			t.Fatal(err)
		}
		cert, err := i.Certificate(nil)
		if err != nil {
			t.Fatal(err)
		}
		if first != nil && string(first) != string(cert.Certificate[0]) {
			t.Error("another certificate after a restart")
		}
		first = cert.Certificate[0]
	}
	info, err := os.Stat(filepath.Join(f.cfg.Dir, "kubelet.key"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("its key: %v, %v", info, err)
	}
}

func TestExplain(t *testing.T) {
	i := &Identity{cfg: Config{Bootstrap: "/b.conf"}}
	forbidden := apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no"))
	for name, test := range map[string]struct {
		good bool
		err  error
		want string
	}{
		"bad token":                 {false, apierrors.NewUnauthorized("no"), "kubeadm token create"},
		"no right":                  {false, forbidden, "system:node-bootstrapper"},
		"by its certificate":        {true, forbidden, "forbidden"},
		"anything else stays as is": {false, http.ErrServerClosed, http.ErrServerClosed.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			if got := i.explain(test.good, test.err); !strings.Contains(got.Error(), test.want) || !errors.Is(got, test.err) {
				t.Errorf("got %v, want %q in it", got, test.want)
			}
		})
	}
}
