package ociimage

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func sample() Image {
	return Image{
		Refs: []string{"holdfast.local/demo:latest", "holdfast.local/demo:1"},
		Files: map[string]File{
			"/demo":      {Mode: 0o755, Content: []byte("program")},
			"/tmp":       {Mode: fs.ModeDir | fs.ModeSticky | 0o777},
			"/etc/a/b":   {Mode: 0o600, Content: []byte("text")},
			"/etc/empty": {Mode: 0o644},
			"/etc/link":  {Mode: fs.ModeSymlink | 0o777, Content: []byte("a/b")},
		},
		Entrypoint: []string{"/demo"},
		Cmd:        []string{"serve"},
		Env:        []string{"A=b"},
		User:       "65534",
		Arch:       "arm64",
	}
}

func build(t *testing.T, img Image) (id string, archive []byte) {
	t.Helper()
	var buf bytes.Buffer
	id, err := Build(&buf, img)
	if err != nil {
		t.Fatal(err)
	}
	return id, buf.Bytes()
}

// TestReadBack reads the archive as docker's format and as OCI's, with a reader
// that is not ours.
func TestReadBack(t *testing.T) {
	img := sample()
	id, archive := build(t, img)

	opener := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive)), nil }
	for _, ref := range img.Refs {
		tag, err := name.NewTag(ref)
		if err != nil {
			t.Fatal(err)
		}
		got, err := tarball.Image(opener, &tag)
		if err != nil {
			t.Fatalf("docker archive, %s: %v", ref, err)
		}
		check(t, got, id, img)
	}

	dir := t.TempDir()
	unpack(t, archive, dir)
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var refs []string
	for _, d := range manifest.Manifests {
		refs = append(refs, d.Annotations["io.containerd.image.name"])
		got, err := index.Image(d.Digest)
		if err != nil {
			t.Fatal(err)
		}
		check(t, got, id, img)
	}
	if diff := cmp.Diff(refs, img.Refs); diff != "" {
		t.Errorf("references (-got +want):\n%s", diff)
	}
}

func check(t *testing.T, got v1.Image, id string, want Image) {
	t.Helper()
	gotID, err := got.ConfigName()
	if err != nil || gotID.String() != id {
		t.Errorf("image ID: got %v, %v; want %s", gotID, err, id)
	}
	cfg, err := got.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	gotImg := Image{
		Refs:       want.Refs,
		Files:      files(t, got),
		Entrypoint: cfg.Config.Entrypoint, Cmd: cfg.Config.Cmd, Env: cfg.Config.Env,
		User: cfg.Config.User, Arch: cfg.Architecture,
	}
	wantFiles, err := withFolders(want.Files)
	if err != nil {
		t.Fatal(err)
	}
	want.Files = wantFiles
	if diff := cmp.Diff(gotImg, want, cmp.Transformer("text", func(b []byte) string { return string(b) })); diff != "" {
		t.Errorf("image (-got +want):\n%s", diff)
	}
	if cfg.OS != "linux" {
		t.Errorf("operating system: got %q", cfg.OS)
	}
}

func files(t *testing.T, img v1.Image) map[string]File {
	t.Helper()
	layers, err := img.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("got %d layers, %v; want 1", len(layers), err)
	}
	rc, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer rc.Close()
	found := map[string]File{}
	eachEntry(t, rc, func(h *tar.Header, content []byte) {
		if h.Uid != 0 || h.Gid != 0 || !h.ModTime.Equal(epoch) {
			t.Errorf("%s: owner %d:%d, time %v", h.Name, h.Uid, h.Gid, h.ModTime)
		}
		found["/"+strings.TrimSuffix(h.Name, "/")] = File{Mode: h.FileInfo().Mode(), Content: content}
	})
	return found
}

func unpack(t *testing.T, archive []byte, dir string) {
	t.Helper()
	eachEntry(t, bytes.NewReader(archive), func(h *tar.Header, content []byte) {
		if hex, ok := strings.CutPrefix(h.Name, "blobs/sha256/"); ok && fmt.Sprintf("%x", sha256.Sum256(content)) != hex {
			t.Errorf("%s does not hold what its name says", h.Name)
		}
		path := filepath.Join(dir, h.Name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, content, 0o644)); err != nil {
			t.Fatal(err)
		}
	})
}

func eachEntry(t *testing.T, r io.Reader, f func(*tar.Header, []byte)) {
	t.Helper()
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		if len(content) == 0 {
			content = nil
		}
		if h.Typeflag == tar.TypeSymlink {
			content = []byte(h.Linkname)
		}
		f(h, content)
	}
}

func TestReproducible(t *testing.T) {
	id1, first := build(t, sample())
	id2, second := build(t, sample())
	if id1 != id2 || !bytes.Equal(first, second) {
		t.Errorf("two builds differ: %s, %s", id1, id2)
	}
	other := sample()
	other.Files["/demo"] = File{Mode: 0o755, Content: []byte("another")}
	if id3, _ := build(t, other); id3 == id1 {
		t.Errorf("another program has the same ID %s", id3)
	}
}

func TestRefuses(t *testing.T) {
	for _, tc := range []struct {
		name, want string
		change     func(*Image)
	}{
		{"no name", "no name", func(i *Image) { i.Refs = nil }},
		{"relative", "not absolute", func(i *Image) { i.Files["a"] = File{} }},
		{"escaping", "not absolute", func(i *Image) { i.Files["/../a"] = File{} }},
		{"root", "not absolute", func(i *Image) { i.Files["/"] = File{Mode: fs.ModeDir} }},
		{"below a file", "below the file", func(i *Image) { i.Files["/demo/a"] = File{} }},
		{"device", "neither", func(i *Image) { i.Files["/l"] = File{Mode: fs.ModeDevice} }},
		{"link to nowhere", "nowhere", func(i *Image) { i.Files["/l"] = File{Mode: fs.ModeSymlink} }},
		{"below a link", "below the file", func(i *Image) {
			i.Files["/l"] = File{Mode: fs.ModeSymlink, Content: []byte("etc")}
			i.Files["/l/a"] = File{}
		}},
		{"full folder", "has content", func(i *Image) { i.Files["/d"] = File{Mode: fs.ModeDir, Content: []byte("x")} }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			img := sample()
			tc.change(&img)
			if _, err := Build(io.Discard, img); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q in it", err, tc.want)
			}
		})
	}
}

func FuzzBuild(f *testing.F) {
	f.Add("/a/b", []byte("x"), uint32(0o644))
	f.Add("/"+strings.Repeat("long/", 60)+"é", []byte{0}, uint32(0o4755))
	f.Fuzz(func(t *testing.T, path string, content []byte, mode uint32) {
		img := Image{Refs: []string{"holdfast.local/fuzz:1"}, Files: map[string]File{path: {Mode: fs.FileMode(mode), Content: content}}}
		var buf bytes.Buffer
		if _, err := Build(&buf, img); err != nil {
			return // refused: the table says what is
		}
		tag, err := name.NewTag(img.Refs[0])
		if err != nil {
			t.Fatal(err)
		}
		got, err := tarball.Image(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(buf.Bytes())), nil }, &tag)
		if err != nil {
			t.Fatal(err)
		}
		file, ok := files(t, got)[path]
		if !ok || !bytes.Equal(file.Content, content) {
			t.Errorf("%q was lost: got %q, %v", path, file.Content, ok)
		}
	})
}
