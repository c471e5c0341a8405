package devices

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
)

func set(ids string) sets.Set[string] { return sets.New(strings.Fields(ids)...) }

func TestSettled(t *testing.T) {
	const res = "example.com/disk"
	for _, c := range []struct {
		name    string
		need    need
		settled bool
		err     string
	}{
		{"nothing was given", need{resource: res, count: 1, registered: true, healthy: set("a")}, false, ""},
		{"all was given", need{resource: res, count: 1, has: set("a"), registered: true, healthy: set("a")}, true, ""},
		{"not as many as it asks for", need{resource: res, count: 2, has: set("a"), registered: true, healthy: set("a b")}, false, `changed request for resource "example.com/disk" from 1 to 2`},
		{"no plugin", need{resource: res, count: 1}, false, "cannot allocate unregistered device example.com/disk"},
		{"nothing is well", need{resource: res, count: 1, registered: true}, false, "no healthy devices present; cannot allocate unhealthy devices example.com/disk"},
		{"what it has is ill", need{resource: res, count: 1, has: set("a"), registered: true, healthy: set("b")}, false, "previously allocated devices are no longer healthy; cannot allocate unhealthy devices example.com/disk"},
	} {
		t.Run(c.name, func(t *testing.T) {
			settled, err := c.need.settled()
			text := ""
			if err != nil {
				text = err.Error()
			}
			if settled != c.settled || text != c.err {
				t.Errorf("got %v, %q, want %v, %q", settled, text, c.settled, c.err)
			}
		})
	}
}

func TestChoose(t *testing.T) {
	for _, c := range []struct {
		name               string
		need               need
		prefer             string
		want               string
		available, include string // what the plugin is told
		err                string
	}{
		{name: "the first that are free", need: need{count: 2, healthy: set("a b c d"), used: set("b")}, want: "a c", available: "a c d"},
		{name: "the preferred ones", need: need{count: 2, healthy: set("a b c"), used: set("")}, prefer: "c", want: "a c", available: "a b c"},
		{name: "no preference for what another has", need: need{count: 1, healthy: set("a b"), used: set("b")}, prefer: "b", want: "a", available: "a"},
		{name: "no preference for what is not there", need: need{count: 1, healthy: set("a")}, prefer: "z", want: "a", available: "a"},
		{name: "too many preferences", need: need{count: 1, healthy: set("a b c")}, prefer: "c b", want: "b", available: "a b c"},
		{name: "all of init containers'", need: need{count: 1, reusable: set("a b"), healthy: set("a b c"), used: set("a b")}, want: "a"},
		{name: "init containers' and others", need: need{count: 2, reusable: set("b"), healthy: set("a b c"), used: set("b")}, want: "a b", available: "a b c", include: "b"},
		{name: "too few", need: need{resource: "example.com/disk", count: 2, healthy: set("a b"), used: set("b")}, err: "requested number of devices unavailable for example.com/disk. Requested: 2, Available: 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := choose(c.need, func(available, include []string, _ int) ([]string, error) {
				if !slices.Equal(available, strings.Fields(c.available)) || !slices.Equal(include, strings.Fields(c.include)) {
					t.Errorf("the plugin is told %q and %q, want %q and %q", available, include, c.available, c.include)
				}
				return strings.Fields(c.prefer), nil
			})
			text := ""
			if err != nil {
				text = err.Error()
			}
			if strings.Join(got, " ") != c.want || text != c.err {
				t.Errorf("got %q, %q, want %q, %q", got, text, c.want, c.err)
			}
		})
	}
}
