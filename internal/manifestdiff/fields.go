package manifestdiff

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/manifest"
)

// A Field is one field that is different. A value is as in JSON; nil where the
// field is not there.
type Field struct {
	Path   string `json:"path"` // spec.containers[0].image; the index is the new one
	Before any    `json:"before,omitempty"`
	After  any    `json:"after,omitempty"`
}

// fields returns the fields in which two documents of one object differ, by
// path.
func fields(before, after manifest.Document) []Field {
	old, now := decode(before.Written), decode(after.Written)
	if after.Key.Kind == "Secret" {
		mask(old, now)
	}
	var d differ
	d.compare("", old, now)
	return d
}

// decode returns a document as JSON values, with numbers as they were written.
func decode(written []byte) map[string]any {
	dec := json.NewDecoder(bytes.NewReader(written))
	dec.UseNumber()
	var doc map[string]any
	if err := dec.Decode(&doc); err != nil {
		return nil // Written is an object that was encoded by us
	}
	return doc
}

// A differ collects differences.
type differ []Field

func (d *differ) add(path string, before, after any) {
	*d = append(*d, Field{Path: path, Before: before, After: after})
}

func (d *differ) compare(path string, before, after any) {
	if reflect.DeepEqual(before, after) {
		return
	}
	switch old := before.(type) {
	case map[string]any:
		if now, ok := after.(map[string]any); ok {
			d.mappings(path, old, now)
			return
		}
	case []any:
		if now, ok := after.([]any); ok {
			d.lists(path, old, now)
			return
		}
	}
	d.add(path, before, after)
}

func (d *differ) mappings(path string, before, after map[string]any) {
	all := maps.Clone(before)
	maps.Copy(all, after)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		d.compare(below(path, name), before[name], after[name])
	}
}

var plainName = regexp.MustCompile(`^[\w-]+$`)

// below returns the path of a field of a mapping. A name that is no field's,
// such as a label's, stands in brackets.
func below(path, name string) string {
	switch {
	case !plainName.MatchString(name):
		return path + "[" + name + "]"
	case path == "":
		return name
	default:
		return path + "." + name
	}
}

// lists compares items of the same name, where all have one, or else of the same
// place.
func (d *differ) lists(path string, before, after []any) {
	oldNames, named := names(before)
	nowNames, alsoNamed := names(after)
	if !named || !alsoNamed {
		for i := range max(len(before), len(after)) {
			d.compare(item(path, i), at(before, i), at(after, i))
		}
		return
	}
	for i, name := range nowNames {
		d.compare(item(path, i), at(before, slices.Index(oldNames, name)), after[i])
	}
	for i, name := range oldNames {
		if !slices.Contains(nowNames, name) {
			d.add(item(path, i), before[i], nil)
		}
	}
	both := func(of, in []any) []any {
		return slices.DeleteFunc(slices.Clone(of), func(name any) bool { return !slices.Contains(in, name) })
	}
	if old, now := both(oldNames, nowNames), both(nowNames, oldNames); !slices.Equal(old, now) {
		d.add(path+" (order)", old, now)
	}
}

func item(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }

func at(list []any, i int) any {
	if i < 0 || i >= len(list) {
		return nil
	}
	return list[i]
}

// names returns the names of a list's items, and whether each has one of its own.
func names(list []any) ([]any, bool) {
	all := []any{}
	for _, v := range list {
		m, _ := v.(map[string]any)
		name, ok := m["name"].(string)
		if !ok || slices.Contains(all, any(name)) {
			return nil, false
		}
		all = append(all, name)
	}
	return all, true
}
