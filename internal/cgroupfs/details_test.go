package cgroupfs

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReadDetails(t *testing.T) {
	for name, test := range map[string]struct {
		unified     bool
		controllers []string
		files       map[string]string
		want        Details
	}{
		"v1": {false, []string{"cpu", "cpuacct", "memory", "pids", "blkio"}, map[string]string{
			"cpuacct/g/cpuacct.usage_user": "70\n", "cpuacct/g/cpuacct.usage_sys": "30\n",
			"cpu/g/cpu.shares": "512\n", "cpu/g/cpu.cfs_quota_us": "30000\n", "cpu/g/cpu.cfs_period_us": "100000\n",
			"cpu/g/cpu.stat":       "nr_periods 10\nnr_throttled 4\nthrottled_time 5000\n",
			"memory/g/memory.stat": "cache 1\nmapped_file 2\ntotal_cache 100\ntotal_mapped_file 20\n", "memory/g/memory.kmem.usage_in_bytes": "7\n",
			"memory/g/memory.max_usage_in_bytes": "900\n", "memory/g/memory.failcnt": "3\n", "memory/g/memory.soft_limit_in_bytes": "9223372036854771712\n", "memory/g/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
			"pids/g/pids.max": "64\n",
			"blkio/g/blkio.throttle.io_service_bytes_recursive": "8:0 Read 4096\n8:0 Write 8192\n8:0 Sync 1\n253:1 Read 1\nTotal 12289\n",
			"blkio/g/blkio.throttle.io_serviced_recursive":      "8:0 Read 1\n8:0 Write 2\nTotal 3\n",
		}, Details{
			UserCPU: known(70), SystemCPU: known(30), Shares: known(512), Quota: known(30000), Period: known(100000),
			Periods: known(10), ThrottledPeriods: known(4), ThrottledTime: known(5000),
			Cache: known(100), Mapped: known(20), Kernel: known(7), MaxMemory: known(900), LimitHits: known(3), OOMKills: known(2), TaskLimit: known(64),
			Devices: []DeviceIO{{Major: 8, ReadBytes: 4096, WriteBytes: 8192, Reads: 1, Writes: 2}, {Major: 253, Minor: 1, ReadBytes: 1}},
		}},
		"v1 without limits": {false, []string{"cpu", "pids"}, map[string]string{
			"cpu/g/cpu.shares": "2\n", "cpu/g/cpu.cfs_quota_us": "-1\n", "cpu/g/cpu.cfs_period_us": "100000\n", "pids/g/pids.max": "max\n",
		}, Details{Shares: known(2), Period: known(100000)}},
		"v2": {true, []string{""}, map[string]string{
			"/g/cpu.stat":   "usage_usec 100\nuser_usec 70\nsystem_usec 30\nnr_periods 10\nnr_throttled 4\nthrottled_usec 5\n",
			"/g/cpu.weight": "100\n", "/g/cpu.max": "30000 100000\n", "/g/memory.stat": "anon 1\nfile 100\nkernel 7\nfile_mapped 20\n",
			"/g/memory.peak": "900\n", "/g/memory.events": "low 0\nhigh 5\nmax 3\noom 1\noom_kill 2\n", "/g/memory.min": "0\n", "/g/pids.max": "64\n",
			"/g/io.stat": "8:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0\n253:1 \n",
		}, Details{
			UserCPU: known(70_000), SystemCPU: known(30_000), Shares: known(2597), Quota: known(30000), Period: known(100000),
			Periods: known(10), ThrottledPeriods: known(4), ThrottledTime: known(5000),
			Cache: known(100), Mapped: known(20), Kernel: known(7), MaxMemory: known(900), LimitHits: known(3), HighHits: known(5), MemoryKept: known(0), OOMKills: known(2), TaskLimit: known(64),
			Devices: []DeviceIO{{Major: 8, ReadBytes: 4096, WriteBytes: 8192, Reads: 1, Writes: 2}},
		}},
		"v2 without limits": {true, []string{""}, map[string]string{"/g/cpu.stat": "user_usec 1\n", "/g/cpu.max": "max 100000\n"}, Details{
			UserCPU: known(1000), Period: known(100000),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			got := Details{Devices: []DeviceIO{{Major: 1}}} // of the group before
			if err := fake(t, test.unified, test.controllers, test.files).ReadDetails("/g", &got); err != nil {
				t.Fatal(err)
			}
			if len(got.Devices) == 0 {
				got.Devices = nil
			}
			if diff := cmp.Diff(got, test.want); diff != "" {
				t.Errorf("details (-got +want):\n%s", diff)
			}
			if err := fake(t, test.unified, test.controllers, nil).ReadDetails("/g", &got); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("no group: %v", err)
			}
		})
	}
}

func FuzzParseIO(f *testing.F) {
	f.Add([]byte("8:0 Read 4096\nTotal 1\n"))
	f.Add([]byte("8:0 rbytes=1 wbytes=x =\n4294967296:1 rbytes=1\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		all := parseV1IO(data, nil, func(d *DeviceIO) (*uint64, *uint64) { return &d.Reads, &d.Writes })
		all = parseV2IO(data, all)
		seen := map[[2]uint32]bool{}
		for _, d := range all {
			if key := [2]uint32{d.Major, d.Minor}; seen[key] {
				t.Errorf("%d:%d is there twice", d.Major, d.Minor)
			} else {
				seen[key] = true
			}
		}
	})
}
