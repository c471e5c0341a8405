package runtimehost

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/ociimage"
	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// archiveOf returns an archive of one image whose one file has this content,
// after the change that edit makes to each entry, if given.
func archiveOf(t *testing.T, ref, content string, edit func(name string, data []byte) []byte) []byte {
	t.Helper()
	var whole bytes.Buffer
	_, err := ociimage.Build(&whole, ociimage.Image{Refs: []string{ref}, Files: map[string]ociimage.File{"/f": {Mode: 0o644, Content: []byte(content)}}})
	if err != nil {
		t.Fatal(err)
	}
	if edit == nil {
		return whole.Bytes()
	}
	var edited bytes.Buffer
	tr, tw := tar.NewReader(&whole), tar.NewWriter(&edited)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		if data = edit(h.Name, data); data == nil {
			continue
		}
		h.Size = int64(len(data))
		err = tw.WriteHeader(h)
		if err == nil {
			_, err = tw.Write(data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	return edited.Bytes()
}

func compressed(t *testing.T, data []byte) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	_, err := w.Write(data)
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// await waits until ok holds; the test's own timeout bounds it.
func await(t *testing.T, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(pollPeriod)
	defer tick.Stop()
	for !ok() {
		select {
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		case <-tick.C:
		}
	}
}

// TestArchives imports each form of archive into the real containerd.
func TestArchives(t *testing.T) {
	testenv.Need(t, "root", "runtime", "iptables")
	h, stop := run(t, testConfig(t, "archives"))
	defer stop()
	ctx := t.Context()
	load := func(data []byte) (images []ociimage.Named, err error) {
		a, err := ociimage.ReadArchive(bytes.NewReader(data), "")
		if err != nil {
			t.Fatal(err)
		}
		return a.Images, h.Import(ctx, bytes.NewReader(data), a.Images)
	}
	short := func(name string, data []byte) []byte {
		if name == "index.json" {
			data = bytes.ReplaceAll(data, []byte("docker.io/library/"), nil)
		}
		return data
	}
	dockerOnly := func(name string, data []byte) []byte {
		if name == "oci-layout" {
			return nil
		}
		return data
	}
	for name, data := range map[string][]byte{
		"layout":        archiveOf(t, "reg.example/layout:1", "x", nil),
		"zipped layout": compressed(t, archiveOf(t, "reg.example/zipped:1", "x", nil)),
		"docker":        archiveOf(t, "reg.example/docker:1", "x", dockerOnly),
		"short name":    archiveOf(t, "docker.io/library/short:1", "x", short),
		"replaced":      archiveOf(t, "reg.example/docker:1", "y", nil),
	} {
		t.Run(name, func(t *testing.T) {
			images, err := load(data)
			if err != nil {
				t.Fatal(err)
			}
			// Import returns when the runtime shows the images, pinned; and again.
			if _, err := load(data); err != nil {
				t.Errorf("a second time: %v", err)
			}
			ref := images[0].Ref
			for _, want := range []bool{false, true, false} {
				if err := h.Pin(ctx, ref, want); err != nil {
					t.Fatal(err)
				}
				await(t, func() bool {
					id, pinned, err := h.Image(ctx, ref)
					return err == nil && id == images[0].IDs[0] && pinned == want
				})
			}
		})
	}
	t.Run("broken layer", func(t *testing.T) {
		_, err := load(archiveOf(t, "reg.example/broken:1", "needle", func(_ string, data []byte) []byte {
			return bytes.ReplaceAll(data, []byte("needle"), []byte("noodle"))
		}))
		if err == nil || !strings.Contains(err.Error(), "images import") {
			t.Errorf("got %v", err)
		}
		if id, _, err := h.Image(ctx, "reg.example/broken:1"); id != "" || err != nil {
			t.Errorf("the image is there: %s, %v", id, err)
		}
	})
}
