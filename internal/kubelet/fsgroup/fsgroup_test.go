package fsgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/holdfast-dev/holdfast/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const gid = 5000

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path string, mode fs.FileMode) {
	t.Helper()
	must(t, os.WriteFile(path, nil, 0o600))
	must(t, os.Chmod(path, mode))
}

func set(t *testing.T, path string) Result {
	t.Helper()
	result, err := Set(t.Context(), path, gid, nil)
	must(t, err)
	return result
}

func TestSet(t *testing.T) {
	testenv.Need(t, "root")
	dir, outside := t.TempDir(), t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	write(t, filepath.Join(outside, "other"), 0o600)
	must(t, os.Mkdir(in("sub"), 0o700))
	must(t, os.Mkdir(in("pods"), 0o777))
	must(t, os.Chmod(in("pods"), 0o777)) // where a pod may exchange files meanwhile
	for _, parent := range []string{"", "sub/", "pods/"} {
		write(t, in(parent+"file"), 0o600)
		write(t, in(parent+"run"), fs.ModeSetuid|0o755)
		must(t, os.Symlink(filepath.Join(outside, "other"), in(parent+"link")))
		must(t, os.Symlink(outside, in(parent+"dirlink")))
		must(t, unix.Mkfifo(in(parent+"pipe"), 0o600))
		must(t, os.Link(in(parent+"file"), in(parent+"again")))
		must(t, os.Mkdir(in(parent+"mnt"), 0o700))
		write(t, in(parent+"mntfile"), 0o600)
		for point, source := range map[string]string{"mnt": outside, "mntfile": filepath.Join(outside, "other")} {
			point = in(parent + point)
			must(t, unix.Mount(source, point, "", unix.MS_BIND, ""))
			t.Cleanup(func() { must(t, unix.Unmount(point, 0)) })
		}
	}
	if Has(dir, gid) || Owns(dir, gid) {
		t.Error("has the group before")
	}
	if result := set(t, dir); result.Files != 21 || result.Refused != 0 {
		t.Errorf("result %+v, want 21 files", result)
	}
	if !Has(dir, gid) || !Owns(dir, gid) {
		t.Error("has not the group after")
	}
	wants := map[string]string{
		dir:                             "drwxrwsr-x 5000",
		in("sub"):                       "drwxrws--- 5000",
		in("pods"):                      "drwxrwsrwx 5000",
		outside:                         "drwxr-xr-x 0",
		filepath.Join(outside, "other"): "-rw------- 0",
	}
	for _, parent := range []string{"", "sub/", "pods/"} {
		wants[in(parent+"file")] = "-rw-rw---- 5000"
		wants[in(parent+"again")] = "-rw-rw---- 5000"
		wants[in(parent+"run")] = "-rwsrwxr-x 5000"
		wants[in(parent+"link")] = "lrwxrwxrwx 5000"
		wants[in(parent+"dirlink")] = "lrwxrwxrwx 5000"
		wants[in(parent+"pipe")] = "prw-rw---- 5000"
	}
	got := map[string]string{}
	for path := range wants {
		got[path] = describe(t, path)
	}
	if diff := cmp.Diff(got, wants); diff != "" {
		t.Errorf("files (-got +want):\n%s", diff)
	}
}

// describe returns the permissions, as ls(1) has them, and the group of a file.
func describe(t *testing.T, path string) string {
	t.Helper()
	var stat unix.Stat_t
	must(t, unix.Lstat(path, &stat))
	mode := []byte("?" + fs.FileMode(stat.Mode & 0o777).String()[1:])
	mode[0] = map[uint32]byte{unix.S_IFREG: '-', unix.S_IFDIR: 'd', unix.S_IFLNK: 'l', unix.S_IFIFO: 'p'}[stat.Mode&unix.S_IFMT]
	for i, bit := range map[int]uint32{3: unix.S_ISUID, 6: unix.S_ISGID} {
		if stat.Mode&bit != 0 {
			mode[i] = map[byte]byte{'x': 's', '-': 'S'}[mode[i]]
		}
	}
	return fmt.Sprintf("%s %d", mode, stat.Gid)
}

// A tree of a single file is one, too; a link is none.
func TestSetTop(t *testing.T) {
	testenv.Need(t, "root")
	file, link := filepath.Join(t.TempDir(), "file"), filepath.Join(t.TempDir(), "link")
	write(t, file, 0o600)
	must(t, os.Symlink(file, link))
	if _, err := Set(t.Context(), filepath.Join(file, "none"), gid, nil); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("below a file: %v", err)
	}
	set(t, link)
	if got := describe(t, file); got != "-rw------- 0" {
		t.Errorf("through a link: %s", got)
	}
	if result := set(t, file); result.Files != 1 || describe(t, file) != "-rw-rw---- 5000" {
		t.Errorf("the file: %+v, %s", result, describe(t, file))
	}
	if Has(file, gid) {
		t.Error("Has says yes of what is no folder, and nothing says whether its end was seen")
	}
}

func TestHas(t *testing.T) {
	testenv.Need(t, "root")
	tests := []struct {
		name string
		mode fs.FileMode
		gid  int
		want bool
	}{
		{"given", fs.ModeSetgid | 0o770, gid, true},
		{"more than that", fs.ModeSetgid | fs.ModeSticky | 0o777, gid, true},
		{"another group", fs.ModeSetgid | 0o770, gid + 1, false},
		{"without the set-group-ID bit", 0o770, gid, false},
		{"not to write", fs.ModeSetgid | 0o750, gid, false},
		{"not to pass through", fs.ModeSetgid | 0o760, gid, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			must(t, os.Chown(dir, -1, tt.gid))
			must(t, os.Chmod(dir, tt.mode))
			if got := Has(dir, gid); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
	if Has(filepath.Join(t.TempDir(), "none"), gid) {
		t.Error("what is not there has it")
	}
}

// What is right is not touched: not even its time of change moves.
func TestSetTwice(t *testing.T) {
	testenv.Need(t, "root")
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "sub"), 0o700))
	for _, name := range []string{"a", "sub/b"} {
		write(t, filepath.Join(dir, name), fs.ModeSetuid|0o755)
	}
	must(t, os.Symlink("a", filepath.Join(dir, "l")))
	set(t, dir)
	changes := func() map[string]unix.Timespec {
		all := map[string]unix.Timespec{}
		must(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			var stat unix.Stat_t
			all[path] = unix.Timespec{}
			err = errors.Join(err, unix.Lstat(path, &stat))
			all[path] = stat.Ctim
			return err
		}))
		return all
	}
	before := changes()
	if result := set(t, dir); result.Files != 5 {
		t.Errorf("result %+v", result)
	}
	if diff := cmp.Diff(changes(), before); diff != "" {
		t.Errorf("times of change (-got +want):\n%s", diff)
	}
}

// Random trees, of which some files have several names, come out as the rule
// says, however many goroutines are at work.
func TestSetRandom(t *testing.T) {
	testenv.Need(t, "root")
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(8))
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 5 {
		dir := t.TempDir()
		folders, files := []string{dir}, []string{}
		for i := range 1500 {
			path := filepath.Join(folders[random.IntN(len(folders))], fmt.Sprint(i))
			switch n := random.IntN(100); {
			case n < 5:
				must(t, os.Mkdir(path, 0o700))
				folders = append(folders, path)
			case n < 10 && len(files) > 0:
				must(t, os.Link(files[random.IntN(len(files))], path))
			case n < 15:
				must(t, os.Symlink("/etc/passwd", path))
			default:
				write(t, path, 0o600)
				files = append(files, path)
			}
		}
		wants := map[string]string{}
		must(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if entry.Type()&fs.ModeSymlink == 0 {
				must(t, os.Lchown(path, random.IntN(2)*1000, random.IntN(2)*gid))
				must(t, unix.Chmod(path, random.Uint32N(0o7777)))
			}
			return nil
		}))
		for _, path := range everything(t, dir) {
			var stat unix.Stat_t
			must(t, unix.Lstat(path, &stat))
			bits := map[uint32]uint32{unix.S_IFREG: 0o660, unix.S_IFDIR: 0o2770}[stat.Mode&unix.S_IFMT]
			wants[path] = fmt.Sprintf("%o %d %d", stat.Mode|bits, stat.Uid, gid)
		}
		if result := set(t, dir); int(result.Files) != len(wants) {
			t.Errorf("result %+v, want %d files", result, len(wants))
		}
		got := map[string]string{}
		for path := range wants {
			var stat unix.Stat_t
			must(t, unix.Lstat(path, &stat))
			got[path] = fmt.Sprintf("%o %d %d", stat.Mode, stat.Uid, stat.Gid)
		}
		if diff := cmp.Diff(got, wants); diff != "" {
			t.Fatalf("seed %d (-got +want):\n%s", seed, diff)
		}
	}
}

func everything(t *testing.T, dir string) (paths []string) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		paths = append(paths, path)
		return err
	}))
	return paths
}

// A file that nobody may change is told of, and stops nothing.
func TestSetRefused(t *testing.T) {
	testenv.Need(t, "root")
	for name, mode := range map[string]fs.FileMode{"root's": 0o755, "a pod's": 0o777} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			must(t, os.Chmod(dir, mode))
			for i := range 5 {
				path := filepath.Join(dir, fmt.Sprint("fixed-", i))
				write(t, path, 0o600)
				immutable(t, path)
			}
			write(t, filepath.Join(dir, "file"), 0o600)
			result := set(t, dir)
			if result.Files != 7 || result.Refused != 5 || len(result.Examples) != maxNamed {
				t.Errorf("result %+v", result)
			}
			for _, err := range result.Examples {
				if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), filepath.Join(dir, "fixed-")) {
					t.Errorf("example %v", err)
				}
			}
			if describe(t, filepath.Join(dir, "file")) != "-rw-rw---- 5000" || !Has(dir, gid) {
				t.Error("the others are not changed")
			}
		})
	}
}

// immutable makes a file one that nobody may change, until the test ends.
func immutable(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	flags, err := unix.IoctlGetUint32(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	must(t, err)
	must(t, unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, int(flags|unix.STATX_ATTR_IMMUTABLE)))
	t.Cleanup(func() {
		must(t, unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, int(flags)))
		must(t, f.Close())
	})
}

// A change that does not come to its end leaves the top as it was.
func TestSetCutShort(t *testing.T) {
	testenv.Need(t, "root")
	dir := t.TempDir()
	deep := dir
	for range maxDepth + 2 { // step by step: the path would be too long for the kernel
		deep = filepath.Join(deep, "d")
	}
	must(t, os.MkdirAll(deep, 0o700))
	write(t, filepath.Join(dir, "file"), 0o600)
	before := describe(t, dir)
	if _, err := Set(t.Context(), dir, gid, nil); err == nil || !strings.Contains(err.Error(), "nested more than 1000 deep") {
		t.Errorf("too deep: %v", err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Set(gone, dir, gid, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if got := describe(t, dir); got != before || Has(dir, gid) {
		t.Errorf("the top is %s, and was %s", got, before)
	}
}

// Who waits longer is told how far it is, at upstream's times.
func TestTell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &setter{}
		began := time.Now()
		var told []string
		quiet := s.tell(func(files int64) { told = append(told, fmt.Sprint(time.Since(began), " ", files)) })
		for range 4 {
			time.Sleep(40 * time.Second)
			s.files.Add(1000)
		}
		quiet()
		if want := []string{"30s 0", "1m30s 2000", "2m30s 3000"}; !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
	})
}
