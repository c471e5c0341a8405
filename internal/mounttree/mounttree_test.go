package mounttree

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/testenv"
)

func TestPointsBelow(t *testing.T) {
	const mountinfo = `1 0 8:1 / / rw - ext4 /dev/sda1 rw
20 1 0:5 / /run rw - tmpfs tmpfs rw
21 20 0:6 / /run/holdfast/a rw - tmpfs tmpfs rw
22 21 0:4 net:[4] /run/holdfast/a/netns/x rw - nsfs nsfs rw
23 21 0:7 / /run/holdfast/a/with\040space\134 rw - tmpfs tmpfs rw
24 20 0:8 / /run/holdfast/ab rw - tmpfs tmpfs rw
`
	want := []string{"/run/holdfast/a/netns/x", `/run/holdfast/a/with space\`}
	if diff := cmp.Diff(pointsBelow(mountinfo, "/run/holdfast/a"), want); diff != "" {
		t.Errorf("mount points (-got +want):\n%s", diff)
	}
}

func FuzzUnescape(f *testing.F) {
	f.Add(`a\040b\\134`)
	f.Fuzz(func(t *testing.T, s string) {
		if got := unescape(s); !strings.Contains(s, `\`) && got != s {
			t.Errorf("%q became %q", s, got)
		}
		var escaped strings.Builder
		for _, c := range []byte(s) {
			if c == '\\' || c == ' ' || c == '\n' || c == '\t' {
				escaped.WriteString(`\` + string([]byte{'0' + c>>6, '0' + c>>3&7, '0' + c&7}))
				continue
			}
			escaped.WriteByte(c)
		}
		if got := unescape(escaped.String()); got != s {
			t.Errorf("round trip of %q: got %q", s, got)
		}
	})
}

func TestRemoveLeavesForeignMounts(t *testing.T) {
	testenv.Need(t, "root")
	outside, dir := t.TempDir(), filepath.Join(t.TempDir(), "dir")
	inner := filepath.Join(dir, "a", "b c")
	if err := os.MkdirAll(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	precious := filepath.Join(outside, "precious")
	if err := os.WriteFile(precious, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 { // one on the other
		if err := syscall.Mount(outside, inner, "", syscall.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
	}
	if err := Remove(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(precious); err != nil {
		t.Errorf("a file of the mounted folder: %v", err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Errorf("%s is still there", dir)
	}
	if err := Remove(dir); err != nil {
		t.Errorf("again: %v", err)
	}
}
