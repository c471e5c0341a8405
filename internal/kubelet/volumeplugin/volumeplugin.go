// Package volumeplugin makes and removes volumes on the machine: one file a
// kind, and beside them what they share, which is mounting, removing a tree and
// binding a part of a volume.
//
// It writes below the kubelet's folder and nowhere else, but for hostPath
// volumes of a type that says so, for the group of local PersistentVolumes and
// for the devices of those: a blank one is formatted, and a filesystem is checked
// before it is mounted.
// No operation follows a link that a pod could have planted, and no removal
// crosses a mount point: what a pod left mounted in its volume is unmounted, with all
// that it holds, and what is mounted elsewhere in a pod's folder keeps that. SetUp and
// TearDown may be repeated, also after a crash between any two of their steps.
//
// Calls for different pods may run at once; calls for one pod must not. System
// calls on a device or server that hangs do not return; a caller bounds what
// depends on them.
package volumeplugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/mount-utils"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

const dirMode = 0o750 // of the folders that lead to a volume: upstream's

// Config says where volumes go.
type Config struct {
	Dir    string // the kubelet's folder; must be absolute
	Log    *slog.Logger
	Events recorder // told when a volume takes long to set up; nil: nobody is
}

// recorder sends events about objects. It must not block.
type recorder interface {
	Eventf(object runtime.Object, eventType, reason, format string, args ...any)
}

// nobody is a recorder for a Host of which no one is told.
type nobody struct{}

func (nobody) Eventf(runtime.Object, string, string, string, ...any) {}

// A Host makes volumes on this machine.
type Host struct {
	layout  podvolumes.Layout
	log     *slog.Logger
	events  recorder
	mounter mount.Interface
	locks   locks
	checks  checks

	nfsPatience time.Duration // with a server, when an export is unmounted
}

// New makes a Host. It touches nothing yet.
func New(cfg Config) *Host {
	if cfg.Events == nil {
		cfg.Events = nobody{}
	}
	return &Host{layout: podvolumes.Layout(cfg.Dir), log: cfg.Log, events: cfg.Events, mounter: mount.NewWithoutSystemd(""), nfsPatience: nfsPatience}
}

// SetUp makes a volume, or brings one that is there up to date, and returns the
// path on the host that containers mount.
func (h *Host) SetUp(ctx context.Context, v *podvolumes.Volume) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if err := checkID(v.PodUID, v.ID); err != nil {
		return "", fmt.Errorf("set up %s: %w", podvolumes.Describe(v.Name), err)
	}
	dir := h.layout.Volume(v.PodUID, v.ID)
	var err error
	switch v.Kind {
	case podvolumes.EmptyDir:
		err = h.setUpEmptyDir(ctx, dir, v)
	case podvolumes.HostPath:
		dir, err = v.HostPath, setUpHostPath(v)
	case podvolumes.ConfigMap, podvolumes.Secret, podvolumes.Projected, podvolumes.DownwardAPI:
		err = h.setUpContent(dir, v)
	case podvolumes.NFS:
		err = h.setUpNFS(ctx, dir, v)
	case podvolumes.Local:
		if v.Block {
			err = h.setUpBlock(ctx, dir, v)
		} else {
			err = h.setUpLocal(ctx, dir, v)
		}
	default:
		err = fmt.Errorf("this version cannot mount volumes of kind %s", v.Kind)
	}
	if err != nil {
		return "", fmt.Errorf("set up %s: %w", podvolumes.Describe(v.Name), err)
	}
	return dir, nil
}

// TearDown unmounts a volume and removes its folder with what the pod wrote
// there. The data of a hostPath or local volume is not the pod's and stays, and so
// does what is in a mount that the pod left in the volume. No container of the pod
// may run. It is nil if the volume is gone already.
func (h *Host) TearDown(ctx context.Context, uid types.UID, id podvolumes.ID) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := checkID(uid, id); err != nil {
		return err
	}
	if id.Kind == podvolumes.HostPath {
		return nil
	}
	var err error
	if id.Block {
		err = h.tearDownBlock(uid, id)
	} else {
		dir := h.layout.Volume(uid, id)
		err = h.freeing(ctx, dir, func() error { return h.tearDown(ctx, dir, id) })
	}
	if err == nil {
		err = removeTree(ctx, filepath.Dir(h.layout.Ready(uid, id)))
	}
	if err != nil {
		return fmt.Errorf("tear down volume %s of kind %s: %w", id.Dir, id.Kind, err)
	}
	return nil
}

// tearDown unmounts a volume on dir and removes that.
func (h *Host) tearDown(ctx context.Context, dir string, id podvolumes.ID) error {
	var err error
	if id.Kind == podvolumes.NFS {
		err = unmountNFS(ctx, dir, h.nfsPatience)
	} else {
		err = unmount(dir)
	}
	if err != nil {
		return err
	}
	switch id.Kind {
	case podvolumes.Local:
		// While the pod's folder is there, the next process tries this again.
		if err := h.releaseDisk(ctx, id.Dir); err != nil {
			return err
		}
		return removeEmpty(dir)
	case podvolumes.NFS:
		return removeEmpty(dir)
	case podvolumes.EmptyDir:
		h.freeProject(dir)
		return removeTree(ctx, dir)
	default:
		return removeTree(ctx, dir)
	}
}

// RemovePod removes the folder of a pod whose volumes are gone. It refuses,
// and removes nothing more, where something is still mounted in it.
func (h *Host) RemovePod(ctx context.Context, uid types.UID) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := checkName(string(uid)); err != nil {
		return err
	}
	if err := removeTree(ctx, h.layout.Pod(uid)); err != nil {
		return fmt.Errorf("remove the folder of pod %s: %w", uid, err)
	}
	return nil
}

// checkID refuses names that would lead out of the pod's folder. The API's
// validation does so before; a volume found on disk has not seen it.
func checkID(uid types.UID, id podvolumes.ID) error {
	return errors.Join(checkName(string(uid)), checkName(string(id.Kind)), checkName(id.Dir))
}

func checkName(name string) error {
	if name == "" || name == "." || name == ".." || filepath.Base(name) != name {
		return fmt.Errorf("%q is no name of a folder", name)
	}
	return nil
}

// makeDir makes a folder and those that lead to it.
func makeDir(dir string) error { return os.MkdirAll(dir, dirMode) }
