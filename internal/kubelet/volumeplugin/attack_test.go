package volumeplugin

import (
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-dev/holdfast/internal/kubelet/fsgroup"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

// The tests of this file have a pod work against what is done to its volume: it
// exchanges folders for links that lead out of the volume, as fast as it can,
// while the operation runs. However the two meet, nothing outside may change.

// rounds is how often the two meet in a test.
const rounds = 200

// victim is a folder outside of every volume.
type victim struct {
	dir    string
	before string
}

func newVictim(t *testing.T) victim {
	t.Helper()
	v := victim{dir: filepath.Join(t.TempDir(), "victim")}
	must(t, os.MkdirAll(filepath.Join(v.dir, "sub/deep"), 0o700))
	for _, name := range []string{"f", "sub/f", "sub/deep/f"} {
		write(t, filepath.Join(v.dir, name), "the victim's")
	}
	v.before = v.look(t)
	return v
}

// look describes everything in the folder: names, owners, permissions, content.
func (v victim) look(t *testing.T) string {
	t.Helper()
	text := ""
	must(t, filepath.WalkDir(v.dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var stat unix.Stat_t
		if err := unix.Lstat(path, &stat); err != nil {
			return err
		}
		text += path + " " + entry.Type().String() + " " + os.FileMode(stat.Mode).String()
		if stat.Uid != 0 || stat.Gid != 0 {
			text += " given away"
		}
		if entry.Type().IsRegular() {
			text += " " + content(t, path)
		}
		text += "\n"
		return nil
	}))
	return text
}

func (v victim) isUntouched(t *testing.T) {
	t.Helper()
	if now := v.look(t); now != v.before {
		t.Fatalf("outside of the volume there is now:\n%swas:\n%s", now, v.before)
	}
}

// plant makes the folder "a" in a volume, with a like of the victim in it, and
// beside it the link "l" to the victim.
func (v victim) plant(t *testing.T, volume string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Join(volume, "a/sub/deep"), 0o777))
	for _, name := range []string{"f", "sub/f", "sub/deep/f"} {
		write(t, filepath.Join(volume, "a", name), "the pod's")
	}
	must(t, os.Symlink(v.dir, filepath.Join(volume, "l")))
}

// attack has the pod exchange "a" and "l" in the folder volume until the
// returned function has returned. It says how often that was done.
func attack(t *testing.T, volume string) (stop func() int) {
	t.Helper()
	dir, err := unix.Open(volume, unix.O_PATH|unix.O_DIRECTORY, 0)
	must(t, err)
	var (
		work  sync.WaitGroup
		ended atomic.Bool
		count int
	)
	begun := make(chan struct{})
	work.Go(func() {
		for !ended.Load() {
			if unix.Renameat2(dir, "a", dir, "l", unix.RENAME_EXCHANGE) == nil {
				count++
			}
			if count == 1 {
				close(begun)
				count++
			}
		}
	})
	<-begun
	stop = sync.OnceValue(func() int {
		ended.Store(true)
		work.Wait()
		closeFD(dir)
		return count
	})
	t.Cleanup(func() { stop() })
	return stop
}

// persist repeats what the pod may keep from success for a moment.
func persist(t *testing.T, do func() error) {
	t.Helper()
	var err error
	for range 1000 {
		if err = do(); err == nil {
			return
		}
	}
	t.Fatal(err)
}

// A part of a volume is one of the volume, or none.
func TestAttackSubPath(t *testing.T) {
	h, out := newHost(t), newVictim(t)
	v := volume(podvolumes.EmptyDir)
	path := setUp(t, h, v)
	out.plant(t, path)
	stop := attack(t, path)
	bound := 0
	for i := range rounds {
		s := SubPath{PodUID: uid, Volume: "data", VolumePath: path, Path: []string{"a", "a/f", "a/sub/deep", "l/sub/f"}[i%4], Container: "app"}
		target, err := h.BindSubPath(t.Context(), s)
		if err == nil {
			bound++
			file := target
			if info, err := os.Stat(target); err == nil && info.IsDir() {
				file = filepath.Join(target, "f")
			}
			if got := content(t, file); got != "the pod's" {
				t.Fatalf("%s: the container sees %q", s.Path, got)
			}
		}
		must(t, h.CleanSubPaths(t.Context(), uid))
	}
	t.Logf("bound in %d of %d tries, exchanged %d times", bound, rounds, stop())
	out.isUntouched(t)
	must(t, h.TearDown(t.Context(), uid, v.ID))
}

// A part that is not there is made in the volume, or not at all.
func TestAttackSubPathMade(t *testing.T) {
	h, out := newHost(t), newVictim(t)
	v := volume(podvolumes.EmptyDir)
	path := setUp(t, h, v)
	out.plant(t, path)
	stop := attack(t, path)
	for i := range rounds {
		s := SubPath{PodUID: uid, Volume: "data", VolumePath: path, Path: filepath.Join("a/sub/new", string(rune('a'+i%26)), "er"), Container: "app"}
		if _, err := h.BindSubPath(t.Context(), s); err == nil {
			must(t, h.CleanSubPaths(t.Context(), uid))
		}
		for _, name := range []string{"a", "l"} { // whichever of them the folder is now
			must(t, removeTree(t.Context(), filepath.Join(path, name, "sub/new")))
		}
		out.isUntouched(t)
	}
	t.Logf("exchanged %d times", stop())
	must(t, h.CleanSubPaths(t.Context(), uid))
	must(t, h.TearDown(t.Context(), uid, v.ID))
}

// A tear-down removes the volume's own, and links as links.
func TestAttackTearDown(t *testing.T) {
	h, out := newHost(t), newVictim(t)
	v := volume(podvolumes.EmptyDir)
	for range rounds / 2 {
		path := setUp(t, h, v)
		out.plant(t, path)
		stop := attack(t, path)
		persist(t, func() error { return h.TearDown(t.Context(), uid, v.ID) })
		stop()
		out.isUntouched(t)
		if exists(path) {
			t.Fatal("the volume is left")
		}
	}
}

// So does the removal of what is left of a pod, with all its volumes at once.
func TestAttackRemovePod(t *testing.T) {
	h, out := newHost(t), newVictim(t)
	v := volume(podvolumes.EmptyDir)
	for range rounds / 2 {
		path := setUp(t, h, v)
		deep := filepath.Join(path, "x/y/z")
		must(t, os.MkdirAll(deep, 0o777))
		out.plant(t, deep)
		stop := attack(t, deep)
		persist(t, func() error { return h.RemovePod(t.Context(), uid) })
		stop()
		out.isUntouched(t)
		if exists(h.layout.Pod(uid)) {
			t.Fatal("the pod's folder is left")
		}
	}
}

// What is given to a group is of the volume.
func TestAttackOwnership(t *testing.T) {
	h, out := newHost(t), newVictim(t)
	path := setUp(t, h, volume(podvolumes.EmptyDir))
	out.plant(t, path)
	stop := attack(t, path)
	for i := range int64(rounds) {
		if _, err := fsgroup.Set(t.Context(), path, 1000+i, nil); err != nil {
			t.Fatal(err)
		}
		out.isUntouched(t)
	}
	t.Logf("exchanged %d times", stop())
	if _, err := fsgroup.Set(t.Context(), path, 4711, nil); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a/f", "l/f"} { // one is the folder's
		if file := filepath.Join(path, name); content(t, file) == "the pod's" && !fsgroup.Owns(file, 4711) {
			t.Errorf("%s is not given to the group", name)
		}
	}
	out.isUntouched(t)
}

// The folders on which other volumes are mounted are made in the volume.
func TestAttackNested(t *testing.T) {
	h, out := newHost(t), newVictim(t)
	v := volume(podvolumes.ConfigMap)
	v.PodUID, v.Files = uid, files("1")
	path := setUp(t, h, v)
	out.plant(t, path)
	stop := attack(t, path)
	for i := range rounds {
		v.Nested = []string{filepath.Join("a", strconv.Itoa(i)), filepath.Join("l/sub", strconv.Itoa(i))}
		_, _ = h.SetUp(t.Context(), &v) // fails whenever it meets the link
		out.isUntouched(t)
	}
	t.Logf("exchanged %d times", stop())
	must(t, h.TearDown(t.Context(), uid, v.ID))
	out.isUntouched(t)
}
