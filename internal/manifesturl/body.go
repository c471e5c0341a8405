package manifesturl

import (
	"bytes"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/manifest"
)

// parse reads a body that is not blank. It returns a failure if that says
// nothing about pods at all.
func (u *URL) parse(r response) (answer, error) {
	if bytes.HasPrefix(bytes.TrimSpace(r.body), []byte("<")) {
		return answer{}, failed("see what answers there: a proxy, a login page?", "the answer is a web page, not manifests")
	}
	// A URL may end in .json and give YAML: its name says nothing.
	reading := u.cfg.Parser.Parse("", r.body)
	a := answer{faults: reading.Faults}
	if r.signature != nil {
		a.signed = &signed{Body: r.body, Signature: r.signature}
	}
	for _, d := range reading.Documents {
		d.File = u.address
		var faults []manifest.Fault
		if u.cfg.Check != nil {
			faults = u.cfg.Check(d)
		}
		if len(faults) > 0 {
			a.faults = append(a.faults, faults...)
		} else {
			a.documents = append(a.documents, d)
		}
	}
	for i := range a.faults {
		a.faults[i].File = u.address
	}
	if len(a.documents)+len(a.faults) == 0 && !emptyList(reading) {
		return answer{}, failed("serve an empty list to remove every pod: {apiVersion: v1, kind: List, items: []}", "the answer names no pod")
	}
	a.doubtful = doubtful(a)
	return a, nil
}

// emptyList reports whether a reading without objects is of lists that may hold
// pods.
func emptyList(r manifest.Reading) bool {
	return len(r.Lists) > 0 && !slices.ContainsFunc(r.Lists, func(kind string) bool { return kind != "List" && kind != "PodList" })
}

// doubtful reports whether an answer may be a part of what was meant. An answer
// that came whole can still have been made of a file that was not. So a fault
// that names no object raises doubt: nobody knows what stands behind it. So does
// a fault in the last document, which is how YAML looks that was cut, and an
// answer that is nothing but faults.
func doubtful(a answer) bool {
	last := 0
	for _, d := range a.documents {
		last = max(last, d.Line)
	}
	if len(a.documents) == 0 && len(a.faults) > 0 {
		return true
	}
	return slices.ContainsFunc(a.faults, func(f manifest.Fault) bool {
		switch {
		case f.Kind == "" || f.Name == "":
			return true
		case f.Reason == manifest.ReasonRefused || f.Reason == manifest.ReasonUnsupported:
			return false
		default:
			return f.Line > last
		}
	})
}
