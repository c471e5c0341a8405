package runtimehost

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/holdfast-dev/holdfast/internal/ociimage"
)

const (
	// pollPeriod is how often containerd is asked whether it is ready.
	pollPeriod = 20 * time.Millisecond
)

// connect returns a connection to containerd, made when it is first used.
func (h *Host) connect() (*grpc.ClientConn, error) {
	return grpc.NewClient(h.Endpoint(),
		grpc.WithTransportCredentials(insecure.NewCredentials()), // a unix socket, root's alone
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: pollPeriod, Multiplier: 1.2, MaxDelay: 200 * time.Millisecond},
			MinConnectTimeout: time.Second,
		}),
	)
}

// awaitReady returns when the runtime says that it and its network are ready.
func awaitReady(ctx context.Context, conn *grpc.ClientConn, timeout time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("containerd is not ready after %s", timeout))
	defer cancel()
	client := runtimeapi.NewRuntimeServiceClient(conn)
	tick := time.NewTicker(pollPeriod)
	defer tick.Stop()
	for {
		resp, err := client.Status(ctx, &runtimeapi.StatusRequest{}, grpc.WaitForReady(true))
		switch {
		case status.Code(err) == codes.Unimplemented:
			return errNoCRI // for ever: services do not come later
		case err != nil:
		default:
			if err = unready(resp.GetStatus()); err == nil {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}

// errNoCRI is returned for a containerd whose CRI part could not be loaded, most
// often because overlayfs does not work on the filesystem below.
var errNoCRI = errors.New("containerd runs without its CRI part")

// unready says which condition of the runtime does not hold.
func unready(reported *runtimeapi.RuntimeStatus) error {
	if len(reported.GetConditions()) == 0 {
		return errors.New("the runtime reports no conditions")
	}
	var errs []error
	for _, c := range reported.GetConditions() {
		if (c.GetType() == runtimeapi.RuntimeReady || c.GetType() == runtimeapi.NetworkReady) && !c.GetStatus() {
			errs = append(errs, fmt.Errorf("%s is false: %s: %s", c.GetType(), c.GetReason(), c.GetMessage()))
		}
	}
	return errors.Join(errs...)
}

// ensureImages imports the pause and demo images unless the very same are there.
func (h *Host) ensureImages(ctx context.Context, conn *grpc.ClientConn) error {
	program, err := os.ReadFile(h.cfg.program("demo"))
	if err != nil {
		return err
	}
	for _, img := range bundledImages(program) {
		if err := h.ensureImage(ctx, runtimeapi.NewImageServiceClient(conn), img); err != nil {
			return fmt.Errorf("import %s: %w", img.Refs[0], err)
		}
	}
	return nil
}

// bundledImages are the images made of the demo program.
func bundledImages(program []byte) []ociimage.Image {
	folder := func(mode fs.FileMode) ociimage.File { return ociimage.File{Mode: fs.ModeDir | mode} }
	return []ociimage.Image{
		{
			Refs:       []string{PauseImage},
			Files:      map[string]ociimage.File{"/pause": {Mode: 0o755, Content: program}},
			Entrypoint: []string{"/pause", "pause"},
		},
		{
			Refs: []string{DemoImage},
			Files: map[string]ociimage.File{
				"/demo": {Mode: 0o755, Content: program},
				"/etc":  folder(0o755),
				"/tmp":  folder(0o777 | fs.ModeSticky),
			},
			Entrypoint: []string{"/demo"},
			Cmd:        []string{"serve"},
			Env:        []string{"PATH=/"},
		},
	}
}

func (h *Host) ensureImage(ctx context.Context, client runtimeapi.ImageServiceClient, img ociimage.Image) error {
	var archive bytes.Buffer
	id, err := ociimage.Build(&archive, img)
	if err != nil {
		return err
	}
	ref := img.Refs[0]
	if has, isPinned, err := image(ctx, client, ref); has == id && isPinned || err != nil {
		return err
	}
	h.cfg.Progress("importing the image " + ref)
	return h.importArchive(ctx, client, &archive, []ociimage.Named{{Ref: ref, Written: ref, IDs: []string{id}}})
}

// image returns the ID of the image that the runtime has under ref, and whether
// it is pinned; an empty ID if there is none.
func image(ctx context.Context, client runtimeapi.ImageServiceClient, ref string) (id string, pinned bool, err error) {
	resp, err := client.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: ref}})
	if err != nil {
		return "", false, err
	}
	return resp.GetImage().GetId(), resp.GetImage().GetPinned(), nil
}

// ctr runs containerd's own client in the namespace of CRI.
func (h *Host) ctr(ctx context.Context, stdin io.Reader, args ...string) error {
	args = append([]string{"--address", h.cfg.socket(), "--namespace", "k8s.io"}, args...)
	cmd := exec.CommandContext(ctx, h.cfg.program("ctr"), args...)
	cmd.Stdin = stdin
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(args[4:], " "), err, bytes.TrimSpace(out))
	}
	return nil
}
