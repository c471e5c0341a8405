package kubeletcommand

import (
	"log/slog"
	"strings"
	"testing"
)

func TestNodeName(t *testing.T) {
	for name, test := range map[string]struct{ override, want, err string }{
		"as given":       {"edge-1", "edge-1", ""},
		"in lower case":  {" Edge-1 ", "edge-1", ""},
		"of blanks":      {"  ", "", "--hostname-override"},
		"as domain name": {"edge.Example.org", "edge.example.org", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := nodeName(test.override)
			if got != test.want || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("got %q, %v, want %q, %q", got, err, test.want, test.err)
			}
		})
	}
	if got, err := nodeName(""); err != nil || got == "" || got != strings.ToLower(got) {
		t.Errorf("this machine's: got %q, %v", got, err)
	}
}

// TestVerbosity holds from which number on decisions are logged, also when it is
// changed while the node runs.
func TestVerbosity(t *testing.T) {
	var shown slog.LevelVar
	change := verbosity(&shown)
	for _, test := range []struct {
		text string
		want slog.Level
		bad  bool
	}{
		{"4", slog.LevelDebug, false},
		{"3", slog.LevelInfo, false},
		{"10", slog.LevelDebug, false},
		{"-1", slog.LevelDebug, true},
		{"much", slog.LevelDebug, true},
	} {
		if err := change(test.text); (err != nil) != test.bad || shown.Level() != test.want {
			t.Errorf("%s: got %v, %v, want %v", test.text, shown.Level(), err, test.want)
		}
	}
}
