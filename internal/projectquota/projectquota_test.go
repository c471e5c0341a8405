package projectquota

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-dev/holdfast/internal/diskusage"
	"github.com/holdfast-dev/holdfast/internal/testenv"
)

func TestOurs(t *testing.T) {
	for project, want := range map[uint32]bool{0: false, 1: false, 1 << 20: false, First - 1: false, First: true, End - 1: true, End: false} {
		if got := Ours(project); got != want {
			t.Errorf("%d is ours: %v, want %v", project, got, want)
		}
	}
}

// TestWithoutQuota holds that on a filesystem without it nothing is changed, and
// nothing is broken.
func TestWithoutQuota(t *testing.T) {
	testenv.Need(t, "root")
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if _, err := Assign(dir, Limit{Bytes: 1 << 20}); !errors.Is(err, ErrNone) || !strings.Contains(err.Error(), dir) {
		t.Errorf("Assign: %v, want ErrNone of %s", err, dir)
	}
	if _, err := Read(dir); !errors.Is(err, ErrNone) {
		t.Errorf("Read: %v, want ErrNone", err)
	}
	if err := Free(dir); err != nil {
		t.Errorf("Free: %v", err)
	}
	none := filepath.Join(dir, "none")
	if _, err := Read(none); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Read of nothing: %v", err)
	}
	if err := Free(none); err != nil {
		t.Errorf("Free of nothing: %v", err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink("/", link); err != nil {
		t.Fatal(err)
	}
	if _, err := Assign(link, Limit{}); err == nil || errors.Is(err, ErrNone) {
		t.Errorf("Assign to a link: %v, want an error", err)
	}
}

// each runs a test in a new folder on every filesystem with project quota.
func each(t *testing.T, test func(t *testing.T, dir string)) {
	for _, disk := range testenv.QuotaDirs(t) {
		t.Run(filepath.Base(disk), func(t *testing.T) {
			dir, err := os.MkdirTemp(disk, "project-") //nolint:usetesting // the test's own folder is on another disk
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := os.RemoveAll(dir); err != nil {
					t.Error(err)
				}
			})
			test(t, dir)
		})
	}
}

func TestQuota(t *testing.T) {
	each(t, func(t *testing.T, dir string) {
		const limit, slack = 8 << 20, 1 << 20
		made, err := Assign(dir, Limit{Bytes: limit, Slack: slack})
		if err != nil {
			t.Fatal(err)
		}
		if !Ours(made.Project) || made.Limit != limit || made.Inodes != 1 {
			t.Errorf("assigned %+v, want a project of ours with one inode and the limit", made)
		}
		for i := range 50 {
			sub := filepath.Join(dir, fmt.Sprint(i%5), "sub")
			if err := os.MkdirAll(sub, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(sub, fmt.Sprint(i)), make([]byte, i*999), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		unix.Sync() // what is written late has no blocks yet
		walked, err := diskusage.Measure(t.Context(), dir, diskusage.Options{})
		if err != nil {
			t.Fatal(err)
		}
		used, err := Read(dir)
		if err != nil {
			t.Fatal(err)
		}
		if used.Bytes != walked.Bytes || used.Inodes != walked.Inodes || used.Project != made.Project {
			t.Errorf("the filesystem says %+v, a count %+v", used, walked)
		}

		var disk unix.Statfs_t
		if err := unix.Statfs(dir, &disk); err != nil {
			t.Fatal(err)
		}
		if size := disk.Blocks * uint64(disk.Bsize); size != limit {
			t.Errorf("statfs says %d bytes, want the limit of %d", size, limit)
		}

		if _, err := Read(filepath.Join(dir, "1")); !errors.Is(err, ErrNone) {
			t.Errorf("a folder in it: %v, want that it has no figure of its own", err)
		}

		// Again, as after a restart: the same project, another limit.
		again, err := Assign(dir, Limit{})
		if err != nil || again.Project != made.Project || again.Limit != 0 {
			t.Errorf("assigned again: %+v, %v; want project %d without a limit", again, err, made.Project)
		}

		if err := Free(dir); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(dir); !errors.Is(err, ErrNone) {
			t.Errorf("freed: %v, want ErrNone", err)
		}
		if err := Free(dir); err != nil {
			t.Errorf("freed again: %v", err)
		}
	})
}

func TestAssignRefusesAFullFolder(t *testing.T) {
	each(t, func(t *testing.T, dir string) {
		if err := os.WriteFile(filepath.Join(dir, "f"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Assign(dir, Limit{}); !errors.Is(err, ErrNotEmpty) {
			t.Errorf("got %v, want ErrNotEmpty", err)
		}
		if _, err := Read(dir); !errors.Is(err, ErrNone) {
			t.Errorf("it has a project all the same: %v", err)
		}
	})
}

func TestManyAtOnce(t *testing.T) {
	each(t, func(t *testing.T, dir string) {
		var mu sync.Mutex
		projects := map[uint32]bool{}
		var wg sync.WaitGroup
		const count = 40
		for i := range count {
			wg.Go(func() {
				sub := filepath.Join(dir, fmt.Sprint(i))
				if err := os.Mkdir(sub, 0o755); err != nil {
					t.Error(err)
					return
				}
				used, err := Assign(sub, Limit{})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				projects[used.Project] = true
			})
		}
		wg.Wait()
		if len(projects) != count {
			t.Errorf("%d projects for %d folders", len(projects), count)
		}
	})
}

// TestLimit holds that a folder says its size, and takes little more than that.
func TestLimit(t *testing.T) {
	each(t, func(t *testing.T, dir string) {
		const limit, slack = 8 << 20, 4 << 20
		if _, err := Assign(dir, Limit{limit, slack}); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "over"), make([]byte, limit+slack/4), 0o644); err != nil {
			t.Errorf("little more than its size: %v", err)
		}
		unix.Sync()
		used, err := Read(dir)
		if err != nil || used.Bytes <= limit || used.Limit != limit {
			t.Errorf("read %+v, %v; want more than the limit", used, err)
		}
		var disk unix.Statfs_t
		if err := unix.Statfs(dir, &disk); err != nil {
			t.Fatal(err)
		}
		if size, left := disk.Blocks*uint64(disk.Bsize), disk.Bavail; size != limit || left != 0 {
			t.Errorf("statfs says %d bytes, %d blocks left, want %d and none", size, left, limit)
		}
		err = withoutSysResource(func() error {
			return os.WriteFile(filepath.Join(dir, "far over"), make([]byte, 2*slack), 0o644)
		})
		if !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) {
			t.Errorf("far more than its size: %v, want that there is no space", err)
		}
	})
}

// withoutSysResource calls f in a thread that ext4 does not let go beyond its limits.
func withoutSysResource(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		if err := unix.Capget(&header, &data[0]); err != nil {
			done <- err
			return
		}
		data[0].Effective &^= 1 << unix.CAP_SYS_RESOURCE
		if err := unix.Capset(&header, &data[0]); err != nil {
			done <- err
			return
		}
		done <- f()
	}()
	return <-done
}

// TestForeign holds that a project of somebody else's is left alone: the folder's, and
// one that has our numbers.
func TestForeign(t *testing.T) {
	each(t, func(t *testing.T, dir string) {
		f, err := open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer f.close()
		_, flags, err := f.project()
		if err != nil {
			t.Fatal(err)
		}
		const theirs = 42
		if err := f.setProject(theirs, flags|inherit); err != nil {
			t.Fatal(err)
		}
		below := filepath.Join(dir, "below")
		if err := os.Mkdir(below, 0o755); err != nil {
			t.Fatal(err)
		}
		if _, err := Assign(below, Limit{}); !errors.Is(err, ErrForeign) {
			t.Errorf("in a folder of theirs: %v, want ErrForeign", err)
		}
		if err := Free(dir); err != nil {
			t.Error(err)
		}
		if project, _, err := f.project(); err != nil || project != theirs {
			t.Errorf("project %d, %v, want theirs", project, err)
		}
		if used, err := Read(dir); err != nil || Ours(used.Project) || used.Inodes != 2 {
			t.Errorf("read %+v, %v", used, err)
		}
	})
}
