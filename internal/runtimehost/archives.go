package runtimehost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/holdfast-dev/holdfast/internal/ociimage"
)

const (
	// importTimeout is for gigabytes from a slow disk to a slow disk.
	importTimeout = 30 * time.Minute
	// shownTimeout is for the CRI part to hear of an image that containerd has.
	shownTimeout = 30 * time.Second
	// pinLabel keeps an image from being collected as unused: a machine without
	// a registry could never get it again.
	pinLabel = "io.cri-containerd.pinned"
	pinValue = "pinned"
)

// Image returns the ID of the image that the runtime has under ref, and whether
// it is pinned; an empty ID if there is none. It may be called at any time, as
// Import and Pin may; before Ready they fail.
func (h *Host) Image(ctx context.Context, ref string) (id string, pinned bool, err error) {
	err = h.withImages(func(client runtimeapi.ImageServiceClient) error {
		id, pinned, err = image(ctx, client, ref)
		return err
	})
	return id, pinned, err
}

// Import imports an archive, which holds the given images, and pins them. An
// image that had one of their names loses it.
func (h *Host) Import(ctx context.Context, archive io.Reader, images []ociimage.Named) error {
	return h.withImages(func(client runtimeapi.ImageServiceClient) error {
		return h.importArchive(ctx, client, archive, images)
	})
}

// Pin says whether the image under ref may be collected as unused.
func (h *Host) Pin(ctx context.Context, ref string, pinned bool) error {
	value := "" // clears it
	if pinned {
		value = pinValue
	}
	return h.ctr(ctx, nil, "images", "label", ref, pinLabel+"="+value)
}

// withImages calls f with a connection to the runtime.
func (h *Host) withImages(f func(runtimeapi.ImageServiceClient) error) error {
	conn, err := h.connect()
	if err != nil {
		return err
	}
	return errors.Join(f(runtimeapi.NewImageServiceClient(conn)), conn.Close())
}

func (h *Host) importArchive(ctx context.Context, client runtimeapi.ImageServiceClient, archive io.Reader, images []ociimage.Named) error {
	ctx, cancel := context.WithTimeoutCause(ctx, importTimeout, fmt.Errorf("not done after %s", importTimeout))
	defer cancel()
	if err := h.ctr(ctx, archive, "images", "import", "--label", pinLabel+"="+pinValue, "-"); err != nil {
		return err
	}
	// containerd does not sync what it unpacks here, and goes by its record for
	// ever: after a power cut the layers' files would be empty. (Its own switch,
	// import --local --sync-fs, records an image before it unpacks it.)
	if err := syncDisk(h.cfg.RootDir); err != nil {
		return err
	}
	for _, img := range images {
		if img.Ref == img.Written {
			continue
		}
		// containerd takes a short name as it is; the kubelet asks for the whole.
		if err := h.ctr(ctx, nil, "images", "tag", "--force", img.Written, img.Ref); err != nil {
			return err
		}
		if err := h.Pin(ctx, img.Ref, true); err != nil {
			return err
		}
		if err := h.ctr(ctx, nil, "images", "rm", img.Written); err != nil {
			return err
		}
	}
	return awaitImages(ctx, client, images)
}

// awaitImages returns when the runtime shows the images, pinned: its CRI part
// learns of them by events.
func awaitImages(ctx context.Context, client runtimeapi.ImageServiceClient, images []ociimage.Named) error {
	ctx, cancel := context.WithTimeoutCause(ctx, shownTimeout, fmt.Errorf("not within %s", shownTimeout))
	defer cancel()
	tick := time.NewTicker(pollPeriod)
	defer tick.Stop()
	for _, img := range images {
		for {
			id, pinned, err := image(ctx, client, img.Ref)
			if err != nil {
				return err
			}
			if pinned && slices.Contains(img.IDs, id) {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("the runtime does not show the image %s: %w", img.Ref, context.Cause(ctx))
			case <-tick.C:
			}
		}
	}
	return nil
}

// syncDisk writes out everything that waits for the disk of a folder.
func syncDisk(dir string) (err error) {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return fmt.Errorf("write %s to its disk: %w", dir, err)
	}
	return nil
}
