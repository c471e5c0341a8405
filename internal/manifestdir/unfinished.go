package manifestdir

import (
	"bytes"
	"path"
	"time"

	"github.com/holdfast-dev/holdfast/internal/manifest"
)

// A sighting is when a file that ends inside a line was first seen like this.
type sighting struct {
	print fingerprint
	since time.Time
}

// unfinished returns for how long a file must still be left alone because it
// may be half-written; 0 if it may be taken.
//
// A YAML file that is cut off is mostly good YAML: only a value is shorter, or
// fields are missing. Writers write in blocks, which hardly ever end with a
// line. So a file that ends inside a line is taken when it has stood still for
// the settle time.
func (s *scanner) unfinished(name string, print fingerprint, modified time.Time, data []byte) time.Duration {
	if !endsInsideLine(name, data) {
		delete(s.cutOff, name)
		return 0
	}
	seen, ok := s.cutOff[name]
	if !ok || seen.print != print {
		seen = sighting{print: print, since: time.Now()}
		// What was last written long ago need not be watched.
		if age := time.Since(modified); age > s.settle {
			seen.since = seen.since.Add(-s.settle)
		}
		s.cutOff[name] = seen
	}
	return max(0, s.settle-time.Since(seen.since))
}

// endsInsideLine reports whether the last line has no end and might go on. JSON
// says itself where it ends, and what is too large is so however it ends.
func endsInsideLine(name string, data []byte) bool {
	text := bytes.TrimSpace(data)
	if len(text) == 0 || len(data) > manifest.MaxFileSize || path.Ext(name) == ".json" || text[0] == '{' && text[len(text)-1] == '}' {
		return false
	}
	last := data[len(data)-1]
	return last != '\n' && last != '\r'
}
