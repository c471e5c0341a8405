package testenv

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// Capabilities returns the names of what a whole kind of host may lack.
// test/host-gaps.txt says which does, and where tests that need it run instead.
func Capabilities() []string { return slices.Sorted(maps.Keys(capabilities())) }

func capabilities() map[string]func() error {
	return map[string]func() error{
		"apparmor": func() error { return contains("/sys/module/apparmor/parameters/enabled", "Y") },
		"cgroup2":  cgroup2,
		"devicemapper": func() error {
			_, err := os.Stat("/dev/mapper/control")
			return err
		},
		"nfs":          func() error { return contains("/proc/filesystems", "\tnfs4\n") },
		"projectquota": func() error { _, err := quotaDirs(); return err },
		"sysresource":  sysResource,
		"systemd": func() error {
			_, err := os.Stat("/run/systemd/system")
			return err
		},
	}
}

func contains(path, text string) error {
	data, err := os.ReadFile(path)
	if err == nil && !bytes.Contains(data, []byte(text)) {
		err = fmt.Errorf("%s says %.200q", path, data)
	}
	return err
}

// cgroup2 wants version 2 alone: on a hybrid host its tree has no controllers.
func cgroup2() error {
	var stat unix.Statfs_t
	if err := unix.Statfs("/sys/fs/cgroup", &stat); err != nil {
		return err
	}
	if stat.Type != unix.CGROUP2_SUPER_MAGIC {
		return errors.New("/sys/fs/cgroup is not of version 2")
	}
	return nil
}

// sysResource wants CAP_SYS_RESOURCE, which root has unless it is in a container.
func sysResource() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	if data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) == 0 {
		return errors.New("this process lacks CAP_SYS_RESOURCE")
	}
	return nil
}

// QuotaDirs returns folders on file systems with project quota switched on, one
// for each kind (ext4, xfs): those that HOLDFAST_QUOTA_DIRS lists, with colons.
// It needs "projectquota" as Need does.
func QuotaDirs(t testing.TB) []string {
	t.Helper()
	Need(t, "projectquota")
	dirs, err := quotaDirs()
	if err != nil {
		t.Fatal(err)
	}
	return dirs
}

func quotaDirs() ([]string, error) {
	dirs := filepath.SplitList(os.Getenv("HOLDFAST_QUOTA_DIRS"))
	if len(dirs) == 0 {
		return nil, errors.New("HOLDFAST_QUOTA_DIRS names no folder with project quota")
	}
	return dirs, nil
}
