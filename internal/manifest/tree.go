package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

const (
	maxDepth   = 100    // levels of nesting; the API has about a dozen
	maxAliased = 10_000 // values of one document that stand there by alias
)

// shape is what kind of value stands in a document.
type shape int

const (
	scalar shape = iota
	mapping
	sequence
)

// A value is one node of a document: data as JSON knows it, with its place.
type value struct {
	shape     shape
	line, col int
	data      any            // scalar: nil, bool, int64, uint64, float64 or string
	text      string         // scalar: as written
	fields    []member       // mapping; of a key written twice, the first
	again     []member       // mapping: keys that were written before
	index     map[string]int // mapping: from name to fields
	items     []*value       // sequence
}

// A member is one key of a mapping.
type member struct {
	name      string
	line, col int
	value     *value
}

func (v *value) isNull() bool { return v.shape == scalar && v.data == nil }

// get returns the value of a key, or nil.
func (v *value) get(name string) *value {
	if v == nil || v.shape != mapping {
		return nil
	}
	if i, ok := v.index[name]; ok {
		return v.fields[i].value
	}
	return nil
}

// str returns the text of a key's value, or "".
func (v *value) str(name string) string {
	if c := v.get(name); c != nil {
		s, _ := c.data.(string)
		return s
	}
	return ""
}

// describe names the value for a message: `the number 8080`, `a list`.
func (v *value) describe() string {
	if v.shape != scalar || v.data == nil {
		return v.describeKind()
	}
	text := v.text
	if _, ok := v.data.(string); ok {
		text = strconv.Quote(shorten(v.text, 40))
	}
	_, kind, _ := strings.Cut(v.describeKind(), " ")
	return "the " + kind + " " + text
}

// describeKind names what kind of value it is, and not the value.
func (v *value) describeKind() string {
	switch v.shape {
	case mapping:
		return "a mapping"
	case sequence:
		return "a list"
	case scalar:
	}
	switch v.data.(type) {
	case nil:
		return "nothing"
	case bool:
		return "a boolean"
	case string:
		return "a text"
	default:
		return "a number"
	}
}

// generic returns the value as encoding/json would decode it, but for integers,
// which stay exact.
func (v *value) generic() any {
	switch v.shape {
	case mapping:
		m := make(map[string]any, len(v.fields))
		for _, f := range v.fields {
			m[f.name] = f.value.generic()
		}
		return m
	case sequence:
		s := make([]any, len(v.items))
		for i, item := range v.items {
			s[i] = item.generic()
		}
		return s
	case scalar:
	}
	return v.data
}

// locate returns the line and column of a field path in the API's notation, or
// of the nearest enclosing value that is written. Columns and lines are those of
// the key where there is one.
func (v *value) locate(path string) (line, col int) {
	line, col = v.line, v.col
	for _, step := range pathSteps(path) {
		switch v.shape {
		case mapping:
			i, ok := v.index[step]
			if !ok {
				return line, col
			}
			line, col, v = v.fields[i].line, v.fields[i].col, v.fields[i].value
		case sequence:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(v.items) {
				return line, col
			}
			v = v.items[i]
			line, col = v.line, v.col
		case scalar:
			return line, col
		}
	}
	return line, col
}

// pathSteps splits `a.b[0].c[some.key]` into a, b, 0, c, some.key.
func pathSteps(path string) []string {
	var steps []string
	for path != "" {
		switch path[0] {
		case '.':
			path = path[1:]
		case '[':
			step, rest, ok := strings.Cut(path[1:], "]")
			if !ok {
				return append(steps, step)
			}
			steps, path = append(steps, step), rest
		default:
			end := strings.IndexAny(path, ".[")
			if end < 0 {
				end = len(path)
			}
			steps, path = append(steps, path[:end]), path[end:]
		}
	}
	return steps
}

// child returns the path of a key below path.
func child(path, name string) string {
	switch {
	case strings.ContainsAny(name, ".[]/"):
		return path + "[" + name + "]"
	case path == "":
		return name
	default:
		return path + "." + name
	}
}

func index(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }

func shorten(s string, most int) string {
	r := []rune(s)
	if len(r) <= most {
		return s
	}
	return string(r[:most]) + "…"
}

// jsonTree reads one JSON value. It has no more forgiveness than JSON: a
// comment, a trailing comma or a second value is a fault.
func jsonTree(data []byte) (*value, []Fault) {
	b := jsonBuilder{data: data, dec: json.NewDecoder(bytes.NewReader(data)), lines: lineStarts(data)}
	b.dec.UseNumber()
	v, err := b.value(0)
	if err == nil {
		if rest := bytes.TrimSpace(data[b.dec.InputOffset():]); len(rest) > 0 {
			err = errors.New("text after the JSON value")
		}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("the text ends too early")
	}
	if err != nil {
		line, col := b.position(b.dec.InputOffset())
		return nil, []Fault{{
			Line: line, Column: col, Reason: ReasonSyntax,
			Message: "not valid JSON: " + err.Error(), Hint: "check brackets, commas and quotes near this line",
		}}
	}
	return v, nil
}

// jsonBuilder builds a tree from JSON tokens.
type jsonBuilder struct {
	data  []byte
	dec   *json.Decoder
	lines []int // offsets at which lines start
}

func lineStarts(data []byte) []int {
	starts := []int{0}
	for i, c := range data {
		if c == '\n' {
			starts = append(starts, i+1)
		}
	}
	return starts
}

func (b *jsonBuilder) position(offset int64) (line, col int) {
	i, found := slices.BinarySearch(b.lines, int(offset))
	if !found {
		i--
	}
	return i + 1, int(offset) - b.lines[i] + 1
}

// next returns the position at which the next token starts.
func (b *jsonBuilder) next() (line, col int) {
	off := b.dec.InputOffset()
	for off < int64(len(b.data)) && strings.IndexByte(" \t\r\n,:", b.data[off]) >= 0 {
		off++
	}
	return b.position(off)
}

func (b *jsonBuilder) value(depth int) (*value, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("nested deeper than %d levels", maxDepth)
	}
	line, col := b.next()
	tok, err := b.dec.Token()
	if err != nil {
		return nil, err
	}
	v := &value{line: line, col: col}
	switch t := tok.(type) {
	case json.Delim:
		if t == '{' {
			v.shape = mapping
			return v, b.members(v, depth)
		}
		v.shape = sequence
		return v, b.elements(v, depth)
	case json.Number:
		v.text = t.String()
		v.data, err = number(v.text)
		return v, err
	case string:
		v.text, v.data = t, t
	case bool:
		v.text, v.data = strconv.FormatBool(t), t
	}
	return v, nil
}

func (b *jsonBuilder) members(v *value, depth int) error {
	for b.dec.More() {
		line, col := b.next()
		tok, err := b.dec.Token()
		if err != nil {
			return err
		}
		name, _ := tok.(string) // the decoder takes nothing else for a key
		c, err := b.value(depth + 1)
		if err != nil {
			return err
		}
		v.add(member{name, line, col, c})
	}
	_, err := b.dec.Token()
	return err
}

func (b *jsonBuilder) elements(v *value, depth int) error {
	for b.dec.More() {
		c, err := b.value(depth + 1)
		if err != nil {
			return err
		}
		v.items = append(v.items, c)
	}
	_, err := b.dec.Token()
	return err
}

// add appends a member. A key that is there already is put aside: it becomes a
// fault once the path to it is known.
func (v *value) add(m member) {
	if _, ok := v.index[m.name]; ok {
		v.again = append(v.again, m)
		return
	}
	if v.index == nil {
		v.index = map[string]int{}
	}
	v.index[m.name] = len(v.fields)
	v.fields = append(v.fields, m)
}

// number returns the exact integer, or the nearest float.
func number(text string) (any, error) {
	if i, err := strconv.ParseInt(text, 10, 64); err == nil {
		return i, nil
	}
	if u, err := strconv.ParseUint(text, 10, 64); err == nil {
		return u, nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsInf(f, 0) || math.IsNaN(f) {
		return nil, fmt.Errorf("the number %s is out of range", text)
	}
	return f, nil
}
