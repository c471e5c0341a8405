package crifake

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

type imageService struct {
	runtimeapi.UnimplementedImageServiceServer
	fake *Fake
}

// AddImage puts an image on the machine. The edits are made before, such as
// to its user.
func (f *Fake) AddImage(ref string, edits ...func(*runtimeapi.Image)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	image := newImage(ref, edits)
	f.images[image.GetId()] = image
}

// OfferImage puts an image where it can be pulled from. What is not offered
// cannot be pulled.
func (f *Fake) OfferImage(ref string, edits ...func(*runtimeapi.Image)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.offered[normal(ref)] = newImage(ref, edits)
}

func newImage(ref string, edits []func(*runtimeapi.Image)) *runtimeapi.Image {
	full := normal(ref)
	sum := sha256.Sum256([]byte(full))
	id := "sha256:" + hex.EncodeToString(sum[:])
	repository, _, _ := strings.Cut(full, "@")
	if i := strings.LastIndex(repository, ":"); i > strings.LastIndex(repository, "/") {
		repository = repository[:i]
	}
	image := &runtimeapi.Image{
		Id:          id,
		RepoDigests: []string{repository + "@" + id},
		Size:        1 << 20,
		Spec:        &runtimeapi.ImageSpec{Image: full},
	}
	if !strings.Contains(full, "@") {
		image.RepoTags = []string{full}
	}
	for _, edit := range edits {
		edit(image)
	}
	return image
}

// normal writes the registry, the folder and the tag of a name that leaves
// them out, as runtimes do.
func normal(ref string) string {
	first, rest, ok := strings.Cut(ref, "/")
	switch {
	case !ok:
		ref = "docker.io/library/" + ref
	case !strings.ContainsAny(first, ".:") && first != "localhost":
		ref = "docker.io/" + first + "/" + rest
	}
	if !strings.Contains(ref, "@") && strings.LastIndex(ref, ":") < strings.LastIndex(ref, "/") {
		ref += ":latest"
	}
	return ref
}

// name is the image's first tag, or else its ID.
func name(image *runtimeapi.Image) string {
	if tags := image.GetRepoTags(); len(tags) > 0 {
		return tags[0]
	}
	return image.GetId()
}

// digest is the image's first name by digest, or else its ID.
func digest(image *runtimeapi.Image) string {
	if digests := image.GetRepoDigests(); len(digests) > 0 {
		return digests[0]
	}
	return image.GetId()
}

// imageLocked returns the image with that ID or name, or nil.
func (f *Fake) imageLocked(ref string) *runtimeapi.Image {
	if image := f.images[ref]; image != nil {
		return image
	}
	full := normal(ref)
	for _, image := range f.images {
		if slices.Contains(image.GetRepoTags(), full) || slices.Contains(image.GetRepoDigests(), full) {
			return image
		}
	}
	return nil
}

func (s *imageService) ListImages(_ context.Context, req *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse, error) {
	s.fake.mu.Lock()
	defer s.fake.mu.Unlock()
	if ref := req.GetFilter().GetImage().GetImage(); ref != "" {
		if image := s.fake.imageLocked(ref); image != nil {
			return &runtimeapi.ListImagesResponse{Images: []*runtimeapi.Image{proto.CloneOf(image)}}, nil
		}
		return &runtimeapi.ListImagesResponse{}, nil
	}
	got := &runtimeapi.ListImagesResponse{}
	for _, id := range slices.Sorted(maps.Keys(s.fake.images)) {
		got.Images = append(got.Images, proto.CloneOf(s.fake.images[id]))
	}
	return got, nil
}

func (s *imageService) ImageStatus(_ context.Context, req *runtimeapi.ImageStatusRequest) (*runtimeapi.ImageStatusResponse, error) {
	s.fake.mu.Lock()
	defer s.fake.mu.Unlock()
	return &runtimeapi.ImageStatusResponse{Image: proto.CloneOf(s.fake.imageLocked(req.GetImage().GetImage()))}, nil
}

func (s *imageService) PullImage(_ context.Context, req *runtimeapi.PullImageRequest) (*runtimeapi.PullImageResponse, error) {
	s.fake.mu.Lock()
	defer s.fake.mu.Unlock()
	ref := req.GetImage().GetImage()
	image := s.fake.offered[normal(ref)]
	if image == nil {
		return nil, status.Errorf(codes.NotFound, "pull and unpack image %q: not found", normal(ref))
	}
	s.fake.images[image.GetId()] = image
	return &runtimeapi.PullImageResponse{ImageRef: image.GetId()}, nil
}

func (s *imageService) RemoveImage(_ context.Context, req *runtimeapi.RemoveImageRequest) (*runtimeapi.RemoveImageResponse, error) {
	s.fake.mu.Lock()
	defer s.fake.mu.Unlock()
	if image := s.fake.imageLocked(req.GetImage().GetImage()); image != nil {
		delete(s.fake.images, image.GetId())
	}
	return &runtimeapi.RemoveImageResponse{}, nil
}

func (s *imageService) ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error) {
	s.fake.mu.Lock()
	defer s.fake.mu.Unlock()
	var used uint64
	for _, image := range s.fake.images {
		used += image.GetSize()
	}
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{{
		Timestamp:  time.Now().UnixNano(),
		FsId:       &runtimeapi.FilesystemIdentifier{Mountpoint: "/var/lib/crifake"},
		UsedBytes:  &runtimeapi.UInt64Value{Value: used},
		InodesUsed: &runtimeapi.UInt64Value{Value: uint64(len(s.fake.images))},
	}}}, nil
}
