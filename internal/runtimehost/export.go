package runtimehost

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/holdfast-dev/holdfast/internal/ociimage"
)

// ExportImage writes the pause or the demo image as an OCI archive, for a
// runtime that is not ours. runtimeDir is as in Config.
func ExportImage(w io.Writer, runtimeDir, name string) error {
	ref := map[string]string{"pause": PauseImage, "demo": DemoImage}[name]
	if ref == "" {
		return fmt.Errorf("there is no image %q: choose pause or demo", name)
	}
	program, err := os.ReadFile(filepath.Join(runtimeDir, "demo"))
	if err != nil {
		return err
	}
	for _, img := range bundledImages(program) {
		if img.Refs[0] == ref {
			_, err = ociimage.Build(w, img)
		}
	}
	return err
}
