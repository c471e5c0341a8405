package podlife

import (
	"testing"
	"time"
)

func TestQuantile(t *testing.T) {
	ten := Series{10, 9, 8, 7, 6, 5, 4, 3, 2, 1}
	for _, c := range []struct {
		name string
		s    Series
		q    float64
		want time.Duration
	}{
		{"none", nil, 0.5, 0},
		{"one", Series{7}, 0.9, 7},
		{"smallest", ten, 0, 1},
		{"median of an even number", ten, 0.5, 5},
		{"median of an odd number", Series{3, 1, 2}, 0.5, 2},
		{"nine of ten", ten, 0.9, 9},
		{"largest", ten, 1, 10},
	} {
		if got := c.s.Quantile(c.q); got != c.want {
			t.Errorf("%s: got %d, want %d", c.name, got, c.want)
		}
	}
	if ten[0] != 10 {
		t.Error("Quantile sorted its receiver")
	}
}
