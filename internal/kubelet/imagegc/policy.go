package imagegc

import (
	"time"

	"github.com/distribution/reference"
)

// A Policy says which images go. Its fields are those of KubeletConfiguration
// that begin with image.
type Policy struct {
	// HighThresholdPercent is how full the image filesystem may be before
	// images are removed to make room. Default 85. With 100 none is.
	HighThresholdPercent int
	// LowThresholdPercent is how full the filesystem is to be after that.
	// Default 80; must be lower than the other.
	LowThresholdPercent int
	// MinAge is how long an image is on the machine before it may go to make
	// room: one that was just pulled is about to be used. Default 2 minutes.
	MinAge time.Duration
	// MaxAge is how long an image may be unused. Default 0: any time.
	MaxAge time.Duration
}

// DefaultPolicy returns upstream's defaults.
func DefaultPolicy() Policy {
	return Policy{HighThresholdPercent: 85, LowThresholdPercent: 80, MinAge: 2 * time.Minute}
}

// off reports whether no image ever goes by itself.
func (p Policy) off() bool { return p.HighThresholdPercent >= 100 && p.MaxAge == 0 }

// A Space is the filesystem that holds images, in bytes.
type Space struct{ Capacity, Available int64 }

// usedPercent returns how full the filesystem is.
func (s Space) usedPercent() int {
	return 100 - int(min(s.Available, s.Capacity)*100/s.Capacity)
}

// excess returns how many bytes have to go by the policy, 0 if none.
func (p Policy) excess(s Space) int64 {
	if p.HighThresholdPercent >= 100 || s.usedPercent() < p.HighThresholdPercent {
		return 0
	}
	free := s.Capacity * int64(100-p.LowThresholdPercent) / 100
	return max(0, free-min(s.Available, s.Capacity))
}

// names returns by which names a runtime may list the image that a pod calls
// ref.
func names(ref string) []string {
	all := []string{ref, "sha256:" + ref} // the ID with and without its kind
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return all
	}
	if digested, ok := named.(reference.Digested); ok {
		// The tag beside a digest says nothing.
		return append(all, reference.TrimNamed(named).String()+"@"+digested.Digest().String())
	}
	return append(all, reference.TagNameOnly(named).String())
}
