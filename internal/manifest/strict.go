package manifest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// check compares the document with the API's type: every key must be a field,
// at its place, once, and every value of the field's type.
func (d *decoder) check(root *value, t reflect.Type) {
	c := checker{decoder: d, root: t}
	c.value(root, t, "")
}

// A checker walks a document and its type side by side.
type checker struct {
	*decoder
	root reflect.Type
}

func (c *checker) wrong(v *value, path, want, hint string) {
	is := v.describe()
	if c.private(path) {
		is = v.describeKind()
	}
	c.fault(v.line, v.col, ReasonWrongType, path, fmt.Sprintf("%s is wanted, not %s", want, is), "", hint)
}

// private reports whether the value at path may be a secret: faults are logged
// and become events, which more people read than Secrets.
func (c *checker) private(path string) bool {
	return c.key.Kind == "Secret" || strings.HasSuffix(path, ".value") && strings.Contains(path, ".env[")
}

// duplicates reports the keys that a mapping has more than once.
func (d *decoder) duplicates(v *value, path string) {
	for _, m := range v.again {
		first := v.fields[v.index[m.name]].line
		d.fault(m.line, m.col, ReasonDuplicateKey, child(path, m.name),
			fmt.Sprintf("duplicate key, first written at line %d", first), "", "keep one of the two")
	}
}

func (c *checker) value(v *value, t reflect.Type, path string) {
	c.duplicates(v, path)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case v.isNull():
		return // says nothing, as the API has it
	case reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()):
		c.special(v, t, path)
		return
	}
	switch t.Kind() {
	case reflect.Struct:
		c.object(v, t, path)
	case reflect.Map:
		c.dictionary(v, t, path)
	case reflect.Slice:
		c.list(v, t, path)
	case reflect.String:
		c.text(v, path)
	case reflect.Bool:
		c.boolean(v, path)
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Int8, reflect.Int16, reflect.Uint8:
		c.integer(v, t, path)
	default:
		// No other kind is in these APIs; decoding would refuse a wrong value.
	}
}

func (c *checker) object(v *value, t reflect.Type, path string) {
	if v.shape != mapping {
		c.wrong(v, path, "a mapping", c.mappingHint(v, t))
		return
	}
	known := fieldsOf(t)
	for _, m := range v.fields {
		if f, ok := known.byName[m.name]; ok {
			c.value(m.value, f.Type, child(path, m.name))
			continue
		}
		suggestion, hint := c.advise(m, t, path)
		c.fault(m.line, m.col, ReasonUnknownField, child(path, m.name), "unknown field", suggestion, hint)
	}
}

func (c *checker) mappingHint(v *value, t reflect.Type) string {
	names := fieldsOf(t).names
	if v.shape == sequence {
		return "write its fields without the \"- \""
	}
	if len(names) > 6 {
		names = names[:6]
	}
	return "its fields are " + strings.Join(names, ", ")
}

func (c *checker) dictionary(v *value, t reflect.Type, path string) {
	if v.shape != mapping {
		c.wrong(v, path, "a mapping", "write `name: value` lines below it")
		return
	}
	for _, m := range v.fields {
		c.value(m.value, t.Elem(), child(path, m.name))
	}
}

func (c *checker) list(v *value, t reflect.Type, path string) {
	if t.Elem().Kind() == reflect.Uint8 {
		c.binary(v, path)
		return
	}
	if v.shape != sequence {
		hint := "begin each item with \"- \""
		if v.shape == scalar && !c.private(path) {
			hint = "write [" + v.text + "], or one line a value that begins with \"- \""
		}
		c.wrong(v, path, "a list", hint)
		return
	}
	for i, item := range v.items {
		c.value(item, t.Elem(), index(path, i))
	}
}

func (c *checker) text(v *value, path string) {
	if v.shape != scalar {
		c.wrong(v, path, "text", "begin a text of several lines with \"|\" after the colon")
		return
	}
	if _, ok := v.data.(string); ok {
		return
	}
	hint := "put it in quotes"
	if !c.private(path) {
		hint += fmt.Sprintf(": %q", v.text)
	}
	c.wrong(v, path, "text", hint)
}

func (c *checker) boolean(v *value, path string) {
	if v.shape == scalar {
		if _, ok := v.data.(bool); ok {
			return
		}
	}
	hint := "write true or false"
	if v.text == "true" || v.text == "false" {
		hint = "write " + v.text + " without quotes"
	}
	c.wrong(v, path, "a boolean", hint)
}

func (c *checker) integer(v *value, t reflect.Type, path string) {
	hint := ""
	switch n := v.data.(type) {
	case int64:
		if !reflect.Zero(t).CanInt() || !reflect.Zero(t).OverflowInt(n) {
			return
		}
		hint = fmt.Sprintf("it has at most %d bits", t.Bits())
	case float64:
		// kubectl takes 1.0 for 1.
		if n == math.Trunc(n) && math.Abs(n) < 1<<53 && !reflect.Zero(t).OverflowInt(int64(n)) {
			return
		}
	case string:
		if json.Valid([]byte(n)) {
			hint = "write " + n + " without quotes"
		}
	}
	c.wrong(v, path, "an integer", hint)
}

func (c *checker) binary(v *value, path string) {
	s, ok := v.data.(string)
	if v.shape != scalar || !ok {
		c.wrong(v, path, "base64 text", "")
		return
	}
	if _, err := base64.StdEncoding.DecodeString(strings.NewReplacer("\n", "", "\r", "").Replace(s)); err != nil {
		// The value may be a secret that was written in the wrong field: not shown.
		hint := "encode it with `base64`"
		if c.key.Kind == "Secret" {
			hint = "encode it with `base64`, or write plain text under `stringData`"
		}
		c.fault(v.line, v.col, ReasonWrongType, path, "not base64", "", hint)
	}
}

// special checks a type with a JSON form of its own.
func (c *checker) special(v *value, t reflect.Type, path string) {
	data, err := json.Marshal(v.generic())
	if err == nil {
		err = json.Unmarshal(data, reflect.New(t).Interface())
	}
	if err == nil {
		return
	}
	switch t {
	case reflect.TypeFor[resource.Quantity]():
		c.wrong(v, path, "a quantity", "such as 500m, 2 or 64Mi")
	case reflect.TypeFor[intstr.IntOrString]():
		c.wrong(v, path, "a number or text", "such as 80 or \"http\"")
	case reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.MicroTime]():
		c.wrong(v, path, "a time", "such as 2026-01-02T15:04:05Z")
	case reflect.TypeFor[metav1.Duration]():
		c.wrong(v, path, "a length of time", "such as 30s or 1m30s, with its unit")
	default:
		c.wrong(v, path, "a "+t.Name(), "")
	}
}
