package imagedir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/manifest"
	"github.com/holdfast-dev/holdfast/internal/ociimage"
	"github.com/holdfast-dev/holdfast/internal/retry"
)

// load imports a file, or notes why not.
func (d *Dir) load(ctx context.Context, file string) {
	s := d.files[file]
	f, now, err := openLook(filepath.Join(d.cfg.Dir, file))
	if err == nil {
		defer f.Close()
		if !now.same(s.look) { // it has just changed: it must settle again
			d.files[file] = sight{look: now, since: time.Now()}
			return
		}
		d.publish(file)
		err = d.bring(ctx, file, f, now)
	}
	if ctx.Err() != nil {
		return
	}
	switch {
	case err == nil:
		s.failures, s.again = 0, time.Time{}
	case errors.Is(err, ociimage.ErrIncomplete) && s.failures == 0:
		// Perhaps the copy has only paused: it is not judged yet.
		s.failures, s.again, err = 1, time.Now().Add(patience), nil
	case errors.Is(err, errRuntime):
		s.failures++
		s.again = time.Now().Add(retry.Pause(s.failures, firstRetry, maxRetry))
	default:
		s.failures, s.again = s.failures+1, time.Time{}
	}
	d.files[file] = s
	d.judge(file, err, hint(err))
	d.publish("")
}

func openLook(path string) (*os.File, look, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, look{}, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, look{}, errors.Join(err, f.Close())
	}
	return f, look{info.Size(), info.ModTime()}, nil
}

// errRuntime is returned when it was the runtime that did not take an archive.
var errRuntime = errors.New("the runtime did not take it")

// A takenError is returned when another archive has given a name to another image.
type takenError struct{ other, ref string }

func (e *takenError) Error() string {
	return fmt.Sprintf("it names %s, which %s names too, for another image, and that one is in force", e.ref, e.other)
}

// bring reads an archive, has it imported and notes that it was.
func (d *Dir) bring(ctx context.Context, file string, f *os.File, now look) error {
	began := time.Now()
	archive, err := ociimage.ReadArchive(stopped{ctx, f}, "")
	if err != nil {
		return err
	}
	if other, ref := owner(d.records, file, archive.Images); other != "" {
		return &takenError{other, ref}
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := d.cfg.Runtime.Import(ctx, f, archive.Images); err != nil {
		return fmt.Errorf("%w: %w", errRuntime, err)
	}
	r := record{look: now}
	var refs []string
	for _, img := range archive.Images {
		id, _, err := d.cfg.Runtime.Image(ctx, img.Ref)
		if err != nil {
			return fmt.Errorf("%w: %w", errRuntime, err)
		}
		r.Images = append(r.Images, image{img.Ref, id})
		refs = append(refs, img.Ref)
	}
	before := d.records[file].Images
	d.records[file] = r
	d.unpin(ctx, before)
	d.log.Info("images are imported", "file", file, "images", strings.Join(refs, " "), "took", time.Since(began).Round(time.Millisecond))
	if archive.Unnamed > 0 {
		d.log.Warn("an archive holds images without a full name, which no pod can use", "file", file, "count", archive.Unnamed)
	}
	d.cfg.Imported(refs)
	return nil
}

// stopped reads and seeks until ctx is done: a big archive takes long.
type stopped struct {
	ctx context.Context //nolint:containedctx // a reader has no other way to be stopped
	f   io.ReadSeeker
}

func (s stopped) Read(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	return s.f.Read(p)
}

func (s stopped) Seek(offset int64, whence int) (int64, error) { return s.f.Seek(offset, whence) }

// forget lets the images of a file that is gone be collected.
func (d *Dir) forget(ctx context.Context, file string) {
	before := d.records[file].Images
	delete(d.records, file)
	d.unpin(ctx, before)
	d.log.Info("an image archive is gone: its images stay, and may be collected when nothing uses them", "file", file)
	for name, s := range d.files { // who wanted one of its names gets another try
		s.failures, s.again = 0, time.Time{}
		d.files[name] = s
	}
}

// unpin lets images be collected whose names no archive gives any more.
func (d *Dir) unpin(ctx context.Context, images []image) {
	for _, ref := range unclaimed(images, d.records) {
		id, pinned, err := d.cfg.Runtime.Image(ctx, ref)
		if err == nil && id != "" && pinned {
			err = d.cfg.Runtime.Pin(ctx, ref, false)
		}
		if err != nil {
			d.log.Warn("an image stays pinned", "image", ref, "err", err)
		}
	}
}

// check sees to it that the runtime has the images of a file, pinned. One that
// was pulled since under the same name stays: the later act counts.
func (d *Dir) check(ctx context.Context, file string) {
	for _, img := range d.records[file].Images {
		id, pinned, err := d.cfg.Runtime.Image(ctx, img.Ref)
		switch {
		case err != nil:
			d.log.Debug("check an imported image", "image", img.Ref, "err", err)
			return // all of it at the next check
		case id == "":
			d.log.Warn("an image of an archive was removed: it is imported again", "image", img.Ref, "file", file)
			d.load(ctx, file)
			return
		case !pinned:
			if err := d.cfg.Runtime.Pin(ctx, img.Ref, true); err != nil {
				d.log.Warn("an image could not be pinned", "image", img.Ref, "err", err)
			}
		}
	}
}

// judge notes what is wrong with a file, or that nothing is.
func (d *Dir) judge(file string, err error, hint string) {
	old, had := d.faults[file]
	if err == nil {
		if had {
			d.log.Info("an image archive is good again, or gone", "fault", old.String())
			delete(d.faults, file)
		}
		return
	}
	f := manifest.Fault{
		File: filepath.Join(filepath.Base(d.cfg.Dir), file), Reason: manifest.ReasonImageArchive, Message: err.Error(), Hint: hint, Since: time.Now(),
	}
	if had && old.Same(f) {
		return
	}
	d.faults[file] = f
	d.log.Warn("an image archive is not good; images that came from it stay", "fault", f.String())
}

// hint says what to do about an error.
func hint(err error) string {
	var taken *takenError
	switch {
	case err == nil:
		return ""
	case errors.Is(err, ociimage.ErrNoName):
		return "save it by its full name, such as docker save registry.example/app:1, or name it: skopeo copy docker-archive:OLD.tar docker-archive:NEW.tar:registry.example/app:1"
	case errors.Is(err, ociimage.ErrIncomplete):
		return "copy it again; if it is still being copied, it is taken when that is done"
	case errors.As(err, &taken):
		return "remove one of the two, or save one under another name"
	case errors.Is(err, errRuntime):
		return "it is tried again; if the file is damaged, copy it again"
	default:
		return "save the image again with docker save, podman save or skopeo copy"
	}
}
