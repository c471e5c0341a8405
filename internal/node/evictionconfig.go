package node

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/eviction"
)

// EvictionSettings are the fields of KubeletSettings that say when the node is
// low on memory, disk or process identifiers, and how pods end because of it.
// The keys are signals: memory.available, allocatableMemory.available,
// nodefs.available, nodefs.inodesFree, imagefs.available, imagefs.inodesFree,
// containerfs.available, containerfs.inodesFree and pid.available. An amount is a
// quantity or a percentage of the capacity.
type EvictionSettings struct {
	// EvictionHard are the amounts below which a pod is ended at once. Default
	// memory.available 100Mi, nodefs.available 10%, nodefs.inodesFree 5%,
	// imagefs.available 15%, imagefs.inodesFree 5%. Where it is given it stands for
	// all of them; 0% and 100% are no threshold.
	EvictionHard map[string]string `json:"evictionHard,omitempty"`
	// MergeDefaultEvictionSettings completes EvictionHard with the defaults of the
	// signals that it does not name. Default false.
	MergeDefaultEvictionSettings *bool `json:"mergeDefaultEvictionSettings,omitempty"`
	// EvictionSoft are the amounts below which a pod is ended after a while.
	// Default none.
	EvictionSoft map[string]string `json:"evictionSoft,omitempty"`
	// EvictionSoftGracePeriod is that while, such as 2m, of each signal of
	// EvictionSoft.
	EvictionSoftGracePeriod map[string]string `json:"evictionSoftGracePeriod,omitempty"`
	// EvictionMinimumReclaim is how much more than a threshold is to be left again
	// before it counts as reached. Default nothing.
	EvictionMinimumReclaim map[string]string `json:"evictionMinimumReclaim,omitempty"`
	// EvictionPressureTransitionPeriod is how long the node keeps a condition
	// when nothing is low any more. Default 5m, which 0 is too.
	EvictionPressureTransitionPeriod metav1.Duration `json:"evictionPressureTransitionPeriod,omitzero"`
	// EvictionMaxPodGracePeriod is how many seconds at most a pod gets to end at a
	// soft threshold. Default 0: as few as possible, as at a hard one.
	EvictionMaxPodGracePeriod int32 `json:"evictionMaxPodGracePeriod,omitempty"`
}

// policy returns the policy that the settings make, or all that is wrong.
func (e *EvictionSettings) policy() (eviction.Policy, error) { return eviction.Parse(e.settings()) }

func (e *EvictionSettings) settings() eviction.Settings {
	return eviction.Settings{
		Hard: e.EvictionHard, MergeDefaults: e.MergeDefaultEvictionSettings != nil && *e.MergeDefaultEvictionSettings,
		Soft: e.EvictionSoft, SoftGracePeriod: e.EvictionSoftGracePeriod, MinimumReclaim: e.EvictionMinimumReclaim,
		TransitionPeriod: e.EvictionPressureTransitionPeriod.Duration, MaxPodGracePeriod: int64(e.EvictionMaxPodGracePeriod),
	}
}

func (e *EvictionSettings) validate() []error {
	_, err := e.policy()
	if err == nil {
		return nil
	}
	var errs []error
	for line := range strings.Lines(err.Error()) {
		errs = append(errs, fmt.Errorf("kubelet.%s", strings.TrimSuffix(line, "\n")))
	}
	return errs
}
