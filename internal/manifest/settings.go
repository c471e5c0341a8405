package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
)

// Settings are one document that is no object of the API, such as a program's
// configuration, read as strictly as those.
type Settings struct {
	// Written is the document as JSON, without fields that are null in it.
	Written json.RawMessage
	// APIVersion and Kind are what the document says that it is.
	APIVersion, Kind string

	root *value
}

// Line returns the line, from 1, of a field such as `a.b[0]`, or of the nearest
// one around it that is written.
func (s Settings) Line(field string) int {
	line, _ := s.root.locate(field)
	return line
}

// Has reports whether a field is written, and is not null.
func (s Settings) Has(field string) bool {
	v := s.root
	for _, step := range pathSteps(field) {
		v = v.get(step)
	}
	return v != nil && !v.isNull()
}

// ReadSettings reads the one document of a file into the shape of T, a struct:
// every key must be a field of it, at its place, once, and every value of the
// field's type. The file's name is for messages, and tells JSON from YAML.
func ReadSettings[T any](file string, data []byte) (Settings, []Fault) {
	var s Settings
	d := decoder{file: file}
	for _, part := range split(file, data) {
		root, faults := part.tree()
		switch {
		case len(faults) > 0:
			d.faults = append(d.faults, faults...)
		case root == nil || root.isNull(): // comments alone
		case s.root != nil:
			d.fault(root.line, root.col, ReasonDuplicate, "", "a second document", "", "remove it: the file holds one")
		default:
			s.root = root
		}
	}
	if s.root == nil && len(d.faults) == 0 {
		d.fault(1, 1, ReasonSyntax, "", "the file is empty", "", "write apiVersion and kind, and the fields that are wanted")
	}
	if len(d.faults) == 0 {
		d.check(s.root, reflect.TypeFor[T]())
		d.sort()
	}
	if len(d.faults) == 0 {
		s.APIVersion, s.Kind = s.root.str("apiVersion"), s.root.str("kind")
		var err error
		if s.Written, err = json.Marshal(s.root.generic()); err != nil {
			d.fault(s.root.line, s.root.col, ReasonSyntax, "", err.Error(), "", "")
		} else if err := decodes[T](s.Written); err != nil {
			d.fault(s.root.line, s.root.col, ReasonWrongType, "", err.Error(), "", "")
		}
	}
	for i := range d.faults {
		d.faults[i].File = file
	}
	return s, d.faults
}

// decodes says why what passed the check is no T all the same.
func decodes[T any](written []byte) error {
	dec := json.NewDecoder(bytes.NewReader(written))
	dec.DisallowUnknownFields()
	if err := dec.Decode(new(T)); err != nil {
		return fmt.Errorf("not readable: %w", err)
	}
	return nil
}
