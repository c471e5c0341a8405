package conformance

import (
	"net/http"
	"path"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/ociimage"
)

func box(ref string) ociimage.Image {
	return ociimage.Image{Refs: []string{ref}, Files: map[string]ociimage.File{"/a": text(0o644, "b")}}
}

// TestMirror checks that what the mirror serves is what an image names.
func TestMirror(t *testing.T) {
	image := box("registry.k8s.io/e2e-test-images/box:1")
	server, err := Mirror(t.Context(), []ociimage.Image{image})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	c, err := contentOf(image)
	if err != nil {
		t.Fatal(err)
	}
	for at, want := range map[string]int{
		"manifests/1": http.StatusOK, "manifests/2": http.StatusNotFound, "blobs/" + c.manifest.Digest.String(): http.StatusOK,
	} {
		answer, err := http.Get(server.URL + "/v2/e2e-test-images/box/" + at)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("%s: got %d, want %d", at, answer.StatusCode, want)
		}
	}
}

// TestRegistryFiles checks the layout that agnhost's registry reads.
func TestRegistryFiles(t *testing.T) {
	files, err := registryFiles("box", "test", box("a.example/box:1"))
	if err != nil {
		t.Fatal(err)
	}
	digest := strings.TrimSpace(string(files["/var/registry/box/manifests/test"].Content))
	hex := strings.TrimPrefix(digest, "sha256:")
	if _, ok := files[path.Join("/var/registry/box/manifests/sha256", hex[:2], hex, "data")]; !ok {
		t.Errorf("the tag leads to %s, which is not there", digest)
	}
	if len(files) != 4 { // tag, manifest, configuration, layer
		t.Errorf("got %d files, want 4", len(files))
	}
}
