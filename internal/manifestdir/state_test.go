package manifestdir

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/manifest"
)

// TestState follows a folder that is not there, comes, and goes.
func TestState(t *testing.T) {
	at := func(seconds int64) time.Time { return time.Unix(seconds, 0) }
	missing := &manifest.Fault{Message: "does not exist"}
	none, known := Set{}, Set{Known: true}
	var s shown
	for _, step := range []struct {
		name   string
		set    Set
		failed *manifest.Fault
		now    time.Time
		want   State
	}{
		{"not there", none, missing, at(1), State{Set: none, Failed: "does not exist", Since: at(1)}},
		{"still not", none, missing, at(2), State{Set: none, Failed: "does not exist", Since: at(1)}},
		{"read", known, nil, at(3), State{Set: known, LastGood: at(3)}},
		{"gone", known, missing, at(4), State{Set: known, LastGood: at(3), Failed: "does not exist", Since: at(4)}},
		{"back", known, nil, at(5), State{Set: known, LastGood: at(5)}},
	} {
		s.put(step.set, step.failed, step.now)
		if diff := cmp.Diff((&Dir{shown: shown{state: s.state}}).State(), step.want); diff != "" {
			t.Errorf("%s: got (-), want (+):\n%s", step.name, diff)
		}
	}
}

// TestStateOfARun asks while the folder is read.
func TestStateOfARun(t *testing.T) {
	d := New(Config{Dir: t.TempDir(), Parser: parser, Log: slog.New(slog.DiscardHandler), Publish: func(context.Context, Set) {}})
	defer d.watch.close()
	d.read(t.Context())
	if s := d.State(); !s.Known || s.LastGood.IsZero() || s.Failed != "" {
		t.Errorf("got %+v", s)
	}
}
