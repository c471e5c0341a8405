package node

import (
	"fmt"
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

// validateShutdown returns what is wrong with the fields of a shutdown, by
// upstream's rules and for what upstream takes without a meaning.
func (k *KubeletSettings) validateShutdown() []error {
	var errs []error
	wrong := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("kubelet."+field+" "+format, args...))
	}
	total, critical := k.ShutdownGracePeriod.Duration, k.ShutdownGracePeriodCriticalPods.Duration
	tooShort := func(field string, period time.Duration) {
		if period != 0 && period < time.Second {
			wrong(field, "%v must be 0, or 1s or more", period)
		}
	}
	tooShort("shutdownGracePeriod", total)
	tooShort("shutdownGracePeriodCriticalPods", critical)
	if critical > total {
		wrong("shutdownGracePeriodCriticalPods", "(%v) is a part of shutdownGracePeriod (%v): it must not be more", critical, total)
	}
	if len(k.ShutdownGracePeriodByPodPriority) > 0 && (total != 0 || critical != 0) {
		wrong("shutdownGracePeriodByPodPriority", "takes the place of shutdownGracePeriod and shutdownGracePeriodCriticalPods: leave these out, or the other")
	}
	seen := map[int32]bool{}
	for i, p := range k.ShutdownGracePeriodByPodPriority {
		field := fmt.Sprintf("shutdownGracePeriodByPodPriority[%d]", i)
		if p.ShutdownGracePeriodSeconds < 0 {
			wrong(field, "shutdownGracePeriodSeconds %d must not be negative", p.ShutdownGracePeriodSeconds)
		}
		if seen[p.Priority] {
			wrong(field, "priority %d is written twice", p.Priority)
		}
		seen[p.Priority] = true
	}
	return errs
}
