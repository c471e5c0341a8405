package node

import (
	"time"

	"github.com/holdfast-dev/holdfast/internal/kubelet/nodeshutdown"
)

// shutdownPeriods returns how long pods get when the machine goes down, by
// priority; none: they are not ended in order.
func (k *KubeletSettings) shutdownPeriods() []nodeshutdown.Period {
	if len(k.ShutdownGracePeriodByPodPriority) == 0 {
		return nodeshutdown.Periods(k.ShutdownGracePeriod.Duration, k.ShutdownGracePeriodCriticalPods.Duration)
	}
	var periods []nodeshutdown.Period
	for _, p := range k.ShutdownGracePeriodByPodPriority {
		periods = append(periods, nodeshutdown.Period{Priority: p.Priority, Grace: time.Duration(p.ShutdownGracePeriodSeconds) * time.Second})
	}
	return periods
}
