package critest

import (
	"slices"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func testImages(t *testing.T, s subject) {
	image, err := s.Image(t.Context(), demoImage)
	if err != nil || image == nil || image.GetId() == "" || !slices.Contains(image.GetRepoTags(), demoImage) {
		t.Errorf("image = %v, %v", image, err)
	}
	if byID, err := s.Image(t.Context(), image.GetId()); err != nil || byID.GetId() != image.GetId() {
		t.Errorf("image by its ID = %v, %v", byID, err)
	}
	if image, err := s.Image(t.Context(), "holdfast.local/nobody:v1"); err != nil || image != nil {
		t.Errorf("image that is not there = %v, %v", image, err)
	}
	all, err := s.Images(t.Context())
	if err != nil || !slices.ContainsFunc(all, func(i *runtimeapi.Image) bool { return i.GetId() == image.GetId() }) {
		t.Errorf("images = %v, %v", all, err)
	}
	// Port 1 of this machine refuses at once.
	if ref, err := s.Pull(t.Context(), "127.0.0.1:1/nobody:v1", nil, nil); err == nil {
		t.Errorf("pulled %q from nowhere", ref)
	}
	fs, err := s.ImageFS(t.Context())
	if err != nil || len(fs.GetImageFilesystems()) == 0 || fs.GetImageFilesystems()[0].GetFsId().GetMountpoint() == "" {
		t.Errorf("image filesystem = %v, %v", fs, err)
	}
}

// testImagesInUse holds that it can be seen which images must not be removed:
// those of containers, dead ones too, and that of sandboxes.
func testImagesInUse(t *testing.T, s subject) {
	p := newPod(t, s)
	id := p.create("exits0")
	image, err := s.Image(t.Context(), demoImage)
	if err != nil {
		t.Fatal(err)
	}
	names := slices.Concat([]string{image.GetId()}, image.GetRepoTags(), image.GetRepoDigests())
	isUsed := func() bool {
		used, err := s.UsedImages(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(used, func(ref string) bool { return slices.Contains(names, ref) })
	}
	if !isUsed() {
		t.Error("the image of a container is not in use")
	}
	if err := s.RemoveContainer(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if isUsed() {
		t.Error("the image is in use by a container that is gone")
	}
	if s.pause == "" {
		return
	}
	sandbox, err := s.SandboxImage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pause, err := s.Image(t.Context(), s.pause)
	if err != nil || sandbox != s.pause && !pause.GetPinned() {
		t.Errorf("sandboxes are of %q, and %v, %v is not pinned", sandbox, pause, err)
	}
}
