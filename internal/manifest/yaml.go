package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A part is the text of one document of a file.
type part struct {
	data []byte
	line int // lines of the file before it
	json bool
	yaml bool // with json: YAML if it is no JSON
}

// split cuts a file at its `---` lines. It is done before parsing, so that a
// syntax error ends one document and not the rest of the file.
func split(file string, data []byte) []part {
	if filepath.Ext(file) == ".json" {
		return []part{{data: data, json: true}}
	}
	if bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) && !hasSeparator(data) {
		return []part{{data: data, json: true, yaml: true}}
	}
	var parts []part
	start, startLine, line := 0, 0, 0
	for off := 0; off < len(data); line++ {
		end := len(data)
		if i := bytes.IndexByte(data[off:], '\n'); i >= 0 {
			end = off + i + 1
		}
		if off > start && isSeparator(data[off:end]) {
			parts = append(parts, part{data: data[start:off], line: startLine})
			start, startLine = off, line
		}
		off = end
	}
	return append(parts, part{data: data[start:], line: startLine})
}

func hasSeparator(data []byte) bool {
	return slices.ContainsFunc(bytes.Split(data, []byte("\n")), isSeparator)
}

func isSeparator(line []byte) bool {
	rest, ok := bytes.CutPrefix(line, []byte("---"))
	return ok && (len(rest) == 0 || bytes.IndexByte([]byte(" \t\r\n"), rest[0]) >= 0)
}

// tree parses the part. No faults and a nil tree mean that it holds only
// comments and directives.
func (p part) tree() (*value, []Fault) {
	if p.json {
		v, faults := jsonTree(p.data)
		if len(faults) == 0 || !p.yaml {
			return v, faults
		}
		// Braces begin YAML's own short form too. JSON comes first, because it
		// may be indented with tabs.
		asYAML := part{data: p.data, line: p.line}
		if v, more := asYAML.tree(); len(more) == 0 || !startsAsJSON(p.data) {
			return v, more
		}
		return nil, faults
	}
	if p.blank() {
		return nil, nil
	}
	dec := yaml.NewDecoder(bytes.NewReader(p.data))
	var doc yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, []Fault{p.syntax(err)}
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		if err == nil {
			err = errors.New("yaml: a second document without a `---` line before it")
		}
		return nil, []Fault{p.syntax(err)}
	}
	if len(doc.Content) == 0 {
		return nil, nil
	}
	b := yamlBuilder{line: p.line}
	v := b.value(doc.Content[0], 0)
	return v, b.faults
}

// startsAsJSON reports whether text in braces begins with a quoted key, as
// somebody writes who means JSON.
func startsAsJSON(data []byte) bool {
	inside := bytes.TrimSpace(bytes.TrimPrefix(bytes.TrimSpace(data), []byte("{")))
	return bytes.HasPrefix(inside, []byte(`"`))
}

// blank reports whether the part has nothing but white space, comments,
// directives and markers.
func (p part) blank() bool {
	for line := range bytes.Lines(p.data) {
		line = bytes.TrimSpace(line)
		if isSeparator(line) || bytes.Equal(line, []byte("...")) {
			line = bytes.TrimSpace(line[3:])
		}
		if len(line) > 0 && line[0] != '#' && line[0] != '%' {
			return false
		}
	}
	return true
}

var yamlLine = regexp.MustCompile(`^line (\d+): `)

// syntaxHints says what to do about the parser's most frequent complaints.
var syntaxHints = []struct{ message, hint string }{
	{"mapping values are not allowed", "a value that contains \": \" needs quotes, or the indentation is wrong"},
	{"did not find expected key", "check the indentation of this line and of the one before it"},
	{"could not find expected ':'", "a key needs a colon and a space after it"},
	{"did not find expected '-' indicator", "the items of a list begin with \"- \" at the same column"},
	{"found character that cannot start any token", "a value that begins with @, ` or % needs quotes"},
	{"found unexpected end of stream", "a quote is not closed, or the file is cut off"},
	{"unknown anchor", "an alias (*name) needs its anchor (&name) in the same document"},
}

// syntax translates an error of the YAML parser.
func (p part) syntax(err error) Fault {
	msg := strings.TrimPrefix(err.Error(), "yaml: ")
	f := Fault{Line: p.line + 1, Reason: ReasonSyntax}
	if m := yamlLine.FindStringSubmatch(msg); m != nil {
		n, _ := strconv.Atoi(m[1])
		f.Line, msg = p.line+n, msg[len(m[0]):]
	}
	f.Message = "not valid YAML: " + msg
	for _, h := range syntaxHints {
		if strings.Contains(msg, h.message) {
			f.Hint = h.hint
		}
	}
	if n, ok := p.tabbed(); ok {
		f.Line, f.Hint = p.line+n, "indent with spaces, not with a tab"
	}
	return f
}

// tabbed returns the first line, from 1, that is indented with a tab.
func (p part) tabbed() (int, bool) {
	n := 0
	for line := range bytes.Lines(p.data) {
		n++
		if indent := line[:len(line)-len(bytes.TrimLeft(line, " \t"))]; bytes.IndexByte(indent, '\t') >= 0 && len(bytes.TrimSpace(line)) > 0 {
			return n, true
		}
	}
	return 0, false
}

// yamlBuilder turns the YAML parser's nodes into our tree: aliases and merge
// keys followed, scalars resolved as kubectl resolves them.
type yamlBuilder struct {
	line    int
	open    []*yaml.Node // anchors whose value is being built
	inAlias int          // aliases that we are inside of
	aliased int          // values built inside aliases
	stop    bool         // a limit was passed: build no more
	faults  []Fault
}

func (b *yamlBuilder) fault(n *yaml.Node, message, hint string) {
	b.faults = append(b.faults, Fault{
		Line: b.line + n.Line, Column: n.Column, Reason: ReasonSyntax, Message: message, Hint: hint,
	})
}

func (b *yamlBuilder) value(n *yaml.Node, depth int) *value {
	v := &value{line: b.line + n.Line, col: n.Column}
	if b.limit(n, depth); b.stop {
		return v
	}
	if n.Anchor != "" {
		b.open = append(b.open, n)
		defer func() { b.open = b.open[:len(b.open)-1] }()
	}
	switch n.Kind {
	case yaml.AliasNode:
		b.inAlias++
		c := *b.value(n.Alias, depth+1)
		b.inAlias--
		c.line, c.col = v.line, v.col // a fault is shown where the alias is used
		return &c
	case yaml.MappingNode:
		v.shape = mapping
		b.members(v, n, depth)
	case yaml.SequenceNode:
		v.shape = sequence
		for _, c := range n.Content {
			v.items = append(v.items, b.value(c, depth+1))
		}
	case yaml.ScalarNode:
		b.scalar(v, n)
	case yaml.DocumentNode:
	}
	return v
}

// limit stops at what a small file can blow up without end.
func (b *yamlBuilder) limit(n *yaml.Node, depth int) {
	if b.inAlias > 0 {
		b.aliased++
	}
	switch {
	case b.stop:
	case depth > maxDepth:
		b.fault(n, fmt.Sprintf("nested deeper than %d levels", maxDepth), "flatten it")
		b.stop = true
	case b.aliased > maxAliased:
		b.fault(n, fmt.Sprintf("aliases (*name) stand for more than %d values", maxAliased), "write fewer of them")
		b.stop = true
	case n.Kind == yaml.AliasNode && slices.Contains(b.open, n.Alias):
		b.fault(n, "the alias *"+n.Value+" stands for a value that contains it", "remove the alias")
		b.stop = true
	}
}

// members fills a mapping. Keys of its own win over merged ones, wherever the
// merge key stands.
func (b *yamlBuilder) members(v *value, n *yaml.Node, depth int) {
	var merges []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, c := n.Content[i], n.Content[i+1]
		if k.Kind == yaml.AliasNode {
			k = k.Alias
		}
		switch {
		case k.Kind != yaml.ScalarNode:
			b.fault(k, "a key must be text", "")
		case k.ShortTag() == "!!merge":
			merges = append(merges, c)
		default:
			v.add(member{k.Value, b.line + k.Line, k.Column, b.value(c, depth+1)})
		}
	}
	for _, m := range merges {
		b.merge(v, m, depth)
	}
}

func (b *yamlBuilder) merge(v *value, n *yaml.Node, depth int) {
	from := b.value(n, depth+1)
	sources := []*value{from}
	if from.shape == sequence {
		sources = from.items
	}
	for _, s := range sources {
		if s.shape != mapping {
			b.fault(n, "a merge key (<<) wants a mapping", "")
			return
		}
		for _, f := range s.fields {
			if v.get(f.name) == nil {
				v.add(f)
			}
		}
	}
}

// booleans are the words that kubectl's YAML takes for booleans beside true and
// false.
var booleans = map[string]bool{
	"y": true, "Y": true, "yes": true, "Yes": true, "YES": true, "on": true, "On": true, "ON": true,
	"n": false, "N": false, "no": false, "No": false, "NO": false, "off": false, "Off": false, "OFF": false,
}

func (b *yamlBuilder) scalar(v *value, n *yaml.Node) {
	v.text = n.Value
	plain := n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) == 0
	switch tag := n.ShortTag(); tag {
	case "!!null":
	case "!!str", "!!timestamp":
		v.data = n.Value
		if word, ok := booleans[n.Value]; ok && plain && n.Style&yaml.TaggedStyle == 0 {
			v.data = word
		}
	case "!!bool", "!!int", "!!float":
		var data any
		if err := n.Decode(&data); err != nil {
			b.fault(n, "not valid YAML: "+strings.TrimPrefix(err.Error(), "yaml: "), "")
			return
		}
		v.data = b.exact(n, data)
	default:
		b.fault(n, "the tag "+tag+" is not supported", "write a plain value")
	}
}

// exact brings a decoded scalar to the types of value.data.
func (b *yamlBuilder) exact(n *yaml.Node, data any) any {
	switch t := data.(type) {
	case int:
		return int64(t)
	case float64:
		if math.IsInf(t, 0) || math.IsNaN(t) {
			b.fault(n, "the number "+n.Value+" has no JSON form", "write a finite number, or quotes around text")
			return nil
		}
		return t
	case bool, int64, uint64, string:
		return t
	default:
		b.fault(n, "not a value that JSON can hold", "")
		return nil
	}
}
