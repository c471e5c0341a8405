package podlife

import (
	"fmt"
	"strings"
	"time"
)

// Table is what was measured, for people: ours alone, or beside upstream.
func Table(ours, upstream *Life) string {
	t := newTable(ours, upstream)
	lifeRows(t)
	return t.String()
}

// A table has a row for each value of a T: ours and, unless nil, upstream's.
type table[T any] struct {
	strings.Builder
	ours, upstream *T
}

func newTable[T any](ours, upstream *T) *table[T] {
	t := &table[T]{ours: ours, upstream: upstream}
	if upstream == nil {
		t.WriteString("| | Holdfast |\n|---|---|\n")
	} else {
		t.WriteString("| | Holdfast | upstream | Holdfast : upstream |\n|---|---|---|---|\n")
	}
	return t
}

func (t *table[T]) row(what, form string, value func(*T) float64) {
	a := value(t.ours)
	fmt.Fprintf(t, "| %s | "+form+" |", what, a)
	if t.upstream != nil {
		b := value(t.upstream)
		fmt.Fprintf(t, " "+form+" | %s |", b, ratio(a/b))
	}
	t.WriteString("\n")
}

// ratio has two digits behind the point, or more if those are zero.
func ratio(r float64) string {
	if r < 0.01 {
		return fmt.Sprintf("%.4f", r)
	}
	return fmt.Sprintf("%.2f", r)
}

func (t *table[T]) ms(what string, value func(*T) time.Duration) {
	t.row(what, "%.0f ms", func(v *T) float64 { return float64(value(v)) / float64(time.Millisecond) })
}

func (t *table[T]) rate(what string, pods int, value func(*T) time.Duration) {
	t.row(what+", pods a second", "%.1f", func(v *T) float64 { return float64(pods) / value(v).Seconds() })
}

func (t *table[T]) mib(what string, value func(*T) int64) {
	t.row(what, "%.0f MiB", func(v *T) float64 { return float64(value(v)) / (1 << 20) })
}

func lifeRows(t *table[Life]) {
	t.ms("create → Running, one at a time, p50", func(l *Life) time.Duration { return l.Start.Quantile(0.5) })
	t.ms("create → Running, one at a time, p90", func(l *Life) time.Duration { return l.Start.Quantile(0.9) })
	t.ms("delete → gone, one at a time, p50", func(l *Life) time.Duration { return l.Gone.Quantile(0.5) })
	t.ms("delete → gone, one at a time, p90", func(l *Life) time.Duration { return l.Gone.Quantile(0.9) })
	t.ms(fmt.Sprintf("%d pods at once → all Running, median", Crowd), func(l *Life) time.Duration { return l.Burst.Quantile(0.5) })
	t.ms(fmt.Sprintf("%d pods deleted at once → all gone, median", Crowd), func(l *Life) time.Duration { return l.BurstGone.Quantile(0.5) })
	t.rate(fmt.Sprintf("0 → %d pods", Half), Half, func(l *Life) time.Duration { return l.Fill[0] })
	t.rate(fmt.Sprintf("%d → %d pods", Half, 2*Half), Half, func(l *Life) time.Duration { return l.Fill[1] })
	t.rate(fmt.Sprintf("%d pods deleted at once", 2*Half), 2*Half, func(l *Life) time.Duration { return l.Empty })
	t.ms("processor time of the agent a pod, one at a time, create → gone", func(l *Life) time.Duration { return l.SingleCost.Agent })
	t.ms(fmt.Sprintf("processor time of the agent a pod, 0 → %d, create → Running", 2*Half), func(l *Life) time.Duration { return l.FillCost.Agent })
	t.ms(fmt.Sprintf("processor time of containerd a pod, 0 → %d", 2*Half), func(l *Life) time.Duration { return l.FillCost.Runtime })
	if t.ours.SingleCost.Requests > 0 {
		t.row("requests to the API server a pod, one at a time, create → gone", "%.1f", func(l *Life) float64 { return l.SingleCost.Requests })
	}
	if len(t.ours.Update) > 0 {
		what := fmt.Sprintf("ConfigMap of %d pods changed → file changed in a pod, ", Half)
		t.ms(what+"p50", func(l *Life) time.Duration { return l.Update.Quantile(0.5) })
		t.ms(what+"p99", func(l *Life) time.Duration { return l.Update.Quantile(0.99) })
	}
	t.mib(fmt.Sprintf("resident memory of the agent, %d pods", 2*Half), func(l *Life) int64 { return l.Full.RSS })
	t.mib("anonymous of it", func(l *Life) int64 { return l.Full.Anon })
}
