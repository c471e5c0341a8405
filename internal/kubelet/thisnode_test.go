package kubelet

import (
	"testing"
	"time"
)

// TestObjectAge reads what the controllers of a cluster write into the annotation
// node.alpha.kubernetes.io/ttl, and what they do not.
func TestObjectAge(t *testing.T) {
	for annotation, want := range map[string]time.Duration{
		"": time.Minute, "0": time.Minute, "15": time.Minute, "300": 5 * time.Minute,
		"-1": time.Minute, "5m": time.Minute, "99999999999999": time.Minute,
	} {
		if got := objectAge(annotation); got != want {
			t.Errorf("%q: got %v, want %v", annotation, got, want)
		}
	}
}
