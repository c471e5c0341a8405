package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfast-dev/holdfast/internal/backup"
	"github.com/holdfast-dev/holdfast/internal/control"
	"github.com/holdfast-dev/holdfast/internal/instance"
	"github.com/holdfast-dev/holdfast/internal/localapi"
	"github.com/holdfast-dev/holdfast/internal/version"
)

// What a backup holds, below the root folder.
const (
	backupStore     = "store.db" // a snapshot; on the disk it is a folder of etcd's
	backupInstance  = "instance.json"
	backupManifests = "manifests"
)

// backupFolders are the folders that go into a backup as they are: what nobody
// can make again. Images, containers, volumes and logs do not.
var backupFolders = []string{"pki", "state", filepath.Join("containerd", "certs.d"), filepath.Join("kubelet", "seccomp")}

// Backup writes a backup of the node to file, whether the node runs or not. It
// returns what it left out, and why.
func Backup(ctx context.Context, in *instance.Instance, file string, step func(string)) (notes []string, err error) {
	last, err := loadSaved(in)
	if err != nil {
		return nil, err
	}
	step("copying the store")
	snapshot, err := os.CreateTemp(filepath.Dir(file), ".tmp-store-*") // mode 0600
	if err != nil {
		return nil, fmt.Errorf("copy the store: %w", err)
	}
	defer func() { err = errors.Join(err, os.Remove(snapshot.Name())) }()
	if err := errors.Join(copyStore(ctx, in, snapshot), snapshot.Close()); err != nil {
		return nil, err
	}
	if err := localapi.CheckSnapshot(snapshot.Name()); err != nil {
		return nil, err
	}
	step("reading manifests, certificates and settings")
	files := []backup.File{{Name: backupStore, Mode: 0o600, Path: snapshot.Name()}}
	manifests := last.ManifestDir
	if manifests == "" {
		manifests = in.ManifestDir()
	}
	for _, folder := range backupFolders {
		if files, notes, err = addFolder(files, notes, in.Path(folder), folder); err != nil {
			return nil, err
		}
	}
	if files, notes, err = addFolder(files, notes, manifests, backupManifests); err != nil {
		return nil, err
	}
	identity, err := os.ReadFile(in.Path(backupInstance))
	if err != nil {
		return nil, err
	}
	files = append(files, backup.File{Name: backupInstance, Mode: 0o644, Data: identity})
	step("writing " + file)
	return notes, backup.Write(file, backup.Index{
		Created: time.Now().UTC().Truncate(time.Second), Holdfast: version.Version, StoreFormat: localapi.StoreFormat,
		Node: last.NodeName, ID: in.ID, RootDir: in.Root, ManifestDir: manifests,
	}, files)
}

// copyStore writes a snapshot of the store: the process that runs the node
// does, or, where there is none, this one.
func copyStore(ctx context.Context, in *instance.Instance, w io.Writer) error {
	err := control.NewClient(in.ControlSocket()).Store(ctx, w)
	if !errors.Is(err, control.ErrNotRunning) {
		return err
	}
	release, err := in.Lock()
	if err != nil {
		return err
	}
	err = backup.Finish(in.Root)
	if err == nil {
		err = localapi.SnapshotStore(ctx, in.Path("etcd"), slog.New(slog.DiscardHandler), w)
	}
	return errors.Join(err, release())
}

// snapshot writes a snapshot of the store of this node, which runs.
func (n *node) snapshot(w io.Writer) error {
	select {
	case <-n.made:
		return n.api.Snapshot(w)
	default:
		return localapi.ErrNoStore
	}
}

// addFolder adds the files of the folder dir, as name. Links are followed, as
// those that read the folder do.
func addFolder(files []backup.File, notes []string, dir, name string) ([]backup.File, []string, error) {
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if path == dir && errors.Is(err, fs.ErrNotExist) {
			return fs.SkipAll
		}
		if err != nil {
			return err
		}
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			notes = append(notes, path+" leads nowhere")
			return nil
		case err != nil:
			return err
		case info.IsDir() && d.Type()&fs.ModeSymlink != 0:
			notes = append(notes, path+" is a link to a folder")
			return nil
		case info.IsDir():
			return nil
		case !info.Mode().IsRegular():
			notes = append(notes, path+" is no file")
			return nil
		}
		below, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files = append(files, backup.File{Name: filepath.ToSlash(filepath.Join(name, below)), Mode: info.Mode(), Data: append([]byte{}, data...)})
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", dir, err)
	}
	return files, notes, nil
}
