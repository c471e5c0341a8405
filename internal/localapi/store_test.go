package localapi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// serveChild runs a server in a process of its own and waits until it is
// ready.
func serveChild(t *testing.T, dir string) (*exec.Cmd, *kubernetes.Clientset) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childDir+"="+dir)
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("child said %q, %v", line, err)
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "admin.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	return cmd, clientFor(t, cfg)
}

// What was acknowledged is there after kill -9, and so are the certificates.
func TestKill(t *testing.T) {
	dir := t.TempDir()
	cmd, client := serveChild(t, dir)
	const count = 50
	for i := range count {
		c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c%d", i)}}
		if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), c, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Fatal("killed, and ended well")
	}
	s, err := New(testConfig(dir, testLog))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	<-s.Ready()
	list, err := clientFor(t, s.AdminConfig()).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := len(list.Items), count+1; got != want { // and the root CA's
		t.Errorf("%d config maps, want %d", got, want)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestStoreErrors(t *testing.T) {
	made := t.TempDir() // a store with something in it
	cmd, _ := serveChild(t, made)
	t.Run("in use", func(t *testing.T) {
		checkRun(t, made, ErrStoreLocked, "holdfast down")
	})
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed

	for _, tc := range []struct {
		name   string
		damage func(t *testing.T, dir string)
		want   error
		remedy string
	}{
		{"newer", func(t *testing.T, dir string) { write(t, dir, "format", "2\n") }, ErrNewerStore, "install the newer Holdfast again"},
		{"no version", func(t *testing.T, dir string) { write(t, dir, "format", "x") }, ErrDamagedStore, "move the folder away"},
		{"database garbled", func(t *testing.T, dir string) {
			write(t, dir, "member/snap/db", strings.Repeat("garbage ", 10000))
		}, ErrDamagedStore, "move the folder away"},
		{"database empty", func(t *testing.T, dir string) { write(t, dir, "member/snap/db", "") }, ErrDamagedStore, "move the folder away"},
		{"log garbled", func(t *testing.T, dir string) {
			logs, err := filepath.Glob(filepath.Join(dir, "member/wal/*.wal"))
			if err != nil || len(logs) == 0 {
				t.Fatal("no log: ", err)
			}
			write(t, dir, "member/wal/"+filepath.Base(logs[0]), strings.Repeat("garbage ", 10000))
		}, ErrDamagedStore, "move the folder away"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.CopyFS(filepath.Join(dir, "etcd"), os.DirFS(filepath.Join(made, "etcd"))); err != nil {
				t.Fatal(err)
			}
			tc.damage(t, filepath.Join(dir, "etcd"))
			checkRun(t, dir, tc.want, tc.remedy)
		})
	}

	t.Run("socket path", func(t *testing.T) {
		s, err := New(func() Config {
			c := testConfig(t.TempDir(), testLog)
			c.RunDir = filepath.Join(c.RunDir, strings.Repeat("x", 100))
			return c
		}())
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "choose a shorter run folder") {
			t.Errorf("got %v", err)
		}
	})
}

func TestFullDiskIsNoDamage(t *testing.T) {
	testenv.Need(t, "root")
	dir := t.TempDir()
	data := filepath.Join(dir, "etcd")
	if err := os.MkdirAll(data, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", data, "tmpfs", 0, "size=3m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(data, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	s, err := New(testConfig(dir, testLog))
	if err != nil {
		t.Fatal(err)
	}
	err = s.Run(t.Context())
	if err == nil || errors.Is(err, ErrDamagedStore) || !strings.Contains(err.Error(), "free some space") {
		t.Errorf("got %v, want that the disk is full", err)
	}
}

func write(t *testing.T, dir, file, data string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, file), []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
}

// checkRun runs a server that cannot start, and wants the error and a remedy.
func checkRun(t *testing.T, dir string, want error, remedy string) {
	t.Helper()
	s, err := New(testConfig(dir, testLog))
	if err != nil {
		t.Fatal(err)
	}
	err = s.Run(t.Context())
	if !errors.Is(err, want) || !strings.Contains(err.Error(), remedy) {
		t.Errorf("got %v\nwant %v, with %q", err, want, remedy)
	}
}

func TestConfigErrors(t *testing.T) {
	ok := testConfig(t.TempDir(), testLog)
	for _, tc := range []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"no folder", func(c *Config) { c.DataDir = "" }, "DataDir is empty"},
		{"no node", func(c *Config) { c.NodeName = "" }, "NodeName is empty"},
		{"not loopback", func(c *Config) { c.Listen = []string{"0.0.0.0:0"} }, "must be a loopback"},
		{"no port", func(c *Config) { c.Listen = []string{"127.0.0.1"} }, "missing port"},
		{"bad CIDR", func(c *Config) { c.ServiceCIDR = "10.96.0.0" }, "service CIDR"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := ok
			tc.change(&cfg)
			if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}
