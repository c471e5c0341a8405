package cgroupfs

import "bytes"

// The names that are read of files with lines "name value".
var (
	v1Names = []string{
		"total_inactive_file", "total_rss", "total_pgfault", "total_pgmajfault", "hierarchical_memory_limit", "total_swap", "hierarchical_memsw_limit",
	}
	v2Names    = []string{"inactive_file", "anon", "pgfault", "pgmajfault"}
	v2CPUNames = []string{"usage_usec"}
)

// parseNumber reads the number that data is. "max" is none.
func parseNumber(data []byte) Value {
	data = bytes.TrimSpace(data)
	if len(data) == 0 || len(data) > 20 {
		return Value{}
	}
	var n uint64
	for _, c := range data {
		digit := uint64(c - '0')
		if c < '0' || c > '9' || n > (1<<64-1-digit)/10 {
			return Value{}
		}
		n = n*10 + digit
	}
	return Value{n, true}
}

// parseStat reads the values of names, in their order, from lines "name value".
func parseStat(data []byte, names []string, into []Value) {
	clear(into)
	for len(data) > 0 {
		line := data
		if i := bytes.IndexByte(data, '\n'); i >= 0 {
			line, data = data[:i], data[i+1:]
		} else {
			data = nil
		}
		space := bytes.IndexByte(line, ' ')
		if space < 0 {
			continue
		}
		for i, name := range names {
			if string(line[:space]) == name {
				into[i] = parseNumber(line[space+1:])
				break
			}
		}
	}
}

// parsePressure reads a file of the kernel's pressure stall information:
//
//	some avg10=0.00 avg60=0.12 avg300=0.00 total=1234
//	full avg10=0.00 avg60=0.00 avg300=0.00 total=0
//
// The machine's own for the processor may lack the second line.
func parsePressure(data []byte) Pressure {
	var p Pressure
	for len(data) > 0 {
		line := data
		if i := bytes.IndexByte(data, '\n'); i >= 0 {
			line, data = data[:i], data[i+1:]
		} else {
			data = nil
		}
		if rest, ok := bytes.CutPrefix(line, []byte("some ")); ok {
			p.Known = parseWaits(rest, &p.Some)
		} else if rest, ok := bytes.CutPrefix(line, []byte("full ")); ok {
			parseWaits(rest, &p.Full)
		}
	}
	if !p.Known {
		return Pressure{}
	}
	return p
}

func parseWaits(line []byte, w *Waits) bool {
	total := false
	for len(line) > 0 {
		field := line
		if i := bytes.IndexByte(line, ' '); i >= 0 {
			field, line = line[:i], line[i+1:]
		} else {
			line = nil
		}
		equals := bytes.IndexByte(field, '=')
		if equals < 0 {
			continue
		}
		value := field[equals+1:]
		switch string(field[:equals]) {
		case "avg10":
			w.Avg10 = parsePercent(value)
		case "avg60":
			w.Avg60 = parsePercent(value)
		case "avg300":
			w.Avg300 = parsePercent(value)
		case "total":
			n := parseNumber(value)
			w.Total, total = n.N, n.Known
		}
	}
	return total
}

// parsePercent reads a number of two decimals, as the kernel writes it.
func parsePercent(data []byte) float64 {
	whole, fraction := data, []byte(nil)
	if before, after, ok := bytes.Cut(data, []byte{'.'}); ok {
		whole, fraction = before, after
	}
	n, f := parseNumber(whole), parseNumber(fraction)
	if !n.Known || len(fraction) > 0 && (!f.Known || len(fraction) != 2) {
		return 0
	}
	return float64(n.N) + float64(f.N)/100
}
