package volumemanager

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podvolumes"
)

func TestPlan(t *testing.T) {
	missing := errors.New("missing")
	data, cm := podvolumes.ID{Kind: podvolumes.EmptyDir, Dir: "data"}, podvolumes.ID{Kind: podvolumes.ConfigMap, Dir: "cm"}
	ok := func(id podvolumes.ID) resolution {
		return resolution{id: id, name: id.Dir, volume: &podvolumes.Volume{ID: id}}
	}
	bad := func(id podvolumes.ID) resolution { return resolution{id: id, name: id.Dir, err: missing} }
	type world = map[podvolumes.ID]volumeState
	tests := []struct {
		name     string
		want     intent
		sweep    bool
		resolved []resolution
		actual   world
		steps    []string
		errs     int
	}{
		{"nobody said anything", unsaid, false, nil, world{data: {}}, nil, 0},
		{"new pod", wanted, false, []resolution{ok(data), ok(cm)}, nil, []string{"set up data", "set up cm"}, 0},
		{"object missing", wanted, false, []resolution{ok(data), bad(cm)}, nil, []string{"set up data"}, 1},
		{"all there: contents are compared", wanted, false, []resolution{ok(data), ok(cm)}, world{data: {verified: true}, cm: {verified: true, complete: true}}, []string{"keep data", "set up cm"}, 0},
		{"found on disk: verified once", wanted, false, []resolution{ok(data)}, world{data: {}}, []string{"set up data"}, 0},
		{"content whole, object gone", wanted, false, []resolution{bad(cm)}, world{cm: {complete: true}}, []string{"keep cm"}, 0},
		{"content not whole, object gone", wanted, false, []resolution{bad(cm)}, world{cm: {}}, nil, 1},
		{"volume named no more", wanted, false, []resolution{ok(data)}, world{data: {verified: true}, cm: {complete: true}}, []string{"keep data"}, 0},
		{"unwanted", unwanted, false, nil, world{data: {}, cm: {}}, []string{"unmount the subPaths", "tear down cm", "tear down data"}, 0},
		{"swept", unwanted, true, nil, world{data: {}}, []string{"unmount the subPaths", "tear down data", "remove the pod's folder"}, 0},
		{"swept, no volumes", unwanted, true, nil, nil, []string{"unmount the subPaths", "remove the pod's folder"}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			steps, errs := plan(tt.want, tt.sweep, tt.resolved, tt.actual)
			var got []string
			for _, s := range steps {
				line := string(s.op)
				if s.id.Dir != "" {
					line += " " + s.id.Dir
				}
				got = append(got, line)
			}
			if diff := cmp.Diff(got, tt.steps); diff != "" || len(errs) != tt.errs {
				t.Errorf("errors %v, want %d; steps (-got +want):\n%s", errs, tt.errs, diff)
			}
		})
	}
}
