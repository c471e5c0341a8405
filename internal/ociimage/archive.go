package ociimage

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"runtime"
	"slices"
	"strings"

	"github.com/distribution/reference"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// ErrIncomplete is returned for an archive of which a part is missing: it may
// still be on its way.
var ErrIncomplete = errors.New("the archive is incomplete")

// ErrNoName is returned for an archive none of whose images has a full name.
var ErrNoName = errors.New("no image in the archive has a full name")

// An Archive is what an image archive says of itself.
type Archive struct {
	// Images are sorted by Ref, each name once.
	Images []Named
	// Unnamed is how many more images the archive holds, by no name that a pod
	// could use.
	Unnamed int
}

// A Named is an image under one of its names.
type Named struct {
	// Ref is the full name: with the registry's host and the tag.
	Ref string
	// Written is the name as containerd will store it. It is not Ref where a
	// tool wrote a short one.
	Written string
	// IDs are the digests of the image's configurations for the wanted
	// processor, one of which will be the image's ID. Most often it is one;
	// variants of a processor make more.
	IDs []string
}

// ReadArchive reads what `docker save`, `podman save`, skopeo and others write:
// a docker archive or an OCI layout, as a tar file, compressed with gzip or
// not. Images for another processor than arch, in Go's words, do not count;
// empty is the running one. It checks that every file that the images name is
// there, and not that its content is right. The error may be ErrIncomplete or
// ErrNoName.
//
// Of the contents it reads no more than it needs, if r is not compressed.
func ReadArchive(r io.ReadSeeker, arch string) (Archive, error) {
	if arch == "" {
		arch = runtime.GOARCH
	}
	in, err := decompress(r)
	if err != nil {
		return Archive{}, incomplete(err)
	}
	c, err := readContents(in)
	if err != nil {
		return Archive{}, incomplete(err)
	}
	var tags []tagged
	switch {
	case c.has("oci-layout"): // containerd prefers it, too
		tags, err = c.oci(arch)
	case c.has("manifest.json"):
		tags, err = c.docker(arch)
	case len(c.sizes) == 0:
		err = fmt.Errorf("%w: it is empty", ErrIncomplete)
	default:
		// Docker writes manifest.json last.
		err = fmt.Errorf("%w, or no image archive: there is neither oci-layout nor manifest.json in it", ErrIncomplete)
	}
	if err != nil {
		return Archive{}, err
	}
	return named(tags)
}

// decompress returns what r holds.
func decompress(r io.ReadSeeker) (io.Reader, error) {
	var magic [2]byte
	n, err := io.ReadFull(r, magic[:])
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, err
	}
	if _, err := r.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	if n == 2 && magic == [2]byte{0x1f, 0x8b} {
		return gzip.NewReader(bufio.NewReaderSize(r, 1<<20))
	}
	return r, nil
}

// incomplete says ErrIncomplete of what ends too early.
func incomplete(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: it ends in the middle", ErrIncomplete)
	}
	return err
}

const (
	maxJSON    = 4 << 20   // bytes of one document; manifests have a few thousand
	maxAllJSON = 64 << 20  // bytes of all that are kept
	maxEntries = 1_000_000 // of one archive
)

// contents is what a tar file holds: the size of each file, and the content of
// those that may be JSON.
type contents struct {
	sizes map[string]int64
	json  map[string][]byte
	links map[string]string
}

func readContents(r io.Reader) (*contents, error) {
	c := &contents{sizes: map[string]int64{}, json: map[string][]byte{}, links: map[string]string{}}
	left := maxAllJSON
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return c, nil
		}
		if errors.Is(err, tar.ErrHeader) {
			return nil, errors.New("it is no tar file, compressed with gzip or not")
		}
		if err != nil {
			return nil, err
		}
		if len(c.sizes)+len(c.links) > maxEntries {
			return nil, fmt.Errorf("it holds more than %d files", maxEntries)
		}
		name := path.Clean(h.Name)
		switch h.Typeflag {
		case tar.TypeSymlink:
			c.links[name] = path.Join(path.Dir(name), h.Linkname)
		case tar.TypeLink:
			c.links[name] = path.Clean(h.Linkname)
		case tar.TypeReg:
			c.sizes[name] = h.Size
			if h.Size > maxJSON || int(h.Size) > left {
				continue
			}
			data, err := readJSON(tr)
			if err != nil {
				return nil, err
			}
			if data != nil {
				left -= len(data)
				c.json[name] = data
			}
		}
	}
}

// readJSON reads a file if it begins as a document of JSON does.
func readJSON(r io.Reader) ([]byte, error) {
	var first [1]byte
	_, err := io.ReadFull(r, first[:])
	if errors.Is(err, io.EOF) {
		return nil, nil // an empty file
	}
	if err != nil || first[0] != '{' && first[0] != '[' {
		return nil, err
	}
	rest, err := io.ReadAll(r)
	return slices.Concat(first[:], rest), err
}

func (c *contents) has(name string) bool {
	if _, ok := c.sizes[name]; ok {
		return true
	}
	target, ok := c.links[name]
	if !ok {
		return false
	}
	_, ok = c.sizes[target]
	return ok
}

// decode reads the document of that name.
func (c *contents) decode(name string, into any) error {
	data, ok := c.json[name]
	if !ok {
		data, ok = c.json[c.links[name]]
	}
	switch {
	case !c.has(name):
		return fmt.Errorf("%w: %s is not in it", ErrIncomplete, name)
	case !ok:
		return fmt.Errorf("%s in it is no JSON", name)
	}
	if err := json.NewDecoder(bytes.NewReader(data)).Decode(into); err != nil {
		return fmt.Errorf("%s in it: %w", name, err)
	}
	return nil
}

// tagged is an image with its name as it stands in the archive; empty if there
// is none.
type tagged struct {
	name string
	ids  []string
}

// named gives the images the names that pods use.
func named(tags []tagged) (Archive, error) {
	byRef := map[string]Named{}
	var a Archive
	var bare string // a tag without a name, for the message
	for _, t := range tags {
		switch {
		case t.name == "":
			a.Unnamed++
			continue
		case !strings.ContainsAny(t.name, "/:@"):
			a.Unnamed++
			bare = t.name
			continue
		}
		ref, err := reference.ParseDockerRef(t.name)
		if err != nil {
			return Archive{}, fmt.Errorf("the image name %q in it: %w", t.name, err)
		}
		n := byRef[ref.String()]
		n.Ref, n.Written = ref.String(), t.name
		n.IDs = append(n.IDs, t.ids...)
		byRef[n.Ref] = n
	}
	for _, n := range byRef {
		a.Images = append(a.Images, n)
	}
	slices.SortFunc(a.Images, func(a, b Named) int { return strings.Compare(a.Ref, b.Ref) })
	switch {
	case len(a.Images) > 0:
		return a, nil
	case bare != "":
		return Archive{}, fmt.Errorf("%w: only the tag %q", ErrNoName, bare)
	default:
		return Archive{}, ErrNoName
	}
}

// docker reads what `docker save` wrote before it wrote OCI layouts.
func (c *contents) docker(arch string) ([]tagged, error) {
	var images []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	if err := c.decode("manifest.json", &images); err != nil {
		return nil, err
	}
	var all []tagged
	var others []string
	for _, img := range images {
		for _, layer := range img.Layers {
			if !c.has(path.Clean(layer)) {
				return nil, fmt.Errorf("%w: layer %s is not in it", ErrIncomplete, layer)
			}
		}
		id, platform, err := c.config(path.Clean(img.Config))
		if err != nil {
			return nil, err
		}
		if !fits(platform, arch) {
			others = append(others, platform.String())
			continue
		}
		if len(img.RepoTags) == 0 {
			all = append(all, tagged{})
		}
		for _, tag := range img.RepoTags {
			if !strings.ContainsAny(tag, "/:@") {
				tag += ":latest" // docker's names are never tags alone
			}
			all = append(all, tagged{tag, []string{id}})
		}
	}
	return all, nothing(all, others, arch)
}

// nothing returns why an archive holds no image for arch.
func nothing(found []tagged, others []string, arch string) error {
	switch {
	case len(found) > 0:
		return nil
	case len(others) == 0:
		return errors.New("it holds no image")
	default:
		slices.Sort(others)
		return fmt.Errorf("it holds an image for %s, and none for this machine, linux/%s", strings.Join(slices.Compact(others), ", "), arch)
	}
}

// config reads an image's configuration and returns the image's ID.
func (c *contents) config(name string) (id string, platform *v1.Platform, err error) {
	var cfg struct {
		OS, Architecture string
	}
	if err := c.decode(name, &cfg); err != nil {
		return "", nil, err
	}
	data, ok := c.json[name]
	if !ok {
		data = c.json[c.links[name]]
	}
	h, _, err := v1.SHA256(bytes.NewReader(data))
	return h.String(), &v1.Platform{OS: cfg.OS, Architecture: cfg.Architecture}, err
}

// fits reports whether an image for p runs here. One that does not say is taken
// at its word.
func fits(p *v1.Platform, arch string) bool {
	return (p.OS == "" || p.OS == "linux") && (p.Architecture == "" || p.Architecture == arch)
}

// The annotations that name an image of a layout. The first is containerd's,
// docker's and buildkit's, and whole; the second is OCI's, and often a tag alone.
var nameAnnotations = [...]string{"io.containerd.image.name", "org.opencontainers.image.ref.name"}

// oci reads an OCI layout.
func (c *contents) oci(arch string) ([]tagged, error) {
	var index v1.IndexManifest
	if err := c.decode("index.json", &index); err != nil {
		return nil, err
	}
	var all []tagged
	var others []string
	for _, d := range index.Manifests {
		found, err := c.resolve(d, arch, 0)
		if err != nil {
			return nil, err
		}
		if len(found.ids) == 0 {
			others = append(others, found.others...)
			continue
		}
		t := tagged{ids: found.ids}
		for _, key := range nameAnnotations {
			if t.name == "" {
				t.name = d.Annotations[key]
			}
		}
		all = append(all, t)
	}
	return all, nothing(all, others, arch)
}

// resolved is what a descriptor leads to.
type resolved struct {
	ids    []string // images that fit
	others []string // platforms of those that do not
}

// resolve follows a descriptor to images, through one index at most: deeper
// nesting is allowed by the format, and nobody writes it.
func (c *contents) resolve(d v1.Descriptor, arch string, depth int) (resolved, error) {
	blob := blobPath(d.Digest)
	if d.Platform != nil && d.Platform.OS != "" && !fits(d.Platform, arch) {
		if d.Platform.OS == "unknown" { // an attestation, no image
			return resolved{}, nil
		}
		return resolved{others: []string{d.Platform.String()}}, nil
	}
	switch {
	case d.MediaType.IsIndex() && depth == 0:
		var index v1.IndexManifest
		if err := c.decode(blob, &index); err != nil {
			return resolved{}, err
		}
		var all resolved
		for _, d := range index.Manifests {
			one, err := c.resolve(d, arch, depth+1)
			if err != nil {
				return resolved{}, err
			}
			all.ids, all.others = append(all.ids, one.ids...), append(all.others, one.others...)
		}
		return all, nil
	case d.MediaType.IsImage():
		return c.image(blob, arch)
	default:
		return resolved{}, nil
	}
}

// image reads an image's manifest, and looks for what that names.
func (c *contents) image(blob, arch string) (resolved, error) {
	var m v1.Manifest
	if err := c.decode(blob, &m); err != nil {
		return resolved{}, err
	}
	if !m.Config.MediaType.IsConfig() {
		return resolved{}, nil // an artifact, no image
	}
	id, platform, err := c.config(blobPath(m.Config.Digest))
	if err != nil {
		return resolved{}, err
	}
	if !fits(platform, arch) {
		return resolved{others: []string{platform.String()}}, nil
	}
	for _, l := range m.Layers {
		if size, ok := c.sizes[blobPath(l.Digest)]; !ok || size != l.Size {
			return resolved{}, fmt.Errorf("%w: layer %s is not in it", ErrIncomplete, l.Digest)
		}
	}
	return resolved{ids: []string{id}}, nil
}
