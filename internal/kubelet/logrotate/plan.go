package logrotate

import (
	"slices"
	"strings"
	"time"
)

// A Policy says when logs are rotated and how much of them is kept. Its fields
// are those of KubeletConfiguration that begin with containerLog.
type Policy struct {
	// MaxSize is how large a log may grow, in bytes, before it is rotated.
	// Default 10 MiB. Negative: no log is rotated.
	MaxSize int64
	// MaxFiles is how many files of one container there are at most, the one
	// that is written to among them. Default 5, at least 2.
	MaxFiles int
	// Workers is how many logs are rotated at once. Default 1.
	Workers int
	// Interval is the time between two looks at the sizes. Default 10 s.
	Interval time.Duration
}

// DefaultPolicy returns upstream's defaults.
func DefaultPolicy() Policy {
	return Policy{MaxSize: 10 << 20, MaxFiles: 5, Workers: 1, Interval: 10 * time.Second}
}

// The ends of the names of rotated logs, as upstream has them, which log
// shippers know: 0.log.20260102-150405, and 0.log.20260102-150405.gz for one
// that is compressed. What ends in .tmp is not ready.
const (
	stampFormat = "20060102-150405"
	compressed  = ".gz"
	unfinished  = ".tmp"
)

// tidy says what becomes of the rotated parts of a log before it is rotated
// once more: which are removed, then which are compressed. The newest stay, so
// many that maxFiles are there after the rotation; they were all there for a
// whole turn of the log, so that whoever reads them had time to.
func tidy(rotated []string, maxFiles int) (remove, compress []string) {
	var parts []string // oldest first: names sort by time
	for _, name := range slices.Sorted(slices.Values(rotated)) {
		switch {
		case strings.HasSuffix(name, unfinished): // of a compression that was cut off
			remove = append(remove, name)
		case !strings.HasSuffix(name, compressed) && slices.Contains(rotated, name+compressed): // only its removal was cut off
			remove = append(remove, name)
		default:
			parts = append(parts, name)
		}
	}
	// The log itself and what it is about to become are two more.
	excess := max(0, len(parts)-max(0, maxFiles-2))
	remove = append(remove, parts[:excess]...)
	for _, name := range parts[excess:] {
		if !strings.HasSuffix(name, compressed) {
			compress = append(compress, name)
		}
	}
	return remove, compress
}

// nextName returns what a log is renamed to. It sorts behind all parts that are
// there, even after the clock was set back.
func nextName(log string, rotated []string, now time.Time) string {
	name := log + "." + now.Format(stampFormat)
	for _, other := range rotated {
		stamp := strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(other, log+"."), unfinished), compressed)
		last, err := time.ParseInLocation(stampFormat, stamp, now.Location())
		if err == nil && !last.Before(now.Truncate(time.Second)) {
			now = last.Add(time.Second)
			name = log + "." + now.Format(stampFormat)
		}
	}
	return name
}
