package logrotate

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestTidy(t *testing.T) {
	for name, test := range map[string]struct {
		rotated          string
		files            int
		remove, compress string
	}{
		"nothing":                        {"", 5, "", ""},
		"the one before":                 {"l.1", 5, "", "l.1"},
		"compressed stays so":            {"l.1.gz l.2.gz l.3", 5, "", "l.3"},
		"one too many":                   {"l.1.gz l.2.gz l.3.gz l.4", 5, "l.1.gz", "l.4"},
		"many too many":                  {"l.5 l.1.gz l.2.gz l.3.gz l.4.gz", 3, "l.1.gz l.2.gz l.3.gz l.4.gz", "l.5"},
		"two files: nothing older":       {"l.1 l.2", 2, "l.1 l.2", ""},
		"compression was cut off":        {"l.1 l.1.gz.tmp l.2.gz", 5, "l.1.gz.tmp", "l.1"},
		"upstream's way to write it":     {"l.1 l.1.tmp", 5, "l.1.tmp", "l.1"},
		"removal after it was cut off":   {"l.1 l.1.gz", 5, "l.1", ""},
		"what is removed does not count": {"l.1 l.1.gz l.2.gz l.2.gz.tmp l.3", 5, "l.1 l.2.gz.tmp", "l.3"},
	} {
		t.Run(name, func(t *testing.T) {
			remove, compress := tidy(strings.Fields(test.rotated), test.files)
			if diff := cmp.Diff(strings.Join(remove, " "), test.remove); diff != "" {
				t.Errorf("remove: %s", diff)
			}
			if diff := cmp.Diff(strings.Join(compress, " "), test.compress); diff != "" {
				t.Errorf("compress: %s", diff)
			}
		})
	}
}

func TestNextName(t *testing.T) {
	now := time.Date(2026, 1, 2, 15, 4, 5, 999, time.Local)
	for name, test := range map[string]struct{ rotated, want string }{
		"first":                    {"", "0.log.20260102-150405"},
		"after another":            {"0.log.20260102-150404.gz", "0.log.20260102-150405"},
		"in the same second":       {"0.log.20260102-150405", "0.log.20260102-150406"},
		"the clock was set back":   {"0.log.20260102-150404.gz 0.log.20260102-230000.gz", "0.log.20260102-230001"},
		"not by a name of others'": {"0.log.zzz", "0.log.20260102-150405"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := nextName("0.log", strings.Fields(test.rotated), now); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}
