package volumeplugin

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
	"github.com/holdfast-dev/holdfast/internal/testenv"
	"github.com/holdfast-dev/holdfast/test/nfsserver"
)

// serveNFS starts a server until the test ends, and returns the options by which
// it is mounted.
func serveNFS(t *testing.T) (server *nfsserver.Server, options []string) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server = nfsserver.New()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	port := listener.Addr().(*net.TCPAddr).Port
	return server, []string{"vers=3,proto=tcp,mountproto=tcp,nolock,noacl", fmt.Sprintf("port=%d,mountport=%[1]d", port)}
}

func TestNFS(t *testing.T) {
	testenv.Need(t, "root", "nfs")
	server, options := serveNFS(t)
	server.Write("greeting", "hello")
	h := newHost(t)
	share := func(readOnly bool) podvolumes.Volume {
		v := volume(podvolumes.NFS)
		v.PodUID = uid
		v.NFSServer, v.NFSPath, v.MountOptions, v.ReadOnly = "127.0.0.1", nfsserver.Export, options, readOnly
		return v
	}

	t.Run("read and written", func(t *testing.T) {
		v := share(false)
		dir := setUp(t, h, v)
		if want := filepath.Join(string(h.layout), "pods", string(uid), "volumes/kubernetes.io~nfs/data"); dir != want {
			t.Errorf("path %s, want %s", dir, want)
		}
		if got := content(t, filepath.Join(dir, "greeting")); got != "hello" {
			t.Errorf("read %q", got)
		}
		write(t, filepath.Join(dir, "answer"), "hi")
		if got, _ := server.Read("answer"); got != "hi" {
			t.Errorf("the server has %q", got)
		}
		setUp(t, h, v)
		if points := mountsBelow(t, string(h.layout)); len(points) != 1 {
			t.Errorf("mounted twice: %v", points)
		}
		found, err := h.Found(t.Context())
		if err != nil || len(found) != 1 || found[0].ID != v.ID || found[0].Name != "data" || !found[0].Complete {
			t.Errorf("found %+v, %v", found, err)
		}
		if err := h.TearDown(t.Context(), uid, v.ID); err != nil || exists(dir) {
			t.Errorf("torn down: %v, still there: %v", err, exists(dir))
		}
		if got, ok := server.Read("greeting"); !ok || got != "hello" {
			t.Error("the pod's end took the server's files")
		}
	})
	t.Run("read-only", func(t *testing.T) {
		v := share(true)
		dir := setUp(t, h, v)
		if err := os.WriteFile(filepath.Join(dir, "new"), nil, 0o600); err == nil {
			t.Error("written to a read-only volume")
		}
		if err := h.TearDown(t.Context(), uid, v.ID); err != nil {
			t.Error(err)
		}
	})
	t.Run("an export that is not there", func(t *testing.T) {
		v := share(false)
		v.NFSPath = "/elsewhere"
		if _, err := h.SetUp(t.Context(), &v); err == nil || !strings.Contains(err.Error(), "127.0.0.1:/elsewhere") {
			t.Errorf("err = %v", err)
		}
		if points := mountsBelow(t, string(h.layout)); len(points) > 0 || exists(h.layout.Volume(uid, v.ID)) {
			t.Errorf("left %v", points)
		}
	})
	t.Run("a server that stops answering", func(t *testing.T) {
		v := share(false)
		dir := setUp(t, h, v)
		server.Silence(true)
		h.nfsPatience = time.Second
		if found, err := h.Found(t.Context()); err != nil || len(found) != 1 {
			t.Errorf("found %+v, %v", found, err)
		}
		if err := h.TearDown(t.Context(), uid, v.ID); err != nil || exists(dir) {
			t.Errorf("torn down: %v, still there: %v", err, exists(dir))
		}
	})
}

// TestNFSRefused needs no NFS: it is about what is said before the kernel is asked.
func TestNFSRefused(t *testing.T) {
	h := newHost(t)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := fmt.Sprintf("port=%d", listener.Addr().(*net.TCPAddr).Port)
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, server, path string
		options            []string
		want               string
	}{
		{"nobody listens", "127.0.0.1", "/export", []string{nobody}, "nfs.server 127.0.0.1 cannot be reached"},
		{"a server with options", "127.0.0.1,addr=192.0.2.1", "/export", nil, "nfs.server must be"},
		{"a path that is none", "127.0.0.1", "-o bind /", nil, "nfs.path an absolute path"},
		{"another address", "127.0.0.1", "/export", []string{"nolock,addr=192.0.2.1"}, "addr is the node's to say"},
		{"too many options", "127.0.0.1", "/export", []string{"vers=3", strings.Repeat("x", maxOptions)}, "longer than"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := volume(podvolumes.NFS)
			v.PodUID, v.NFSServer, v.NFSPath, v.MountOptions = uid, tt.server, tt.path, tt.options
			if _, err := h.SetUp(t.Context(), &v); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("err = %v, want %q", err, tt.want)
			}
			if points := mountsBelow(t, string(h.layout)); len(points) > 0 {
				t.Errorf("mounted %v", points)
			}
		})
	}
}

func TestParseNFSOptions(t *testing.T) {
	all := nfsVersions
	one := []string{""}
	tests := []struct {
		options  string
		readOnly bool
		want     nfsOptions
	}{
		{"", false, nfsOptions{0, nil, all, "2049"}},
		{"", true, nfsOptions{unix.MS_RDONLY, nil, all, "2049"}},
		{"rw,hard,timeo=600", true, nfsOptions{unix.MS_RDONLY, []string{"hard", "timeo=600"}, all, "2049"}},
		{"ro,rw, nosuid,noatime,_netdev,bg,retry=2,defaults", false, nfsOptions{unix.MS_NOSUID | unix.MS_NOATIME, nil, all, "2049"}},
		{"nfsvers=4.1", false, nfsOptions{0, []string{"nfsvers=4.1"}, one, "2049"}},
		{"v3", false, nfsOptions{0, []string{"v3"}, one, ""}},
		{"vers=3,port=12049", false, nfsOptions{0, []string{"vers=3", "port=12049"}, one, "12049"}},
		{"vers=4,port=0", false, nfsOptions{0, []string{"vers=4", "port=0"}, one, ""}},
		{"vers=3,proto=udp,port=2049", false, nfsOptions{0, []string{"vers=3", "proto=udp", "port=2049"}, one, ""}},
		{"bind", false, nfsOptions{0, []string{"bind"}, all, "2049"}}, // which the kernel's NFS does not know
	}
	for _, tt := range tests {
		got, err := parseNFSOptions([]string{tt.options}, tt.readOnly)
		if diff := cmp.Diff(got, tt.want, cmp.AllowUnexported(nfsOptions{})); err != nil || diff != "" {
			t.Errorf("%q: %v (-got +want):\n%s", tt.options, err, diff)
		}
	}
}

func FuzzParseNFSOptions(f *testing.F) {
	f.Add("vers=3,ro,addr=1.2.3.4", true)
	f.Fuzz(func(t *testing.T, options string, readOnly bool) {
		o, err := parseNFSOptions([]string{options}, readOnly)
		if err != nil {
			return
		}
		if readOnly && o.flags&unix.MS_RDONLY == 0 {
			t.Errorf("%q makes a read-only volume writable", options)
		}
		for _, option := range o.data {
			if strings.Contains(option, ",") || strings.HasPrefix(option, "addr=") {
				t.Errorf("%q passes %q on", options, option)
			}
		}
	})
}
