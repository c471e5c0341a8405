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
	ours := 0
	for i := range list.Items {
		if strings.HasPrefix(list.Items[i].Name, "c") { // not the root CA's, which a controller makes when it can
			ours++
		}
	}
	if ours != count {
		t.Errorf("%d config maps, want %d", ours, count)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestStoreErrors breaks a store in every way that a disk or a hand does. Each
// is an error that says what is wrong and what helps; none takes the process.
func TestStoreErrors(t *testing.T) {
	made := t.TempDir() // a store with something in it
	cmd, client := serveChild(t, made)
	t.Run("in use", func(t *testing.T) {
		checkRun(t, made, ErrStoreLocked, "holdfast down")
	})
	for i := range 20 {
		c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c%d", i)}, Data: map[string]string{"k": strings.Repeat("x", 20_000)}}
		if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), c, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}

	garbage := strings.Repeat("garbage ", 10000)
	for _, tc := range []struct {
		name   string
		damage func(t *testing.T, dir string)
		want   error
		says   string
	}{
		{"newer", func(t *testing.T, dir string) { write(t, dir, "format", "2\n") }, ErrNewerStore, "install the newer Holdfast again"},
		{"no version", func(t *testing.T, dir string) { write(t, dir, "format", "x") }, ErrDamagedStore, "format holds"},
		{"database garbled", func(t *testing.T, dir string) { write(t, dir, "member/snap/db", garbage) }, ErrDamagedStore, "member/snap/db"},
		{"database empty", func(t *testing.T, dir string) { write(t, dir, "member/snap/db", "") }, ErrDamagedStore, "member/snap/db"},
		{"database cut off", func(t *testing.T, dir string) {
			if err := os.Truncate(filepath.Join(dir, "member/snap/db"), 200_000); err != nil {
				t.Fatal(err)
			}
		}, ErrDamagedStore, "is cut off: it has 200000 of "},
		{"pages of the database garbled", func(t *testing.T, dir string) {
			overwrite(t, filepath.Join(dir, "member/snap/db"), 8192, strings.Repeat("garbage ", 20_000))
		}, ErrDamagedStore, "member/snap/db"},
		{"database gone", func(t *testing.T, dir string) { remove(t, dir, "member/snap/db") }, ErrDamagedStore, "member/snap/db is missing"},
		{"database a folder", func(t *testing.T, dir string) {
			remove(t, dir, "member/snap/db")
			if err := os.Mkdir(filepath.Join(dir, "member/snap/db"), 0o700); err != nil {
				t.Fatal(err)
			}
		}, ErrDamagedStore, "member/snap/db"},
		{"log garbled", func(t *testing.T, dir string) { write(t, dir, firstLog(t, dir), garbage) }, ErrDamagedStore, "member/wal"},
		{"record of the log garbled", func(t *testing.T, dir string) {
			overwrite(t, filepath.Join(dir, firstLog(t, dir)), 100_000, "garbage")
		}, ErrDamagedStore, "crc mismatch"},
		{"log empty", func(t *testing.T, dir string) { write(t, dir, firstLog(t, dir), "") }, ErrDamagedStore, "etcd"},
		{"log gone", func(t *testing.T, dir string) { remove(t, dir, "member/wal") }, ErrDamagedStore, "member/wal holds no log"},
		{"all gone but the mark", func(t *testing.T, dir string) { remove(t, dir, "member") }, ErrDamagedStore, "member/snap/db is missing"},
		{"the log of another time", func(t *testing.T, dir string) {
			remove(t, dir, firstLog(t, dir))
			write(t, dir, "member/wal/0000000000000001-0000000000000fff.wal", "")
		}, ErrDamagedStore, "the log in "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.CopyFS(filepath.Join(dir, "etcd"), os.DirFS(filepath.Join(made, "etcd"))); err != nil {
				t.Fatal(err)
			}
			tc.damage(t, filepath.Join(dir, "etcd"))
			checkRun(t, dir, tc.want, tc.says)
			if errors.Is(tc.want, ErrDamagedStore) {
				checkRun(t, dir, tc.want, "holdfast restore")
			}
		})
	}

	t.Run("not a folder", func(t *testing.T) {
		dir := t.TempDir()
		write(t, dir, "etcd", "")
		checkRun(t, dir, unix.ENOTDIR, "make the store's folder")
	})
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

func firstLog(t *testing.T, dir string) string {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(dir, "member/wal/*.wal"))
	if err != nil || len(logs) == 0 {
		t.Fatal("no log: ", err)
	}
	return filepath.Join("member/wal", filepath.Base(logs[0]))
}

func overwrite(t *testing.T, file string, at int64, data string) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt([]byte(data), at)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, dir, path string) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(dir, path)); err != nil {
		t.Fatal(err)
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
		{"not loopback", func(c *Config) { c.Listen = []string{"192.0.2.1:0"} }, "must be a loopback"},
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
