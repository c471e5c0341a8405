package resourcemetrics

import (
	"bytes"
	"fmt"
	"strconv"
	"unsafe"
)

// A Sample is one line that was read. Its names are good until the next call of Next.
type Sample struct {
	Series                    Series
	Container, Namespace, Pod []byte // empty where the series has none
	Value                     float64
	TimeMillis                int64 // since 1970; 0: it says none
}

// A Decoder reads the series of one answer. The zero Decoder is ready for Reset; it
// is for one goroutine.
type Decoder struct {
	rest []byte
	line int
	err  error
	text []byte // what escapes were taken out of
}

// Reset has the decoder read data, which must not change until the last Next.
func (d *Decoder) Reset(data []byte) { *d = Decoder{rest: data, text: d.text[:0]} }

// Err returns why Next has returned false before the end: data that is no Prometheus
// text. What was read before it is good.
func (d *Decoder) Err() error { return d.err }

// Next reads on to the next sample of the metrics that are known here, and passes over
// all others. It returns false at the end.
func (d *Decoder) Next(s *Sample) bool {
	for d.err == nil && len(d.rest) > 0 {
		line := d.rest
		if i := bytes.IndexByte(line, '\n'); i >= 0 {
			line, d.rest = line[:i], line[i+1:]
		} else {
			d.rest = nil
		}
		d.line++
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		known, reason := d.sample(line, s)
		if reason != "" {
			d.err = fmt.Errorf("line %d of the resource metrics: %s", d.line, reason)
			return false
		}
		if known {
			return true
		}
	}
	return false
}

// sample reads one line. known is whether its metric is one of ours; reason says what
// is wrong with it.
func (d *Decoder) sample(line []byte, s *Sample) (known bool, reason string) {
	end := bytes.IndexAny(line, "{ \t")
	if end <= 0 {
		return false, "no value"
	}
	series, known := seriesOf(line[:end])
	if !known {
		return false, ""
	}
	*s = Sample{Series: series}
	d.text = d.text[:0]
	rest := bytes.TrimLeft(line[end:], " \t")
	if len(rest) > 0 && rest[0] == '{' {
		if rest, reason = d.labels(rest[1:], s); reason != "" {
			return false, reason
		}
	}
	return true, s.number(bytes.TrimLeft(rest, " \t"))
}

func (s *Sample) number(text []byte) (reason string) {
	number, at := text, []byte(nil)
	if i := bytes.IndexAny(text, " \t"); i >= 0 {
		number, at = text[:i], bytes.TrimLeft(text[i:], " \t")
	}
	var err error
	if s.Value, err = strconv.ParseFloat(view(number), 64); err != nil {
		return "its value is no number"
	}
	if len(at) == 0 {
		return ""
	}
	if s.TimeMillis, err = strconv.ParseInt(view(at), 10, 64); err != nil {
		return "its time is no number of milliseconds"
	}
	return ""
}

// view is a string of the bytes themselves, for a call that does not keep it.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

func seriesOf(name []byte) (Series, bool) {
	for s := range families {
		if string(name) == families[s].name {
			return Series(s), true
		}
	}
	return 0, false
}

// labels reads name="value" pairs up to the closing brace, and returns what follows.
func (d *Decoder) labels(rest []byte, s *Sample) (after []byte, reason string) {
	for {
		rest = bytes.TrimLeft(rest, " \t,")
		if len(rest) == 0 {
			return nil, "its labels have no end"
		}
		if rest[0] == '}' {
			return rest[1:], ""
		}
		equals := bytes.IndexByte(rest, '=')
		if equals < 0 {
			return nil, "a label has no value"
		}
		name := bytes.TrimRight(rest[:equals], " \t")
		rest = bytes.TrimLeft(rest[equals+1:], " \t")
		if len(rest) == 0 || rest[0] != '"' {
			return nil, "a label's value has no quotes"
		}
		value, after, ok := d.quoted(rest[1:])
		if !ok {
			return nil, "a label's value has no end"
		}
		rest = after
		switch string(name) {
		case "container":
			s.Container = value
		case "namespace":
			s.Namespace = value
		case "pod":
			s.Pod = value
		}
	}
}

// quoted reads up to the closing quotation mark. Only what has escapes is copied.
func (d *Decoder) quoted(rest []byte) (value, after []byte, ok bool) {
	end := bytes.IndexAny(rest, `"\`)
	if end < 0 {
		return nil, nil, false
	}
	if rest[end] == '"' {
		return rest[:end], rest[end+1:], true
	}
	start := len(d.text)
	for i := 0; i < len(rest); i++ {
		switch c := rest[i]; {
		case c == '"':
			return d.text[start:len(d.text):len(d.text)], rest[i+1:], true
		case c == '\\' && i+1 < len(rest):
			i++
			if rest[i] == 'n' {
				d.text = append(d.text, '\n')
				continue
			}
			d.text = append(d.text, rest[i])
		default:
			d.text = append(d.text, c)
		}
	}
	return nil, nil, false
}
