// Package manifest reads Kubernetes objects from the bytes of a file: YAML with
// any number of documents, JSON, and lists of either.
//
// Reading is strict. A field that the API does not know, a field at the wrong
// place, a key written twice, a value of the wrong type, and whatever upstream's
// own validation refuses become a [Fault] that names file, line, object and
// field and says what to do. A faulty document costs only itself.
//
// An object that is returned carries upstream's defaults and has passed
// upstream's validation. Beside it stands the document as it was written, which
// is what server-side apply sends and what identity is computed from: neither
// may change because a newer release knows one more default.
//
// The package does no I/O. A [Parser] is read-only after [New] and may be used
// by several goroutines at once.
package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// MaxFileSize is the most bytes that one file may have; upstream's limit for
// static pod files.
const MaxFileSize = 10 << 20

// A Key is the identity of an object inside one cluster.
type Key struct {
	Group, Kind     string
	Namespace, Name string // Namespace is empty for a cluster-wide kind
}

// String returns "Kind namespace/name", or "Kind name" for a cluster-wide kind.
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Kind + " " + k.Name
	}
	return k.Kind + " " + k.Namespace + "/" + k.Name
}

// A Document is one object that was read and found good. Its contents are
// shared: a reader that wants to change Object or Written copies it first.
type Document struct {
	File string // as given to Parse
	Line int    // of the document's first key, from 1
	Key  Key
	GVK  schema.GroupVersionKind

	// Object is the typed object of the external version (a *v1.Pod and so on),
	// with upstream's defaults.
	Object runtime.Object

	// Written is the document as JSON with sorted keys, nothing defaulted and
	// nothing left out but what only a server may set: status and, in the
	// metadata, creationTimestamp, generation, managedFields, resourceVersion,
	// selfLink and the UID of anything but a pod. The effective namespace is
	// filled in.
	Written json.RawMessage

	root *value // positions; nil when the document was restored
}

// Equal reports whether two documents say the same and stand at the same place.
func (d Document) Equal(o Document) bool {
	return d.File == o.File && d.Line == o.Line && d.Key == o.Key && bytes.Equal(d.Written, o.Written)
}

// Meta returns the object's metadata.
func (d Document) Meta() metav1.Object { return d.Object.(metav1.Object) }

// Fault returns a fault of this document at a field (in the API's notation,
// `spec.volumes[0].secret`), for what a later reader of the document finds.
func (d Document) Fault(reason Reason, fieldPath, message, hint string) Fault {
	f := Fault{
		File: d.File, Line: d.Line, Reason: reason,
		Kind: d.Key.Kind, Namespace: d.Key.Namespace, Name: d.Key.Name,
		Field: fieldPath, Message: message, Hint: hint,
	}
	if d.root != nil {
		f.Line, f.Column = d.root.locate(fieldPath)
	}
	return f
}

// A Reading is what one file holds.
type Reading struct {
	Documents []Document // in the file's order
	Faults    []Fault    // in the file's order
	// Lists are the kinds of the lists in the file, also of empty ones: List,
	// PodList. They tell a list of nothing from a file of comments.
	Lists []string
}

// A Parser reads files.
type Parser struct {
	scheme *runtime.Scheme
	kinds  map[string]kind
	name   func(prefix string) string // nil: every object is written with its name
}

// Naming returns a parser that takes generateName, too: name makes a whole name
// of it. It is for files that are read once.
func (p *Parser) Naming(name func(prefix string) string) *Parser {
	return &Parser{scheme: p.scheme, kinds: p.kinds, name: name}
}

// Parse reads one file. The name is used for messages and to tell JSON
// (`.json`) from YAML. A file of no bytes or of white space is a fault, not an
// empty set: it is what a truncated write leaves behind.
func (p *Parser) Parse(file string, data []byte) Reading {
	var r Reading
	if len(data) > MaxFileSize {
		r.Faults = append(r.Faults, Fault{
			File: file, Line: 1, Reason: ReasonSyntax,
			Message: fmt.Sprintf("larger than %d MiB", MaxFileSize>>20), Hint: "split it into several files",
		})
		return r
	}
	if len(bytes.TrimSpace(data)) == 0 {
		r.Faults = append(r.Faults, Fault{
			File: file, Line: 1, Reason: ReasonSyntax,
			Message: "the file is empty", Hint: "delete the file to remove what it held",
		})
		return r
	}
	for _, part := range split(file, data) {
		root, faults := part.tree()
		if len(faults) > 0 {
			r.addFaults(file, faults)
			continue
		}
		if root == nil || root.isNull() {
			continue // a document of comments
		}
		p.read(&r, file, root)
	}
	return r
}

// maxFileFaults is the most faults that one file reports.
const maxFileFaults = 50

func (r *Reading) addFaults(file string, faults []Fault) {
	for _, f := range faults {
		f.File = file
		switch {
		case len(r.Faults) < maxFileFaults:
			r.Faults = append(r.Faults, f)
		case len(r.Faults) == maxFileFaults:
			r.Faults = append(r.Faults, Fault{
				File: file, Line: f.Line, Reason: f.Reason,
				Message: "more faults follow", Hint: "mend those before this line first",
			})
		}
	}
}

// read adds the object at root, or the items of the list at root, to r.
func (p *Parser) read(r *Reading, file string, root *value) {
	d := decoder{parser: p, file: file}
	if items, inherit, ok := d.list(root); ok {
		r.addFaults(file, d.faults)
		r.Lists = append(r.Lists, d.key.Kind)
		for _, item := range items {
			d := decoder{parser: p, file: file, inherit: inherit}
			d.one(r, item)
		}
		return
	}
	d.one(r, root)
}

// one adds the single object at root to r.
func (d *decoder) one(r *Reading, root *value) {
	if doc, ok := d.document(root); ok {
		r.Documents = append(r.Documents, doc)
		return
	}
	r.addFaults(d.file, d.faults)
}

// Restore makes a document from what an earlier reading wrote down. It is
// decoded and defaulted, but neither checked strictly nor validated: it passed
// when it was written, and a newer release must not take down what runs.
func (p *Parser) Restore(file string, line int, written []byte) (Document, error) {
	root, faults := jsonTree(written)
	if len(faults) > 0 {
		return Document{}, fmt.Errorf("restore a document of %s: %s", file, faults[0].Message)
	}
	d := decoder{parser: p, file: file}
	k, ok := d.identify(root)
	if !ok {
		return Document{}, fmt.Errorf("restore a document of %s: %s", file, d.faults[0].Message)
	}
	doc := Document{File: file, Line: line, Key: d.key, GVK: k.gvk, Written: d.written(root, k)}
	obj, err := p.typed(k, doc.Written)
	if err != nil {
		return Document{}, fmt.Errorf("restore %s of %s: %w", doc.Key, file, err)
	}
	doc.Object = obj
	return doc, nil
}

// IsManifest reports whether a file of this base name is read at all: `.yaml`,
// `.yml` and `.json`, but neither hidden files nor what an editor or a copy
// leaves beside a manifest (`web.yaml~`, `web.yaml.bak`, `#web.yaml#`, `.web.yaml.swp`).
func IsManifest(base string) bool {
	if strings.HasPrefix(base, ".") || strings.HasPrefix(base, "#") {
		return false
	}
	dot := strings.LastIndexByte(base, '.')
	return dot > 0 && slices.Contains([]string{".yaml", ".yml", ".json"}, base[dot:])
}
