package logind

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfast-dev/holdfast/internal/atomicfile"
)

// How often it is looked whether logind has read its configuration, and how many
// times: 3 s in all, as upstream's node shutdown manager waits.
const (
	lookEvery = 100 * time.Millisecond
	looks     = 31
)

// Allow has logind wait for at least so long for who inhibits. If its
// configuration says less, a file is put beside it that says more, and logind
// reads it; several of us on a machine do not undo each other's, as the longest
// wait is the last in the order in which logind reads the files.
func (l *Login) Allow(ctx context.Context, wait time.Duration) error {
	now, err := l.wait(ctx)
	if err != nil || now >= wait {
		return err
	}
	if err := l.write(wait); err != nil {
		return fmt.Errorf("%w (%v of %v): %w", errTooShort, now, wait, err)
	}
	if err := l.reload(ctx); err != nil {
		return fmt.Errorf("%w (%v of %v): %w", errTooShort, now, wait, err)
	}
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for range looks {
		if now, err = l.wait(ctx); err != nil || now >= wait {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-look.C:
		}
	}
	return fmt.Errorf("%w (%v of %v): another file in %s says less; set InhibitDelayMaxSec there", errTooShort, now, wait, l.cfg.Dir)
}

// write replaces our file.
func (l *Login) write(wait time.Duration) error {
	if err := os.MkdirAll(l.cfg.Dir, 0o755); err != nil {
		return err
	}
	seconds := int64((wait + time.Second - 1) / time.Second)
	path := filepath.Join(l.cfg.Dir, fmt.Sprintf("99-zz-holdfast-%06d-%s.conf", seconds, l.cfg.Name))
	text := fmt.Sprintf("# Written by holdfast, so that pods can end in order when the machine goes down.\n[Login]\nInhibitDelayMaxSec=%d\n", seconds)
	if err := atomicfile.Write(path, []byte(text), 0o644); err != nil {
		return err
	}
	return remove(l.cfg, path)
}

// Withdraw removes what Allow has written, if anything. logind takes notice when
// it next reads its configuration.
func Withdraw(cfg Config) error {
	return remove(cfg.withDefaults(), "")
}

// remove removes our files, but for one.
func remove(cfg Config, but string) error {
	paths, err := filepath.Glob(filepath.Join(cfg.Dir, "99-zz-holdfast-??????-"+cfg.Name+".conf"))
	if err != nil {
		return err
	}
	var errs []error
	for _, path := range paths {
		if path == but {
			continue
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
