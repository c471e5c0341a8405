package ociimage

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/distribution/reference"
	"github.com/google/go-cmp/cmp"
)

// pack writes a tar file of names and contents, in pairs. A content that begins
// with "->" is a link.
func pack(t testing.TB, pairs ...string) []byte {
	t.Helper()
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	for i := 0; i < len(pairs); i += 2 {
		var err error
		if target, link := strings.CutPrefix(pairs[i+1], "->"); link {
			err = tw.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: pairs[i], Linkname: target})
		} else {
			err = writeEntry(tw, pairs[i], File{Mode: 0o644, Content: []byte(pairs[i+1])})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func digest(content string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(content))) }

func blobOf(content string) string { return strings.Replace("blobs/"+digest(content), ":", "/", 1) }

func built(t testing.TB, refs ...string) (data []byte, id string) {
	t.Helper()
	var buf bytes.Buffer
	id, err := Build(&buf, Image{Refs: refs, Arch: "amd64", Files: map[string]File{"/x": {Mode: fs.FileMode(0o755), Content: bytes.Repeat([]byte("x"), 3000)}}})
	if err != nil {
		t.Fatal(err)
	}
	return buf.Bytes(), id
}

func zipped(t testing.TB, data []byte) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	_, err := w.Write(data)
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

const (
	amd64     = `{"os":"linux","architecture":"amd64"}`
	arm64     = `{"os":"linux","architecture":"arm64"}`
	ociLayout = `{"imageLayoutVersion":"1.0.0"}`
	ociType   = "application/vnd.oci.image."
)

// manifestOf is an OCI manifest of a configuration and the layer "layer".
func manifestOf(config string) string {
	return fmt.Sprintf(`{"schemaVersion":2,"config":{"mediaType":"%sconfig.v1+json","digest":%q,"size":%d},"layers":[{"mediaType":"%slayer.v1.tar","digest":%q,"size":5}]}`,
		ociType, digest(config), len(config), ociType, digest("layer"))
}

// entryOf is a descriptor of a manifest or index.
func entryOf(content, kind, more string) string {
	return fmt.Sprintf(`{"mediaType":"%s%s.v1+json","digest":%q,"size":%d%s}`, ociType, kind, digest(content), len(content), more)
}

func indexOf(entries ...string) string {
	return `{"schemaVersion":2,"manifests":[` + strings.Join(entries, ",") + `]}`
}

func TestReadArchive(t *testing.T) {
	ours, id := built(t, "holdfast.local/a:1", "holdfast.local/b:2")
	two := []Named{{"holdfast.local/a:1", "holdfast.local/a:1", []string{id}}, {"holdfast.local/b:2", "holdfast.local/b:2", []string{id}}}
	oci := func(annotations string, config string) []byte {
		m := manifestOf(config)
		return pack(t, "oci-layout", ociLayout, "index.json", indexOf(entryOf(m, "manifest", annotations)), blobOf(m), m, blobOf(config), config, blobOf("layer"), "layer")
	}
	docker := func(manifest string, more ...string) []byte {
		return pack(t, append([]string{"c.json", amd64, "l/layer.tar", "layer", "manifest.json", manifest}, more...)...)
	}
	both := indexOf(
		entryOf(manifestOf(arm64), "manifest", `,"platform":{"os":"linux","architecture":"arm64"}`),
		entryOf(manifestOf(amd64), "manifest", `,"platform":{"os":"linux","architecture":"amd64"}`),
		entryOf("attested", "manifest", `,"platform":{"os":"unknown","architecture":"unknown"}`))
	for name, test := range map[string]struct {
		data    []byte
		want    []Named
		unnamed int
		is      error
		wantErr string
	}{
		"ours":           {data: ours, want: two},
		"ours, zipped":   {data: zipped(t, ours), want: two},
		"short OCI name": {data: oci(`,"annotations":{"org.opencontainers.image.ref.name":"app:1"}`, amd64), want: []Named{{"docker.io/library/app:1", "app:1", []string{digest(amd64)}}}},
		"containerd's name wins": {
			data: oci(`,"annotations":{"org.opencontainers.image.ref.name":"1","io.containerd.image.name":"reg.example/app:1"}`, amd64),
			want: []Named{{"reg.example/app:1", "reg.example/app:1", []string{digest(amd64)}}},
		},
		"only a tag":        {data: oci(`,"annotations":{"org.opencontainers.image.ref.name":"v1"}`, amd64), is: ErrNoName, wantErr: `only the tag "v1"`},
		"no annotation":     {data: oci("", amd64), is: ErrNoName},
		"name that is none": {data: oci(`,"annotations":{"io.containerd.image.name":"Reg/App:1"}`, amd64), wantErr: `the image name "Reg/App:1"`},
		"another processor": {data: oci(`,"annotations":{"io.containerd.image.name":"reg.example/app:1"}`, arm64), wantErr: "an image for linux/arm64, and none for this machine, linux/amd64"},

		"many processors": {
			data: pack(t, "oci-layout", ociLayout, "index.json", indexOf(entryOf(both, "index", `,"annotations":{"io.containerd.image.name":"reg.example/app:1"}`)),
				blobOf(both), both, blobOf(manifestOf(amd64)), manifestOf(amd64), blobOf(amd64), amd64, blobOf("layer"), "layer"),
			want: []Named{{"reg.example/app:1", "reg.example/app:1", []string{digest(amd64)}}},
		},
		"docker": {
			data: docker(`[{"Config":"c.json","RepoTags":["app:1","reg.example/app:1"],"Layers":["l/layer.tar"]},{"Config":"c.json","RepoTags":null,"Layers":[]}]`),
			want: []Named{{"docker.io/library/app:1", "app:1", []string{digest(amd64)}}, {"reg.example/app:1", "reg.example/app:1", []string{digest(amd64)}}}, unnamed: 1,
		},
		"docker, linked layer": {
			data: docker(`[{"Config":"c.json","RepoTags":["app:1"],"Layers":["m/layer.tar"]}]`, "m/layer.tar", "->../l/layer.tar"),
			want: []Named{{"docker.io/library/app:1", "app:1", []string{digest(amd64)}}},
		},
		"docker without names":     {data: docker(`[{"Config":"c.json","RepoTags":[],"Layers":["l/layer.tar"]}]`), is: ErrNoName},
		"docker, a layer is gone":  {data: docker(`[{"Config":"c.json","RepoTags":["app:1"],"Layers":["m/layer.tar"]}]`), is: ErrIncomplete},
		"docker, no configuration": {data: docker(`[{"Config":"d.json","RepoTags":["app:1"],"Layers":["l/layer.tar"]}]`), is: ErrIncomplete},
		"docker, no image":         {data: docker(`[]`), wantErr: "it holds no image"},
		"OCI, a layer is gone": {
			data: pack(t, "oci-layout", ociLayout, "index.json", indexOf(entryOf(manifestOf(amd64), "manifest", "")), blobOf(manifestOf(amd64)), manifestOf(amd64), blobOf(amd64), amd64), is: ErrIncomplete,
		},
		"empty":             {data: nil, is: ErrIncomplete},
		"cut":               {data: ours[:len(ours)/2], is: ErrIncomplete},
		"cut between files": {data: ours[:1024], is: ErrIncomplete},
		"zipped and cut":    {data: zipped(t, ours)[:200], is: ErrIncomplete},
		"text":              {data: []byte(strings.Repeat("hello ", 1000)), wantErr: "it is no tar file"},
		"another tar file":  {data: pack(t, "etc/passwd", "root"), is: ErrIncomplete, wantErr: "or no image archive"},
		"broken index":      {data: pack(t, "oci-layout", ociLayout, "index.json", "{"), wantErr: "index.json in it"},
		"index of text":     {data: pack(t, "oci-layout", ociLayout, "index.json", "x"), wantErr: "is no JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ReadArchive(bytes.NewReader(test.data), "amd64")
			if test.is != nil || test.wantErr != "" {
				if err == nil || test.is != nil && !errors.Is(err, test.is) || !strings.Contains(err.Error(), test.wantErr) {
					t.Errorf("got %+v, %v; want %v, %q", got, err, test.is, test.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(got, Archive{test.want, test.unnamed}); diff != "" {
				t.Errorf("got -, want +:\n%s", diff)
			}
		})
	}
}

// Whatever comes, what is returned can be used: names are whole.
func FuzzReadArchive(f *testing.F) {
	ours, _ := built(f, "holdfast.local/a:1")
	f.Add(ours)
	f.Add(ours[:700])
	f.Add(zipped(f, ours))
	f.Add(pack(f, "c.json", amd64, "manifest.json", `[{"Config":"c.json","RepoTags":["app"]}]`))
	f.Add(pack(f, "oci-layout", ociLayout, "index.json", indexOf(entryOf("x", "manifest", ""))))
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := ReadArchive(bytes.NewReader(data), "amd64")
		if err != nil {
			return
		}
		for _, n := range a.Images {
			ref, err := reference.ParseDockerRef(n.Ref)
			if err != nil || ref.String() != n.Ref || len(n.IDs) == 0 {
				t.Errorf("got %+v, %v", n, err)
			}
		}
	})
}
