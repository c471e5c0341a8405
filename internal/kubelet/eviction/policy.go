package eviction

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Settings are the fields of upstream's KubeletConfiguration that begin with
// eviction, by its names, and mergeDefaultEvictionSettings. The keys are
// signals; amounts are quantities or percentages of the capacity.
type Settings struct {
	Hard              map[string]string // amounts; nil: DefaultHard, empty: none
	MergeDefaults     bool              // Hard is completed with DefaultHard
	Soft              map[string]string // amounts
	SoftGracePeriod   map[string]string // durations: how long a soft threshold is crossed before a pod goes
	MinimumReclaim    map[string]string // amounts: how much more than the threshold is to be left before it is well again
	TransitionPeriod  time.Duration     // how long a condition stays when nothing is crossed any more; default 5 min
	PodsUnbounded     bool              // pods together have no limit of memory that they could come close to
	MaxPodGracePeriod int64             // seconds that a pod gets to end at a soft threshold; 0: the shortest
}

// DefaultHard returns upstream's hard thresholds for Linux.
func DefaultHard() map[string]string {
	return map[string]string{
		string(MemoryAvailable): "100Mi", string(NodeFSAvailable): "10%", string(NodeFSInodesFree): "5%",
		string(ImageFSAvailable): "15%", string(ImageFSInodesFree): "5%",
	}
}

// DefaultTransitionPeriod is upstream's.
const DefaultTransitionPeriod = 5 * time.Minute

// HardInForce returns the hard thresholds with what of the defaults counts.
func (s Settings) HardInForce() map[string]string {
	if s.Hard != nil && !s.MergeDefaults {
		return s.Hard
	}
	all := DefaultHard()
	maps.Copy(all, s.Hard)
	return all
}

// A Policy says when a node has too little of something. It is made by Parse.
type Policy struct {
	thresholds       []threshold // the most pressing signal first, hard before soft
	transitionPeriod time.Duration
	maxPodGrace      int64 // seconds
}

// A threshold is crossed when less than value is left of a signal.
type threshold struct {
	signal  Signal
	value   amount
	soft    bool
	grace   time.Duration // 0 for a hard one
	reclaim *amount       // nil: nothing beyond value
}

// An amount is absolute or a part of the capacity.
type amount struct {
	quantity *resource.Quantity // nil: fraction counts
	fraction float64
}

// of returns the amount for a capacity.
func (a amount) of(capacity int64) int64 {
	if a.quantity != nil {
		return a.quantity.Value()
	}
	return int64(float64(capacity) * a.fraction)
}

// DefaultPolicy returns the policy of a node about which nothing is said.
func DefaultPolicy() Policy {
	p, err := Parse(Settings{})
	if err != nil {
		panic(err) // our own defaults
	}
	return p
}

// Parse returns the policy that settings make, or all that is wrong with them:
// every error begins with the name of the field.
func Parse(s Settings) (Policy, error) {
	p := Policy{transitionPeriod: s.TransitionPeriod, maxPodGrace: s.MaxPodGracePeriod}
	if p.transitionPeriod == 0 {
		p.transitionPeriod = DefaultTransitionPeriod
	}
	var errs []error
	if p.transitionPeriod < 0 {
		errs = append(errs, fmt.Errorf("evictionPressureTransitionPeriod %v must not be negative", s.TransitionPeriod))
	}
	if p.maxPodGrace < 0 {
		errs = append(errs, fmt.Errorf("evictionMaxPodGracePeriod %d must not be negative", s.MaxPodGracePeriod))
	}
	p.thresholds = thresholds("evictionHard", s.HardInForce(), &errs)
	soft := thresholds("evictionSoft", s.Soft, &errs)
	setGrace(soft, s, &errs)
	p.thresholds = append(p.thresholds, soft...)
	setReclaim(p.thresholds, s.MinimumReclaim, &errs)
	if !s.PodsUnbounded {
		p.thresholds = withAllocatable(p.thresholds)
	}
	slices.SortStableFunc(p.thresholds, func(a, b threshold) int { return a.signal.urgency() - b.signal.urgency() })
	if err := errors.Join(errs...); err != nil {
		return Policy{}, err
	}
	return p, nil
}

// thresholds reads amounts by signal; one of 0% or 100% is none, as upstream
// has it.
func thresholds(field string, by map[string]string, errs *[]error) []threshold {
	var all []threshold
	for _, name := range slices.Sorted(maps.Keys(by)) {
		value, err := parseThreshold(name, by[name])
		if err != nil {
			*errs = append(*errs, fmt.Errorf("%s: %w", field, err))
		} else if value != nil {
			all = append(all, threshold{signal: Signal(name), value: *value})
		}
	}
	return all
}

func setGrace(soft []threshold, s Settings, errs *[]error) {
	const field = "evictionSoftGracePeriod"
	for _, name := range slices.Sorted(maps.Keys(s.SoftGracePeriod)) {
		if err := checkSignal(name); err != nil {
			*errs = append(*errs, fmt.Errorf("%s: %w", field, err))
		} else if _, ok := s.Soft[name]; !ok {
			*errs = append(*errs, fmt.Errorf("%s: evictionSoft has no threshold for %s", field, name))
		}
	}
	for i := range soft {
		t := &soft[i]
		t.soft = true
		text, ok := s.SoftGracePeriod[string(t.signal)]
		if !ok {
			*errs = append(*errs, fmt.Errorf("%s: the soft threshold of %s needs a grace period here, such as 2m", field, t.signal))
			continue
		}
		grace, err := time.ParseDuration(text)
		if err != nil || grace < 0 {
			*errs = append(*errs, fmt.Errorf("%s: %s: %q is no length of time, such as 2m", field, t.signal, text))
		}
		t.grace = grace
	}
}

func setReclaim(all []threshold, by map[string]string, errs *[]error) {
	const field = "evictionMinimumReclaim"
	for _, name := range slices.Sorted(maps.Keys(by)) {
		value, err := parseReclaim(name, by[name])
		if err != nil {
			*errs = append(*errs, fmt.Errorf("%s: %w", field, err))
			continue
		}
		found := false
		for i := range all {
			if all[i].signal == Signal(name) {
				all[i].reclaim, found = &value, true
			}
		}
		if !found {
			*errs = append(*errs, fmt.Errorf("%s: there is no threshold for %s, so nothing is reclaimed by it", field, name))
		}
	}
}

// withAllocatable adds the hard thresholds of memory for the memory of all pods,
// as upstream does where it bounds that.
func withAllocatable(all []threshold) []threshold {
	for _, t := range all {
		if t.signal == MemoryAvailable && !t.soft {
			t.signal = AllocatableMemoryAvailable
			all = append(all, t)
		}
	}
	return all
}

func checkSignal(name string) error {
	if slices.Contains(signals, Signal(name)) {
		return nil
	}
	var known []string
	for _, s := range signals {
		known = append(known, string(s))
	}
	return fmt.Errorf("unsupported eviction signal %q (there are %s)", name, strings.Join(known, ", "))
}

// parseThreshold returns the amount of a threshold, nil if it is switched off.
func parseThreshold(name, text string) (*amount, error) {
	if err := checkSignal(name); err != nil {
		return nil, err
	}
	if text == "0%" || text == "100%" {
		return nil, nil
	}
	value, err := parseAmount(text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", name, err)
	case value.quantity != nil && value.quantity.Sign() <= 0:
		return nil, fmt.Errorf("%s: %q must be more than nothing; to have no threshold write 0%%", name, text)
	case value.quantity == nil && (value.fraction < 0 || value.fraction > 1):
		return nil, fmt.Errorf("%s: %q is no percentage: 0%% to 100%%", name, text)
	}
	return &value, nil
}

func parseReclaim(name, text string) (amount, error) {
	if err := checkSignal(name); err != nil {
		return amount{}, err
	}
	value, err := parseAmount(text)
	switch {
	case err != nil:
		return amount{}, fmt.Errorf("%s: %w", name, err)
	case value.quantity != nil && value.quantity.Sign() < 0:
		return amount{}, fmt.Errorf("%s: %q must not be negative", name, text)
	case value.quantity == nil && (value.fraction <= 0 || value.fraction > 1):
		return amount{}, fmt.Errorf("%s: %q must be more than 0%% and at most 100%%", name, text)
	}
	return value, nil
}

func parseAmount(text string) (amount, error) {
	if number, ok := strings.CutSuffix(text, "%"); ok {
		percent, err := strconv.ParseFloat(number, 32)
		if err != nil || percent != percent { // not NaN
			return amount{}, fmt.Errorf("%q is no percentage, such as 10%%", text)
		}
		return amount{fraction: percent / 100}, nil
	}
	quantity, err := resource.ParseQuantity(text)
	if err != nil {
		return amount{}, fmt.Errorf("%q is no quantity, such as 100Mi, and no percentage, such as 10%%", text)
	}
	return amount{quantity: &quantity}, nil
}

// Withheld returns what is kept from pods of a node's capacity, so that its hard
// thresholds are not crossed by what pods ask for: memory and storage.
func (p Policy) Withheld(capacity v1.ResourceList) v1.ResourceList {
	kept := v1.ResourceList{}
	for _, t := range p.thresholds {
		if t.soft {
			continue
		}
		if t.signal == MemoryAvailable || t.signal == NodeFSAvailable {
			whole := capacity[t.signal.resource()]
			kept[t.signal.resource()] = *resource.NewQuantity(t.value.of(whole.Value()), resource.BinarySI)
		}
	}
	return kept
}
