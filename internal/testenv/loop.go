package testenv

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// LoopDevice returns a new block device of size bytes, all zero. It is gone at the
// end of the test; whoever uses it must have let go of it by then. It needs "root"
// as Need does.
func LoopDevice(t testing.TB, size int64) string {
	t.Helper()
	Need(t, "root")
	backing, err := os.CreateTemp(t.TempDir(), "disk-*.img")
	if err != nil {
		t.Fatal(err)
	}
	defer backing.Close()
	if err := backing.Truncate(size); err != nil {
		t.Fatal(err)
	}
	path, err := attach(backing)
	if err != nil {
		t.Fatalf("loop device: %v", err)
	}
	t.Cleanup(func() {
		if err := detach(path); err != nil {
			t.Errorf("detach %s: %v", path, err)
		}
	})
	return path
}

// attach finds a loop device that nobody else takes meanwhile.
func attach(backing *os.File) (string, error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer control.Close()
	for range 100 {
		number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return "", err
		}
		path := fmt.Sprintf("/dev/loop%d", number)
		err = configure(path, backing)
		if errors.Is(err, unix.EBUSY) {
			continue
		}
		return path, err
	}
	return "", errors.New("others take them all")
}

func configure(path string, backing *os.File) error {
	loop, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer loop.Close()
	return unix.IoctlLoopConfigure(int(loop.Fd()), &unix.LoopConfig{Fd: uint32(backing.Fd())})
}

func detach(path string) error {
	loop, err := os.Open(path)
	if err != nil {
		return err
	}
	defer loop.Close()
	err = unix.IoctlSetInt(int(loop.Fd()), unix.LOOP_CLR_FD, 0)
	if errors.Is(err, unix.ENXIO) { // the test did it
		return nil
	}
	return err
}
