package manifest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
)

// maxFaults is the most faults that one document reports: the first ones are
// what the reader can act on.
const maxFaults = 20

// A decoder reads one document, or one item of a list.
type decoder struct {
	parser  *Parser
	file    string
	inherit typeOf // what a list says of its items
	key     Key    // as far as it is known
	faults  []Fault
}

// typeOf is an object's kind as it is written.
type typeOf struct{ apiVersion, kind string }

// fault adds a fault at a path of the document.
func (d *decoder) fault(line, col int, reason Reason, path, message, suggestion, hint string) {
	if len(d.faults) >= maxFaults {
		return
	}
	d.faults = append(d.faults, Fault{
		Line: line, Column: col, Reason: reason,
		Kind: d.key.Kind, Namespace: d.key.Namespace, Name: d.key.Name,
		Field: path, Message: message, Suggestion: suggestion, Hint: hint,
	})
}

// list reports whether root is a list of objects, and returns its items and
// what they inherit. `List` holds any kind, `PodList` and its like only one.
func (d *decoder) list(root *value) (items []*value, inherit typeOf, ok bool) {
	name := root.str("kind")
	single, isList := strings.CutSuffix(name, "List")
	k, known := d.parser.kinds[single]
	switch {
	case !isList:
		return nil, typeOf{}, false
	case single == "" && root.str("apiVersion") == "v1":
	case known && root.str("apiVersion") == k.gvk.GroupVersion().String():
		inherit = typeOf{root.str("apiVersion"), single}
	default:
		return nil, typeOf{}, false
	}
	d.key.Kind = name
	for _, f := range root.fields {
		if !slices.Contains([]string{"apiVersion", "kind", "metadata", "items"}, f.name) {
			d.fault(f.line, f.col, ReasonUnknownField, f.name, "unknown field", nearest(f.name, []string{"metadata", "items"}), "")
		}
	}
	d.duplicates(root, "")
	list := root.get("items")
	switch {
	case list == nil:
		d.fault(root.line, root.col, ReasonInvalid, "items", "required", "", "write `items: []` for an empty list")
	case list.shape != sequence:
		d.fault(list.line, list.col, ReasonWrongType, "items", "a list is wanted, not "+list.describe(), "", "")
	default:
		items = list.items
	}
	return items, inherit, true
}

// document reads the object at root. It reports false if there are faults.
func (d *decoder) document(root *value) (Document, bool) {
	k, ok := d.identify(root)
	if !ok {
		return Document{}, false
	}
	d.check(root, k.object)
	if len(d.faults) > 0 {
		d.sort()
		return Document{}, false
	}
	written := d.written(root, k)
	doc := Document{
		File: d.file, Line: root.line, Key: d.key, GVK: k.gvk, Written: written, root: root,
	}
	obj, err := d.parser.typed(k, written)
	if err != nil {
		d.fault(root.line, root.col, ReasonWrongType, "", err.Error(), "", "")
		return Document{}, false
	}
	doc.Object = obj
	if d.validate(k, obj, root); len(d.faults) > 0 {
		d.sort()
		return Document{}, false
	}
	return doc, true
}

// sort puts the faults in the order in which they stand in the file.
func (d *decoder) sort() {
	slices.SortStableFunc(d.faults, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// identify finds out what object root is. It reports false if that cannot be
// said.
func (d *decoder) identify(root *value) (kind, bool) {
	if root.shape != mapping {
		d.fault(root.line, root.col, ReasonSyntax, "", "an object is wanted, not "+root.describe(), "", "begin with `apiVersion:` and `kind:`")
		return kind{}, false
	}
	meta := root.get("metadata")
	d.key.Name, d.key.Namespace = meta.str("name"), meta.str("namespace")
	apiVersion := cmp.Or(root.str("apiVersion"), d.inherit.apiVersion)
	name := cmp.Or(root.str("kind"), d.inherit.kind)
	d.key.Kind = name
	if name == "" || apiVersion == "" {
		missing := "kind"
		if name != "" {
			missing = "apiVersion"
		}
		guess, hint := d.guess(root, missing), ""
		if guess == "" {
			hint = "every document begins with `apiVersion:` and `kind:`"
		}
		d.fault(root.line, root.col, ReasonUnsupported, missing, "required", guess, hint)
		return kind{}, false
	}
	k, f := d.parser.resolve(apiVersion, name)
	if f != nil {
		line, col := root.locate(f.Field)
		d.fault(line, col, f.Reason, f.Field, f.Message, f.Suggestion, f.Hint)
		return kind{}, false
	}
	d.key.Group = k.gvk.Group
	if k.namespaced {
		d.key.Namespace = cmp.Or(d.key.Namespace, DefaultNamespace)
	}
	if prefix := meta.str("generateName"); d.key.Name == "" && prefix != "" && d.parser.name != nil {
		d.key.Name = d.parser.name(prefix)
	}
	if d.key.Name == "" {
		line, col := root.locate("metadata.name")
		d.fault(line, col, ReasonInvalid, "metadata.name", "required", "", d.nameHint(root))
		return kind{}, false
	}
	return k, true
}

// guess returns what is missing, where the rest of the document says it.
func (d *decoder) guess(root *value, missing string) string {
	for _, f := range root.fields {
		if f.name != missing && strings.EqualFold(f.name, missing) {
			return missing
		}
	}
	if k, ok := d.parser.kinds[root.str("kind")]; ok && missing == "apiVersion" {
		return "apiVersion: " + k.gvk.GroupVersion().String()
	}
	return ""
}

func (d *decoder) nameHint(root *value) string {
	if meta := root.get("metadata"); meta != nil && meta.get("generateName") != nil {
		return "a file is read again and again, so generateName cannot be used"
	}
	if n := root.get("metadata").get("name"); n != nil && n.shape == scalar && n.data != nil && n.data != "" {
		return "a name is text: put " + n.text + " in quotes"
	}
	return "every object in a file needs a name"
}

// serverFields are the metadata that only a server may set. They come along
// when somebody saves `kubectl get -o yaml`, and mean nothing here.
var serverFields = []string{"creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink"}

// written returns the document as it was written; see Document.Written.
func (d *decoder) written(root *value, k kind) json.RawMessage {
	data := root.generic().(map[string]any)
	delete(data, "status")
	data["apiVersion"], data["kind"] = k.gvk.GroupVersion().String(), k.gvk.Kind
	if meta, ok := data["metadata"].(map[string]any); ok {
		maps.DeleteFunc(meta, func(name string, _ any) bool {
			return slices.Contains(serverFields, name) || name == "uid" && k.gvk.Kind != "Pod"
		})
		if k.namespaced {
			meta["namespace"] = d.key.Namespace
		}
		meta["name"] = d.key.Name
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b) // sorts the keys of maps
	enc.SetEscapeHTML(false)
	if err := enc.Encode(data); err != nil {
		panic(err) // the tree holds nothing that JSON cannot
	}
	return bytes.TrimSpace(b.Bytes())
}

// typed decodes a document and sets upstream's defaults.
func (p *Parser) typed(k kind, written []byte) (runtime.Object, error) {
	obj, err := p.scheme.New(k.gvk)
	if err != nil {
		return nil, err
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(written, obj); err != nil {
		return nil, err
	}
	obj.GetObjectKind().SetGroupVersionKind(k.gvk)
	p.scheme.Default(obj)
	return obj, nil
}

// validate runs upstream's validation and maps what it says to lines.
func (d *decoder) validate(k kind, obj runtime.Object, root *value) {
	internal, err := d.parser.scheme.ConvertToVersion(obj.DeepCopyObject(), schema.GroupVersion{Group: k.gvk.Group, Version: runtime.APIVersionInternal})
	if err != nil {
		d.fault(root.line, root.col, ReasonInvalid, "", err.Error(), "", "")
		return
	}
	if uid := string(internal.(metav1.Object).GetUID()); strings.ContainsAny(uid, "/\\") || uid == "." || uid == ".." {
		line, col := root.locate("metadata.uid")
		d.fault(line, col, ReasonInvalid, "metadata.uid", "may not contain a path", "", "leave it out")
	}
	if internal.(metav1.Object).GetDeletionTimestamp() != nil {
		line, col := root.locate("metadata.deletionTimestamp")
		d.fault(line, col, ReasonInvalid, "metadata.deletionTimestamp", "is set by the API alone", "", "leave it out")
	}
	for _, e := range k.validate(internal) {
		line, col := root.locate(e.Field)
		suggestion, hint := advise(e)
		d.fault(line, col, ReasonInvalid, e.Field, shorten(message(e), 400), suggestion, hint)
	}
}

// message returns what a validation error says.
func message(e *field.Error) string {
	body := e.ErrorBody()
	if e.Type == field.ErrorTypeRequired && e.Detail == "" {
		return "required"
	}
	if body == "" {
		return errors.New(string(e.Type)).Error()
	}
	return lowerFirst(body)
}

// advise returns the nearest supported value, or what to do about an error.
func advise(e *field.Error) (suggestion, hint string) {
	bad := fmt.Sprint(e.BadValue)
	switch e.Type {
	case field.ErrorTypeNotSupported:
		return nearest(bad, quoted(e.Detail)), ""
	case field.ErrorTypeRequired:
		return "", "write this field"
	case field.ErrorTypeForbidden:
		if strings.HasPrefix(e.Detail, "may not be set for containers with empty `spec.os.name`") {
			return "", "write spec.os.name: linux"
		}
		if strings.HasPrefix(e.Detail, "SizeLimit field must be") {
			return "", "write a size, such as 64Mi"
		}
		return "", "leave this field out"
	default:
		return "", ""
	}
}

// quoted returns the parts of s that stand in double quotes.
func quoted(s string) []string {
	var found []string
	parts := strings.Split(s, `"`)
	for i := 1; i < len(parts); i += 2 {
		found = append(found, parts[i])
	}
	return found
}

func lowerFirst(s string) string {
	if s == "" || len(s) > 1 && s[1] >= 'A' && s[1] <= 'Z' {
		return s
	}
	return strings.ToLower(s[:1]) + s[1:]
}
