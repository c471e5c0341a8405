package conformance

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/google/go-containerregistry/pkg/registry"
	imagev1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/holdfast-dev/holdfast/internal/ociimage"
)

// content is what an archive of one image holds.
type content struct {
	blobs    map[string][]byte // by the hex of their digest, manifests among them
	manifest imagev1.Descriptor
}

func contentOf(image ociimage.Image) (content, error) {
	var archive bytes.Buffer
	if _, err := ociimage.Build(&archive, image); err != nil {
		return content{}, err
	}
	c := content{blobs: map[string][]byte{}}
	var index imagev1.IndexManifest
	for in := tar.NewReader(&archive); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return content{}, err
		}
		data, err := io.ReadAll(in)
		if err != nil {
			return content{}, err
		}
		if hex, ok := strings.CutPrefix(h.Name, "blobs/sha256/"); ok {
			c.blobs[hex] = data
		}
		if h.Name == "index.json" {
			if err := json.Unmarshal(data, &index); err != nil {
				return content{}, err
			}
		}
	}
	if len(index.Manifests) == 0 {
		return content{}, fmt.Errorf("image %s has no manifest", image.Refs[0])
	}
	c.manifest = index.Manifests[0]
	return c, nil
}

// Mirror serves the images, as upstream's registry does. Close it in the end.
func Mirror(ctx context.Context, images []ociimage.Image) (*httptest.Server, error) {
	handler := registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)))
	for _, image := range images {
		c, err := contentOf(image)
		if err != nil {
			return nil, err
		}
		for _, ref := range image.Refs {
			if err := push(ctx, handler, ref, c); err != nil {
				return nil, fmt.Errorf("serve %s: %w", ref, err)
			}
		}
	}
	return httptest.NewServer(handler), nil
}

func push(ctx context.Context, into http.Handler, ref string, c content) error {
	_, name, _ := strings.Cut(ref, "/")
	name, tag, _ := strings.Cut(name, ":")
	send := func(method, path, mediaType string, body []byte) error {
		request := httptest.NewRequestWithContext(ctx, method, "/v2/"+name+path, bytes.NewReader(body))
		request.Header.Set("Content-Type", mediaType)
		answer := httptest.NewRecorder()
		into.ServeHTTP(answer, request)
		if answer.Code != http.StatusCreated {
			return fmt.Errorf("%s %s: %d %s", method, path, answer.Code, answer.Body)
		}
		return nil
	}
	for hex, data := range c.blobs {
		if err := send(http.MethodPost, "/blobs/uploads/?digest=sha256:"+hex, "application/octet-stream", data); err != nil {
			return err
		}
	}
	return send(http.MethodPut, "/manifests/"+tag, string(c.manifest.MediaType), c.blobs[c.manifest.Digest.Hex])
}

// registryFiles returns what agnhost's own registry serves an image from, in the
// way that upstream's image has it.
func registryFiles(name, tag string, image ociimage.Image) (map[string]ociimage.File, error) {
	c, err := contentOf(image)
	if err != nil {
		return nil, err
	}
	dir := "/var/registry/" + name
	files := map[string]ociimage.File{
		dir + "/manifests/" + tag: text(0o644, c.manifest.Digest.String()+"\n"),
	}
	for hex, data := range c.blobs {
		kind := "blobs"
		if hex == c.manifest.Digest.Hex {
			kind = "manifests"
		}
		files[dir+"/"+kind+"/sha256/"+hex[:2]+"/"+hex+"/data"] = ociimage.File{Mode: 0o644, Content: data}
	}
	return files, nil
}
