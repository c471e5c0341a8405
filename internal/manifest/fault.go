package manifest

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// A Reason groups faults, for metrics and for events.
type Reason string

// The reasons of faults.
const (
	ReasonUnreadable   Reason = "Unreadable"      // the file or folder could not be read
	ReasonSyntax       Reason = "Syntax"          // not YAML or JSON, or empty
	ReasonUnsupported  Reason = "UnsupportedKind" // an API version or kind that is not taken from a file
	ReasonUnknownField Reason = "UnknownField"    // a field that the API does not know at this place
	ReasonDuplicateKey Reason = "DuplicateKey"    // a key written twice in one mapping
	ReasonWrongType    Reason = "WrongType"       // a number where text is wanted and the like
	ReasonInvalid      Reason = "Invalid"         // refused by the API's validation
	ReasonDuplicate    Reason = "Duplicate"       // an object that another document already defines
	ReasonRefused      Reason = "Refused"         // good, but not allowed from this source
	ReasonNotApplied   Reason = "NotApplied"      // the API did not take it
	ReasonImageArchive Reason = "ImageArchive"    // no manifest, but an archive of images beside them
)

// A Fault is one thing that is wrong with one file, and what to do about it.
type Fault struct {
	File   string `json:"file"`
	Line   int    `json:"line,omitempty"`   // from 1; 0 when the whole file is meant
	Column int    `json:"column,omitempty"` // from 1; 0 when not known
	Reason Reason `json:"reason"`

	// The object, as far as it is known.
	Kind      string `json:"kind,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`

	Field      string `json:"field,omitempty"`      // `spec.containers[0].image`
	Message    string `json:"message"`              // what is wrong
	Suggestion string `json:"suggestion,omitempty"` // the right spelling, where one is near
	Hint       string `json:"hint,omitempty"`       // what to do

	// Since is when the fault was first seen; zero where nobody keeps track.
	Since time.Time `json:"since,omitzero"`
}

// Object returns the object as "Kind namespace/name", as far as it is known.
func (f Fault) Object() string {
	if f.Name == "" || f.Kind == "" {
		return f.Kind + f.Name
	}
	return Key{Kind: f.Kind, Namespace: f.Namespace, Name: f.Name}.String()
}

// String returns the fault as one line: place, object, field, what is wrong and
// what to do.
func (f Fault) String() string {
	var b strings.Builder
	b.WriteString(f.File)
	if f.Line > 0 {
		fmt.Fprintf(&b, ":%d", f.Line)
	}
	b.WriteString(": ")
	if obj := f.Object(); obj != "" {
		b.WriteString(obj + ": ")
	}
	b.WriteString(f.Text())
	return b.String()
}

// Text returns the fault without its place and object.
func (f Fault) Text() string {
	var b strings.Builder
	if f.Field != "" {
		b.WriteString(f.Field + ": ")
	}
	b.WriteString(f.Message)
	if f.Suggestion != "" {
		fmt.Fprintf(&b, "; did you mean %q?", f.Suggestion)
	}
	if f.Hint != "" {
		b.WriteString("; " + f.Hint)
	}
	return b.String()
}

// Identity returns the fault without what an edit elsewhere in the file may
// change, lines that its message names among it: two faults are the same one if
// their identities are equal.
func (f Fault) Identity() Fault {
	f.Line, f.Column, f.Since = 0, 0, time.Time{}
	f.Message = lineInText.ReplaceAllString(f.Message, "${1}0")
	return f
}

// lineInText is a line as messages name it: `at line 7`, `web.yaml:7`.
var lineInText = regexp.MustCompile(`(\bline |\.(?:json|ya?ml):)\d+`)

// Same reports whether two faults are the same one.
func (f Fault) Same(o Fault) bool { return f.Identity() == o.Identity() }
