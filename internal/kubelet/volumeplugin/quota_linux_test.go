package volumeplugin

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/holdfast-dev/holdfast/internal/diskusage"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
	"github.com/holdfast-dev/holdfast/internal/projectquota"
	"github.com/holdfast-dev/holdfast/internal/testenv"
)

// onQuotaDisks runs a test with a Host whose folder is on a filesystem with project
// quota, for each.
func onQuotaDisks(t *testing.T, test func(t *testing.T, h *Host, log *bytes.Buffer)) {
	for _, disk := range testenv.QuotaDirs(t) {
		t.Run(filepath.Base(disk), func(t *testing.T) {
			dir, err := os.MkdirTemp(disk, "host-") //nolint:usetesting // the test's own folder is on another disk
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := os.RemoveAll(dir); err != nil {
					t.Error(err)
				}
			})
			var log bytes.Buffer
			test(t, New(Config{Dir: dir, Log: slog.New(slog.NewTextHandler(&log, nil))}), &log)
		})
	}
}

func sized(limit int64, ownUsers bool) podvolumes.Volume {
	v := volume(podvolumes.EmptyDir)
	v.SizeLimit, v.OwnUsers = limit, ownUsers
	return v
}

// TestQuotaOfEmptyDir holds that the filesystem counts an emptyDir from the start to its
// end, over restarts, and shows its size to a pod that cannot fake it.
func TestQuotaOfEmptyDir(t *testing.T) {
	for name, test := range map[string]struct {
		ownUsers bool
		limit    uint64
	}{
		"own users":    {true, 4 << 20},
		"shared users": {false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			onQuotaDisks(t, func(t *testing.T, h *Host, log *bytes.Buffer) {
				v := sized(4<<20, test.ownUsers)
				path := setUp(t, h, v)
				made, err := projectquota.Read(path)
				if err != nil || !projectquota.Ours(made.Project) || made.Limit != test.limit {
					t.Fatalf("%+v, %v; want a project of ours with a limit of %d", made, err, test.limit)
				}
				if err := os.Mkdir(filepath.Join(path, "sub"), 0o755); err != nil {
					t.Fatal(err)
				}
				fill(t, filepath.Join(path, "sub", "f"), 5<<20)
				unix.Sync()

				// A crash before the mark, and a restart.
				if err := os.Remove(h.layout.Ready(uid, v.ID)); err != nil {
					t.Fatal(err)
				}
				h = New(Config{Dir: string(h.layout), Log: h.log})
				setUp(t, h, v)
				setUp(t, h, v)
				u, err := h.Measure(t.Context(), path)
				if err != nil || u.Method != podvolumes.ByQuota || *u.UsedBytes < 5<<20 || *u.UsedBytes > 8<<20 || *u.InodesUsed != 3 {
					t.Errorf("measured %+v, %v", u, err)
				}
				if isSized := *u.CapacityBytes == 4<<20 && *u.AvailableBytes == 0; isSized != test.ownUsers {
					t.Errorf("size %d, left %d", *u.CapacityBytes, *u.AvailableBytes)
				}
				if again, err := projectquota.Read(path); err != nil || again.Project != made.Project {
					t.Errorf("after a restart %+v, %v; want project %d", again, err, made.Project)
				}
				if u, err := h.Measure(t.Context(), filepath.Join(path, "sub")); err != nil || u.Method != podvolumes.ByWalk || *u.InodesUsed != 2 {
					t.Errorf("a hostPath to a folder in it: %+v, %v; want its own use", u, err)
				}

				if err := h.TearDown(t.Context(), uid, v.ID); err != nil {
					t.Fatal(err)
				}
				if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("torn down: %v", err)
				}
				if log.Len() > 0 {
					t.Errorf("told %s", log)
				}
			})
		})
	}
}

// TestQuotaFaked holds that a pod that takes its files out of the volume's project is
// found out.
func TestQuotaFaked(t *testing.T) {
	onQuotaDisks(t, func(t *testing.T, h *Host, log *bytes.Buffer) {
		path := setUp(t, h, sized(0, false))
		sub := filepath.Join(path, "sub")
		if err := os.Mkdir(sub, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := projectquota.Free(sub); err != nil { // as any owner of a folder can
			t.Fatal(err)
		}
		fill(t, filepath.Join(sub, "f"), 4<<20)
		unix.Sync()
		measure := func(want podvolumes.Method) {
			t.Helper()
			u, err := h.Measure(t.Context(), path)
			if err != nil || u.Method != want {
				t.Fatalf("measured %+v, %v; want by %s", u, err, want)
			}
			if want == podvolumes.ByWalk && *u.UsedBytes < 4<<20 {
				t.Errorf("%d bytes", *u.UsedBytes)
			}
		}
		measure(podvolumes.ByQuota)
		h.checks.put(path, check{at: time.Now().Add(-checkPeriod)})
		measure(podvolumes.ByWalk)
		measure(podvolumes.ByWalk)
		if n := strings.Count(log.String(), "are taken out of its quota"); n != 1 {
			t.Errorf("told %d times:\n%s", n, log)
		}
	})
}

// TestQuotaOfFullFolder holds that a volume that is not empty without a project, as one that
// an older version made, is set up all the same.
func TestQuotaOfFullFolder(t *testing.T) {
	onQuotaDisks(t, func(t *testing.T, h *Host, log *bytes.Buffer) {
		v := sized(4<<20, true)
		path := h.layout.Volume(uid, v.ID)
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		fill(t, filepath.Join(path, "f"), 1)
		setUp(t, h, v)
		if u, err := h.Measure(t.Context(), path); err != nil || u.Method != podvolumes.ByWalk {
			t.Errorf("measured %+v, %v", u, err)
		}
		if !strings.Contains(log.String(), "the folder is not empty") {
			t.Errorf("told %s", log)
		}
	})
}

// TestQuotaOfAdministrator holds that a folder to which somebody else gave a project with
// a limit has the limit as its size, and its own files as its use.
func TestQuotaOfAdministrator(t *testing.T) {
	onQuotaDisks(t, func(t *testing.T, h *Host, _ *bytes.Buffer) {
		const project = 77
		dir := string(h.layout)
		f, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		attributes := [7]uint32{0x200, 0, 0, project} // struct fsxattr: FS_XFLAG_PROJINHERIT
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), 0x401c5820, uintptr(unsafe.Pointer(&attributes))); errno != 0 {
			t.Fatalf("FS_IOC_FSSETXATTR: %v", errno)
		}
		quota := [9]uint64{16 << 10, 0, 0, 0, 0, 0, 0, 0, 1} // struct if_dqblk: a hard limit of 16 MiB, QIF_BLIMITS
		const setProjectQuota = 0x800008<<8 | 2
		if _, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, f.Fd(), setProjectQuota, project, uintptr(unsafe.Pointer(&quota)), 0, 0); errno != 0 {
			t.Fatalf("quotactl: %v", errno)
		}
		path := setUp(t, h, sized(1<<20, true))
		fill(t, filepath.Join(path, "f"), 2<<20)
		unix.Sync()
		u, err := h.Measure(t.Context(), path)
		if err != nil || u.Method != podvolumes.ByWalk || *u.CapacityBytes != 16<<20 || *u.UsedBytes < 2<<20 || *u.InodesUsed != 2 {
			t.Errorf("measured %+v, %v", u, err)
		}
	})
}

func TestQuotaIsFaked(t *testing.T) {
	const mib = 1 << 20
	for name, test := range map[string]struct {
		said, counted uint64
		want          bool
	}{
		"equal":                        {100 * mib, 100 * mib, false},
		"deleted files are still open": {100 * mib, 1 * mib, false},
		"little has gone since":        {0, 1 * mib, false},
		"a little of much":             {100 * mib, 105 * mib, false},
		"much is missing":              {100 * mib, 110 * mib, true},
		"all is missing":               {4096, 2 * mib, true},
	} {
		if got := isFaked(projectquota.Usage{Bytes: test.said}, diskusage.Usage{Bytes: test.counted}); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// TestQuotaChecks holds when figures are compared, and that gone volumes are forgotten.
func TestQuotaChecks(t *testing.T) {
	var c checks
	now := time.Unix(1_700_000_000, 0)
	after := func(path string, d time.Duration, wantDue, wantFaked bool) {
		t.Helper()
		if due, faked := c.due(path, now.Add(d)); due != wantDue || faked != wantFaked {
			t.Errorf("%s after %v: due %v, faked %v; want %v, %v", path, d, due, faked, wantDue, wantFaked)
		}
	}
	after("a", 0, false, false)
	after("gone", 0, false, false)
	after("a", checkPeriod-1, false, false)
	after("a", checkPeriod, true, false)
	c.put("a", check{now.Add(checkPeriod), true})
	after("a", checkPeriod, false, true)
	after("b", 2*checkPeriod+1, false, false)
	if len(c.last) != 2 {
		t.Errorf("remembered: %v, want a and b", c.last)
	}
}
