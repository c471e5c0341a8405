// Package ociimage builds container images from files, without a container
// engine: one layer, written as an archive that is both an OCI image layout
// and what `docker save` writes, so that every runtime imports it. And it says
// what is in such an archive, whoever wrote it.
//
// It reads and writes nothing but what it is given. The same Image gives
// the same bytes, whenever and wherever it is built, so the image ID says
// whether an image that a runtime holds is up to date. All functions may be
// called at once.
package ociimage

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"runtime"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// An Image is what to build.
type Image struct {
	// Refs are the names of the image, each with its registry host and its
	// tag: holdfast.local/demo:latest. At least one.
	Refs []string
	// Files are the image's content by absolute, clean path. Folders above a
	// file are made as needed, mode 0755.
	Files map[string]File
	// Entrypoint, Cmd, Env ("NAME=value") and User ("65534", "1:1") are the
	// image's defaults, as in a Dockerfile.
	Entrypoint, Cmd, Env []string
	User                 string
	// Arch is the processor, in Go's words. Default: the running one.
	Arch string
}

// A File is one file, folder or symbolic link of an Image, owned by root.
type File struct {
	// Mode holds the permission bits. With fs.ModeDir it is a folder, with
	// fs.ModeSymlink a symbolic link.
	Mode fs.FileMode
	// Content is what the file holds, or where the link leads; a folder has none.
	Content []byte
}

// epoch is the time of everything in an image.
var epoch = time.Unix(0, 0).UTC()

// Build writes img to w and returns its ID, the digest of its configuration
// ("sha256:…"), which is the ID that a CRI runtime reports for it.
func Build(w io.Writer, img Image) (id string, err error) {
	if len(img.Refs) == 0 {
		return "", errors.New("build image: it has no name")
	}
	if img.Arch == "" {
		img.Arch = runtime.GOARCH
	}
	built, err := assemble(img)
	if err == nil {
		id, err = writeArchive(w, built, img.Refs)
	}
	if err != nil {
		return "", fmt.Errorf("build image %s: %w", img.Refs[0], err)
	}
	return id, nil
}

// assemble makes the layer and the configuration.
func assemble(img Image) (v1.Image, error) {
	content, err := layer(img.Files)
	if err != nil {
		return nil, err
	}
	base := mutate.MediaType(mutate.ConfigMediaType(empty.Image, types.OCIConfigJSON), types.OCIManifestSchema1)
	// Not compressed: these images travel from one folder to another, once.
	built, err := mutate.Append(base, mutate.Addendum{
		Layer:     static.NewLayer(content, types.OCIUncompressedLayer),
		History:   v1.History{CreatedBy: "holdfast", Created: v1.Time{Time: epoch}},
		MediaType: types.OCIUncompressedLayer,
	})
	if err != nil {
		return nil, err
	}
	cfg, err := built.ConfigFile()
	if err != nil {
		return nil, err
	}
	cfg = cfg.DeepCopy()
	cfg.OS, cfg.Architecture = "linux", img.Arch
	cfg.Created = v1.Time{Time: epoch}
	cfg.Config = v1.Config{Entrypoint: img.Entrypoint, Cmd: img.Cmd, Env: img.Env, User: img.User, WorkingDir: "/"}
	return mutate.ConfigFile(built, cfg)
}

// layer writes files as a tar archive, in the order of their paths.
func layer(files map[string]File) ([]byte, error) {
	all, err := withFolders(files)
	if err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if err := writeEntry(tw, strings.TrimPrefix(name, "/"), all[name]); err != nil {
			return nil, err
		}
	}
	if err := tw.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// withFolders checks files and adds the folders above them.
func withFolders(files map[string]File) (map[string]File, error) {
	all := make(map[string]File, len(files))
	for name, f := range files {
		switch {
		case !path.IsAbs(name) || path.Clean(name) != name || name == "/":
			return nil, fmt.Errorf("path %q is not absolute and clean", name)
		case f.Mode&^(fs.ModePerm|fs.ModeDir|fs.ModeSymlink|fs.ModeSticky|fs.ModeSetuid|fs.ModeSetgid) != 0 || f.Mode.IsDir() && f.Mode&fs.ModeSymlink != 0:
			return nil, fmt.Errorf("path %q is neither a file nor a folder nor a link", name)
		case f.Mode.IsDir() && len(f.Content) > 0:
			return nil, fmt.Errorf("path %q is a folder and has content", name)
		case f.Mode&fs.ModeSymlink != 0 && len(f.Content) == 0:
			return nil, fmt.Errorf("path %q is a link to nowhere", name)
		}
		all[name] = f
	}
	for name := range files {
		for dir := path.Dir(name); dir != "/"; dir = path.Dir(dir) {
			if f, ok := all[dir]; !ok {
				all[dir] = File{Mode: fs.ModeDir | 0o755}
			} else if !f.Mode.IsDir() {
				return nil, fmt.Errorf("path %q lies below the file %q", name, dir)
			}
		}
	}
	return all, nil
}

func writeEntry(tw *tar.Writer, name string, f File) error {
	h := &tar.Header{
		Typeflag: tar.TypeReg,
		Name:     name,
		Mode:     int64(f.Mode.Perm()) | special(f.Mode),
		Size:     int64(len(f.Content)),
		ModTime:  epoch,
	}
	switch {
	case f.Mode.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
	case f.Mode&fs.ModeSymlink != 0:
		h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, string(f.Content), 0
		return tw.WriteHeader(h)
	}
	if err := tw.WriteHeader(h); err != nil {
		return err
	}
	_, err := tw.Write(f.Content)
	return err
}

// special returns the bits of mode above the permissions, as tar has them.
func special(mode fs.FileMode) int64 {
	var bits int64
	for from, to := range map[fs.FileMode]int64{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if mode&from != 0 {
			bits |= to
		}
	}
	return bits
}

// writeArchive writes built's blobs once, with an OCI index and a docker
// manifest that both point at them.
func writeArchive(w io.Writer, built v1.Image, refs []string) (id string, err error) {
	blobs, err := blobsOf(built)
	if err != nil {
		return "", err
	}
	index, err := ociIndex(built, refs)
	if err != nil {
		return "", err
	}
	docker, err := json.Marshal([]map[string]any{{
		"Config":   blobs[0].path,
		"RepoTags": refs,
		"Layers":   []string{blobs[2].path},
	}})
	if err != nil {
		return "", err
	}
	tw := tar.NewWriter(w)
	entries := []blob{
		{"index.json", index},
		{"manifest.json", docker},
		{"oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)},
	}
	for _, b := range slices.Concat(blobs, entries) {
		if err := writeEntry(tw, b.path, File{Mode: 0o644, Content: b.data}); err != nil {
			return "", err
		}
	}
	if err := tw.Close(); err != nil {
		return "", err
	}
	name, err := built.ConfigName()
	return name.String(), err
}

// A blob is one file of the archive.
type blob struct {
	path string
	data []byte
}

// blobsOf returns configuration, manifest and layer, in that order.
func blobsOf(built v1.Image) ([]blob, error) {
	cfgName, err := built.ConfigName()
	if err != nil {
		return nil, err
	}
	cfg, err := built.RawConfigFile()
	if err != nil {
		return nil, err
	}
	digest, err := built.Digest()
	if err != nil {
		return nil, err
	}
	manifest, err := built.RawManifest()
	if err != nil {
		return nil, err
	}
	layers, err := built.Layers()
	if err != nil {
		return nil, err
	}
	layerName, err := layers[0].Digest()
	if err != nil {
		return nil, err
	}
	rc, err := layers[0].Uncompressed()
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(rc)
	if err := errors.Join(err, rc.Close()); err != nil {
		return nil, err
	}
	return []blob{{blobPath(cfgName), cfg}, {blobPath(digest), manifest}, {blobPath(layerName), content}}, nil
}

func blobPath(h v1.Hash) string { return path.Join("blobs", h.Algorithm, h.Hex) }

// ociIndex names the manifest once for each reference. The annotation is the
// one by which containerd finds the full name.
func ociIndex(built v1.Image, refs []string) ([]byte, error) {
	digest, err := built.Digest()
	if err != nil {
		return nil, err
	}
	size, err := built.Size()
	if err != nil {
		return nil, err
	}
	cfg, err := built.ConfigFile()
	if err != nil {
		return nil, err
	}
	index := v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex}
	for _, ref := range refs {
		index.Manifests = append(index.Manifests, v1.Descriptor{
			MediaType: types.OCIManifestSchema1,
			Digest:    digest,
			Size:      size,
			Platform:  &v1.Platform{OS: cfg.OS, Architecture: cfg.Architecture},
			Annotations: map[string]string{
				"io.containerd.image.name":          ref,
				"org.opencontainers.image.ref.name": ref,
			},
		})
	}
	return json.Marshal(index)
}
