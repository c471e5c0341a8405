package podnet

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
)

func TestWhole(t *testing.T) {
	broken := errors.New("broken")
	for _, test := range []struct {
		name        string
		interrupted int // how often the list changes while it is read
		then        error
		want        error
	}{
		{"at once", 0, nil, nil},
		{"it changed twice", 2, nil, nil},
		{"it never stops changing", dumpTries, nil, netlink.ErrDumpInterrupted},
		{"another error", 1, broken, broken},
	} {
		t.Run(test.name, func(t *testing.T) {
			asked := 0
			got, err := whole(func() ([]int, error) {
				asked++
				if asked <= test.interrupted {
					return []int{1}, fmt.Errorf("list: %w", netlink.ErrDumpInterrupted)
				}
				return []int{1, 2}, test.then
			})
			if !errors.Is(err, test.want) {
				t.Fatalf("error %v, want %v", err, test.want)
			}
			if test.want == nil && !slices.Equal(got, []int{1, 2}) {
				t.Errorf("got %v", got)
			}
		})
	}
}
