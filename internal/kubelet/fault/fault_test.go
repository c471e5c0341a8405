package fault

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestJoin(t *testing.T) {
	early, late := time.Unix(1, 0), time.Unix(2, 0)
	got := Join(
		[]Fault{{"Pod a/b", "mount volumes: no space", late, ""}, {"Pod a/b", "x", late, ""}},
		nil,
		[]Fault{{"Pod a/b", "no space", early, ""}, {"Node n", "no space", early, ""}, {"Pod a/b", "x", late, ""}, {"Pod a/b", "w", early, ""}},
	)
	want := []Fault{{"Node n", "no space", early, ""}, {"Pod a/b", "w", early, ""}, {"Pod a/b", "mount volumes: no space", late, ""}, {"Pod a/b", "x", late, ""}}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("got -, want +:\n%s", diff)
	}
	if got := Join(nil, nil); len(got) != 0 {
		t.Errorf("of nothing: %v", got)
	}
}
