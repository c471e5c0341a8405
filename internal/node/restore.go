package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/backup"
	"github.com/holdfast-dev/holdfast/internal/instance"
	"github.com/holdfast-dev/holdfast/internal/localapi"
)

// A Restoration says what to put back, and where.
type Restoration struct {
	RootDir     string // default: /var/lib/holdfast
	File        string // the backup
	NewIdentity bool   // take another ID and subnet than the backup's

	Progress func(step string)
}

// Restored tells what a restore did.
type Restored struct {
	Index backup.Index
	ID    string // of the node; "" if its first start chooses one
	Aside string // where what was replaced is; "" if there was nothing
}

// ErrIdentityInUse is returned where another node on this machine has the
// backup's identity.
var ErrIdentityInUse = errors.New("another node on this machine has this identity")

// Restore puts a backup into a root folder that is empty, or whose node does
// not run. Until everything is read, compared with its checksums and built,
// nothing that is there is touched; then all of it is replaced or nothing.
func Restore(ctx context.Context, r Restoration) (done Restored, err error) {
	root, release, err := lockRoot(r.RootDir)
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, release()) }()
	stage, err := backup.NewStage(root)
	if err != nil {
		return done, err
	}
	r.Progress("reading " + r.File)
	if done.Index, err = backup.Extract(r.File, stage.Path()); err == nil && done.Index.StoreFormat > localapi.StoreFormat {
		err = fmt.Errorf("%w: format %d, this program reads up to %d: restore it with that version, %s",
			localapi.ErrNewerStore, done.Index.StoreFormat, localapi.StoreFormat, done.Index.Holdfast)
	}
	if err == nil {
		done.ID, err = chooseIdentity(stage, root, r.NewIdentity)
	}
	if err == nil {
		err = settleIn(stage, root)
	}
	if err == nil {
		r.Progress("building the store")
		err = buildStore(ctx, stage)
	}
	if err != nil {
		return done, errors.Join(err, stage.Discard())
	}
	r.Progress("replacing what is in " + root)
	now := time.Now()
	aside, err := stage.Commit(slices.Concat([]string{backupInstance, "etcd", backupManifests}, backupFolders), now)
	if _, missing := os.Stat(aside); missing == nil {
		done.Aside = aside
	}
	return done, err
}

// EmptyStore moves the store of a node that does not run out of the way, and
// returns where it is then: the next start makes an empty one.
func EmptyStore(in *instance.Instance) (aside string, err error) {
	root, release, err := lockRoot(in.Root)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, release()) }()
	if _, err := os.Stat(in.Path("etcd")); err != nil {
		return "", fmt.Errorf("there is no store to move away: %w", err)
	}
	return backup.Aside(root, "etcd", time.Now())
}

// lockRoot makes the root folder where there is none, takes it for this
// process, and ends a restore that was killed when it was nearly done.
func lockRoot(root string) (abs string, release func() error, err error) {
	if abs, err = filepath.Abs(root); err != nil {
		return "", nil, fmt.Errorf("root folder: %w", err)
	}
	if err := os.MkdirAll(abs, 0o755); err != nil {
		return "", nil, fmt.Errorf("make the root folder: %w", err)
	}
	release, err = (&instance.Instance{Root: abs}).Lock()
	if errors.Is(err, instance.ErrRunning) {
		err = fmt.Errorf("%w: stop it first, with \"holdfast down\"", err)
	}
	if err != nil {
		return "", nil, err
	}
	if err := backup.Finish(abs); err != nil {
		return "", nil, errors.Join(err, release())
	}
	return abs, release, nil
}

// chooseIdentity decides which identity the node has. One that the root folder
// has already stays: the bridge and the containers of that node are there by
// its name. It takes the backup's off the stage where that does not count.
func chooseIdentity(stage *backup.Stage, root string, another bool) (id string, err error) {
	saved, err := instance.Open(stage.Path())
	if err != nil {
		return "", err
	}
	here, err := instance.Open(root)
	switch {
	case err == nil:
		return here.ID, os.Remove(stage.Path(backupInstance))
	case !errors.Is(err, instance.ErrNone):
		return "", err
	case another:
		return "", os.Remove(stage.Path(backupInstance))
	}
	others, err := instance.DefaultRegister.Others(root)
	if err != nil {
		return "", err
	}
	for _, other := range others {
		if other.ID == saved.ID {
			return "", fmt.Errorf("%w: the one in %s (uninstall that, or restore with --new-identity)", ErrIdentityInUse, other.Root)
		}
	}
	return saved.ID, nil
}

// settleIn makes the settings on the stage those of a node in root, where the
// manifests are restored to, wherever they came from.
func settleIn(stage *backup.Stage, root string) error {
	staged, here := &instance.Instance{Root: stage.Path()}, &instance.Instance{Root: root}
	last, err := loadSaved(staged)
	if err != nil {
		return err
	}
	if last.RootDir != "" {
		last.RootDir, last.ManifestDir = root, here.ManifestDir()
		if err := save(staged, last); err != nil {
			return err
		}
	}
	// Images are not in a backup: what is in the folder of archives is imported anew.
	if err := os.Remove(stage.Path("state", "images.json")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// Without it the folder that is there would stay, beside what was restored.
	return os.MkdirAll(stage.Path(backupManifests), 0o755)
}

// buildStore makes the store's folder of the snapshot on the stage.
func buildStore(ctx context.Context, stage *backup.Stage) error {
	snapshot := stage.Path(backupStore)
	if err := localapi.BuildStore(ctx, stage.Path("etcd"), snapshot, time.Now(), slog.New(slog.DiscardHandler)); err != nil {
		return err
	}
	return os.Remove(snapshot)
}

// finishRestore ends a restore that was killed when it was nearly done, and
// returns the instance that is there then.
func finishRestore(in *instance.Instance) (*instance.Instance, error) {
	if err := backup.Finish(in.Root); err != nil {
		return in, err
	}
	return instance.Open(in.Root)
}
