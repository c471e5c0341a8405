package podlife

import (
	"math"
	"slices"
	"time"
)

// A Series are repeated measurements of one thing.
type Series []time.Duration

// Quantile returns the smallest value that at least the share q of all does
// not exceed; 0 of none.
func (s Series) Quantile(q float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	rank := int(math.Ceil(q * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}
