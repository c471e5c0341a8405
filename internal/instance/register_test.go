package instance_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/instance"
)

// TestRegister makes instances that all start at the same moment: each must see
// the subnets of those before it.
func TestRegister(t *testing.T) {
	const count = 20
	dir := t.TempDir()
	register := instance.Register(filepath.Join(dir, "register"))
	start := func(root string) (*instance.Instance, error) {
		unlock, err := register.Lock()
		if err != nil {
			return nil, err
		}
		others, err := register.Others(root)
		if err != nil {
			return nil, err
		}
		in, err := instance.OpenOrCreate(root, func() (netip.Prefix, error) {
			return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 85, byte(len(others)), 0}), 24), nil
		})
		if err != nil {
			return nil, err
		}
		return in, errors.Join(register.Add(in), unlock())
	}
	made := make([]*instance.Instance, count)
	var all sync.WaitGroup
	for i := range made {
		all.Go(func() {
			in, err := start(filepath.Join(dir, fmt.Sprint("node", i)))
			if err != nil {
				t.Error(err)
			}
			made[i] = in
		})
	}
	all.Wait()
	subnets := map[netip.Prefix]bool{}
	for _, in := range made {
		subnets[in.Subnet] = true
	}
	if len(subnets) != count {
		t.Errorf("%d instances have %d subnets", count, len(subnets))
	}

	if err := os.RemoveAll(made[0].Root); err != nil { // a link that leads nowhere
		t.Fatal(err)
	}
	others, err := register.Others(made[1].Root)
	if err != nil || len(others) != count-2 {
		t.Errorf("got %d others, %v; want %d", len(others), err, count-2)
	}
	for _, in := range made {
		all.Go(func() {
			if err := register.Remove(in); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if _, err := os.Stat(string(register)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the empty register: %v", err)
	}
}

func TestRegisterFollowsAMovedRoot(t *testing.T) {
	dir := t.TempDir()
	register := instance.Register(filepath.Join(dir, "register"))
	in, err := instance.OpenOrCreate(filepath.Join(dir, "before"), pick)
	if err != nil {
		t.Fatal(err)
	}
	unlock, err := register.Lock()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(register.Add(in), os.Rename(in.Root, filepath.Join(dir, "after"))); err != nil {
		t.Fatal(err)
	}
	moved, err := instance.Open(filepath.Join(dir, "after"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(register.Add(moved), unlock()); err != nil {
		t.Fatal(err)
	}
	others, err := register.Others(filepath.Join(dir, "somebody else"))
	if err != nil || len(others) != 1 || others[0].Root != moved.Root {
		t.Errorf("got %v, %v; want the one in %s", others, err, moved.Root)
	}
}
