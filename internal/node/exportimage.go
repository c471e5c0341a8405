package node

import (
	"fmt"
	"io"

	"github.com/holdfast-dev/holdfast/internal/runtimehost"
)

// ExportImage writes the pause or the demo image as an OCI archive.
func ExportImage(w io.Writer, name string) error {
	dir, err := runtimehost.FindRuntimeDir()
	if err != nil {
		return err
	}
	if err := runtimehost.ExportImage(w, dir, name); err != nil {
		return fmt.Errorf("export an image: %w", err)
	}
	return nil
}
