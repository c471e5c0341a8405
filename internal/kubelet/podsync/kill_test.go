package podsync

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/cri/crifake"
)

func TestGracePeriod(t *testing.T) {
	probe := &v1.Probe{TerminationGracePeriodSeconds: new(int64(3))}
	tests := map[string]struct {
		spec, deletion *int64
		probe          *v1.Probe
		want           time.Duration
	}{
		"default":                   {want: 30 * time.Second},
		"pod's":                     {spec: new(int64(7)), want: 7 * time.Second},
		"deletion's":                {spec: new(int64(7)), deletion: new(int64(2)), probe: probe, want: 2 * time.Second},
		"probe's":                   {spec: new(int64(7)), probe: probe, want: 3 * time.Second},
		"probe that does not say":   {spec: new(int64(7)), probe: &v1.Probe{}, want: 7 * time.Second},
		"deletion's, which is none": {spec: new(int64(7)), deletion: new(int64(0)), want: 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod := &v1.Pod{}
			pod.Spec.TerminationGracePeriodSeconds, pod.DeletionGracePeriodSeconds = test.spec, test.deletion
			if got := gracePeriod(pod, test.probe); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// liveProbes are probes that remember what they were told.
type liveProbes struct {
	planProbes
	w *world
}

func (p *liveProbes) AddPod(*v1.Pod)      { p.w.note("add probes") }
func (p *liveProbes) Terminate(types.UID) { p.w.note("end liveness") }
func (p *liveProbes) RemovePod(types.UID) { p.w.note("remove probes") }

func TestLiveness(t *testing.T) {
	probes := &liveProbes{planProbes: planProbes{results: map[string]string{}}}
	w := newWorld(t, func(c *Config) { c.Probes = probes })
	probes.w = w
	w.main().LivenessProbe = &v1.Probe{TerminationGracePeriodSeconds: new(int64(4))}
	w.mustSync()
	first := w.newest("main").ID
	probes.results[first] = "dead"

	graces := make(chan int64, 10)
	w.fake.Inject(crifake.Fault{Op: "StopContainer", Match: func(req any) bool {
		graces <- req.(*runtimeapi.StopContainerRequest).GetTimeout()
		return false
	}})
	w.mustSync()
	if got := <-graces; got != 4 {
		t.Errorf("got a grace period of %d s, want the probe's 4", got)
	}
	if got := w.newest("main"); got.ID == first || got.RestartCount != 1 {
		t.Errorf("got %s with %d restarts, want another with one", got.ID, got.RestartCount)
	}
	w.wantEvents("Normal Killing Container main failed liveness probe, will be restarted")

	if err := w.SyncTerminating(t.Context(), w.pod, w.inspect(), new(int64(2))); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(w.log, []string{"add probes", "add probes", "end liveness", "remove probes"}); diff != "" {
		t.Errorf("got -, want +:\n%s", diff)
	}
}
