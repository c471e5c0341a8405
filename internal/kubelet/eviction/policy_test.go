package eviction

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// text writes a policy for comparison: a line a threshold.
func (p Policy) text() string {
	var lines []string
	for _, t := range p.thresholds {
		line := fmt.Sprintf("%s<%s", t.signal, t.value.plain())
		if t.soft {
			line += fmt.Sprintf(" soft %v", t.grace)
		}
		if t.reclaim != nil {
			line += " reclaim " + t.reclaim.plain()
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func (a amount) plain() string {
	if a.quantity != nil {
		return a.quantity.String()
	}
	return fmt.Sprintf("%.4g%%", a.fraction*100)
}

func TestParse(t *testing.T) {
	type by = map[string]string
	for name, test := range map[string]struct {
		settings Settings
		want     string // thresholds
		err      string // errors, a line each
	}{
		"defaults": {
			want: "memory.available<100Mi\nallocatableMemory.available<100Mi\nnodefs.available<10%\nnodefs.inodesFree<5%\nimagefs.available<15%\nimagefs.inodesFree<5%",
		},
		"none":         {settings: Settings{Hard: by{}}},
		"switched off": {settings: Settings{Hard: by{"memory.available": "0%", "nodefs.available": "100%"}}},
		"what is given stands for all": {
			settings: Settings{Hard: by{"nodefs.available": "1Gi"}},
			want:     "nodefs.available<1Gi",
		},
		"what is given, and the defaults of the others": {
			settings: Settings{Hard: by{"nodefs.available": "1Gi", "imagefs.available": "0%", "pid.available": "10%"}, MergeDefaults: true},
			want:     "memory.available<100Mi\nallocatableMemory.available<100Mi\nnodefs.available<1Gi\nnodefs.inodesFree<5%\nimagefs.inodesFree<5%\npid.available<10%",
		},
		"every signal": {
			settings: Settings{Hard: by{
				"memory.available": "150Mi", "allocatableMemory.available": "5%", "nodefs.available": "1G", "nodefs.inodesFree": "1k", "imagefs.available": "2.5%",
				"imagefs.inodesFree": "100", "containerfs.available": "3Gi", "containerfs.inodesFree": "6%", "pid.available": "1000",
			}},
			want: "memory.available<150Mi\nallocatableMemory.available<5%\nallocatableMemory.available<150Mi\nnodefs.available<1G\nnodefs.inodesFree<1k\n" +
				"imagefs.available<2.5%\nimagefs.inodesFree<100\ncontainerfs.available<3Gi\ncontainerfs.inodesFree<6%\npid.available<1k",
		},
		"hard before soft, soft memory alone is not of all pods": {
			settings: Settings{Hard: by{"memory.available": "10%"}, Soft: by{"memory.available": "30%"}, SoftGracePeriod: by{"memory.available": "30s"}},
			want:     "memory.available<10%\nmemory.available<30% soft 30s\nallocatableMemory.available<10%",
		},
		"minimum to reclaim": {
			settings: Settings{
				Hard: by{"memory.available": "150Mi", "nodefs.available": "10%"}, MinimumReclaim: by{"memory.available": "0", "nodefs.available": "5%"},
			},
			want: "memory.available<150Mi reclaim 0\nallocatableMemory.available<150Mi reclaim 0\nnodefs.available<10% reclaim 5%",
		},
		"a soft grace period of nothing": {
			settings: Settings{Hard: by{}, Soft: by{"nodefs.available": "5%"}, SoftGracePeriod: by{"nodefs.available": "0s"}},
			want:     "nodefs.available<5% soft 0s",
		},
		"unknown signals": {
			settings: Settings{
				Hard: by{"mem.available": "150Mi"}, Soft: by{"x": "1"}, SoftGracePeriod: by{"y": "1s"}, MinimumReclaim: by{"z": "1"},
			},
			err: `evictionHard: unsupported eviction signal "mem.available"` + "\n" + `evictionSoft: unsupported eviction signal "x"` + "\n" +
				`evictionSoftGracePeriod: unsupported eviction signal "y"` + "\n" + `evictionMinimumReclaim: unsupported eviction signal "z"`,
		},
		"no amounts": {
			settings: Settings{Hard: by{"memory.available": "lots", "nodefs.available": "x%", "imagefs.available": "", "pid.available": "%"}},
			err: `evictionHard: imagefs.available: "" is no quantity` + "\n" + `evictionHard: memory.available: "lots" is no quantity` + "\n" +
				`evictionHard: nodefs.available: "x%" is no percentage` + "\n" + `evictionHard: pid.available: "%" is no percentage`,
		},
		"out of bounds": {
			settings: Settings{Hard: by{"memory.available": "-150Mi", "nodefs.available": "0", "imagefs.available": "101%", "pid.available": "-1%", "nodefs.inodesFree": "NaN%"}},
			err: `evictionHard: imagefs.available: "101%" is no percentage` + "\n" + `evictionHard: memory.available: "-150Mi" must be more than nothing` + "\n" +
				`evictionHard: nodefs.available: "0" must be more than nothing` + "\n" + `evictionHard: nodefs.inodesFree: "NaN%" is no percentage` + "\n" +
				`evictionHard: pid.available: "-1%" is no percentage`,
		},
		"soft without a grace period": {
			settings: Settings{Soft: by{"memory.available": "30%"}},
			err:      `evictionSoftGracePeriod: the soft threshold of memory.available needs a grace period here`,
		},
		"grace periods that are none": {
			settings: Settings{Soft: by{"memory.available": "30%", "nodefs.available": "1%"}, SoftGracePeriod: by{"memory.available": "-30s", "nodefs.available": "soon"}},
			err: `evictionSoftGracePeriod: memory.available: "-30s" is no length of time` + "\n" +
				`evictionSoftGracePeriod: nodefs.available: "soon" is no length of time`,
		},
		"a grace period of nobody": {
			settings: Settings{SoftGracePeriod: by{"memory.available": "1s"}},
			err:      "evictionSoftGracePeriod: evictionSoft has no threshold for memory.available",
		},
		"minima that are none": {
			settings: Settings{MinimumReclaim: by{"memory.available": "-300Mi", "nodefs.available": "-15%", "imagefs.available": "0%", "imagefs.inodesFree": "200%", "pid.available": "1"}},
			err: `evictionMinimumReclaim: imagefs.available: "0%" must be more than 0%` + "\n" + `evictionMinimumReclaim: imagefs.inodesFree: "200%" must be more than 0%` + "\n" +
				`evictionMinimumReclaim: memory.available: "-300Mi" must not be negative` + "\n" + `evictionMinimumReclaim: nodefs.available: "-15%" must be more than 0%` + "\n" +
				`evictionMinimumReclaim: there is no threshold for pid.available`,
		},
		"negative times": {
			settings: Settings{TransitionPeriod: -time.Second, MaxPodGracePeriod: -1},
			err:      "evictionPressureTransitionPeriod -1s must not be negative\nevictionMaxPodGracePeriod -1 must not be negative",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := Parse(test.settings)
			if diff := cmp.Diff(p.text(), test.want); diff != "" {
				t.Errorf("thresholds (-got +want):\n%s", diff)
			}
			var got []string
			if err != nil {
				got = strings.Split(err.Error(), "\n")
			}
			want := strings.FieldsFunc(test.err, func(r rune) bool { return r == '\n' })
			if len(got) != len(want) {
				t.Fatalf("errors:\n%s\nwant:\n%s", strings.Join(got, "\n"), test.err)
			}
			for i := range want {
				if !strings.HasPrefix(got[i], want[i]) {
					t.Errorf("error %q, want %q", got[i], want[i])
				}
			}
		})
	}
}

func TestDefaultsOfTimes(t *testing.T) {
	if p := DefaultPolicy(); p.transitionPeriod != 5*time.Minute || p.maxPodGrace != 0 {
		t.Errorf("transition %v, grace %d; want 5m, 0", p.transitionPeriod, p.maxPodGrace)
	}
}

func TestWithheld(t *testing.T) {
	capacity := v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi"), v1.ResourceEphemeralStorage: resource.MustParse("1000")}
	p, err := Parse(Settings{
		Hard: map[string]string{"memory.available": "25%", "nodefs.available": "100", "imagefs.available": "500", "pid.available": "7"},
		Soft: map[string]string{"memory.available": "50%"}, SoftGracePeriod: map[string]string{"memory.available": "1s"},
	})
	if err != nil {
		t.Fatal(err)
	}
	kept := p.Withheld(capacity)
	if got := [2]int64{kept.Memory().Value(), kept.StorageEphemeral().Value()}; got != [2]int64{256 << 20, 100} || len(kept) != 2 {
		t.Errorf("withheld %v", kept)
	}
	kept = DefaultPolicy().Withheld(capacity)
	if got := [2]int64{kept.Memory().Value(), kept.StorageEphemeral().Value()}; got != [2]int64{100 << 20, 100} {
		t.Errorf("withheld by default %v", kept)
	}
	if kept := (Policy{}).Withheld(capacity); len(kept) != 0 {
		t.Errorf("withheld by no policy %v", kept)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("memory.available", "100Mi", "30s", "5%")
	f.Add("pid.available", "0%", "-1h", "1e400%")
	f.Add("nodefs.inodesFree", "Inf%", "", "9223372036854775807Ei")
	f.Fuzz(func(t *testing.T, signal, value, grace, reclaim string) {
		by := func(text string) map[string]string { return map[string]string{signal: text} }
		p, err := Parse(Settings{Hard: by(value), Soft: by(value), SoftGracePeriod: by(grace), MinimumReclaim: by(reclaim)})
		if err != nil {
			return
		}
		for _, th := range p.thresholds {
			if th.signal.urgency() < 0 || th.grace < 0 {
				t.Errorf("threshold %+v", th)
			}
			if got := th.value.of(1000); th.value.quantity == nil && (got < 0 || got > 1000) || got < 0 {
				t.Errorf("%q of 1000 is %d", value, got)
			}
		}
	})
}
