package control

import "time"

// A Source is one that says which pods run on the node.
type Source struct {
	Name  string      `json:"name"`            // file, http or api
	Place string      `json:"place,omitempty"` // the folder, the URL without credentials, the API's address
	State SourceState `json:"state"`

	// LastGood is when it last answered; zero: not in this run, or not known.
	LastGood time.Time `json:"lastGood,omitzero"`

	// Message says why the state is not SourceGood, and Since since when.
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since,omitzero"`

	Objects []SourceObject `json:"objects"`
	Faults  []Fault        `json:"faults"` // of its documents
	Ignored []IgnoredFile  `json:"ignored,omitempty"`
}

// A SourceState says how a source is. What it last said stays in force in each.
type SourceState string

// The states of a source.
const (
	SourceGood     SourceState = "ok"       // it answers
	SourceFailing  SourceState = "failing"  // it answered, and does not now
	SourceSilent   SourceState = "silent"   // it has never answered, in no run
	SourceRestored SourceState = "restored" // it has not answered in this run; an earlier one remembers
)

// A SourceObject is an object that a source delivers.
type SourceObject struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Pod       string `json:"pod,omitempty"`   // the name that a static pod has on the node
	Place     string `json:"place,omitempty"` // of its document: web.yaml:3
	Kept      bool   `json:"kept,omitempty"`  // it is not given, or its document is not good, now; the last good one is in force

	// LeftOut says that the pod does not run, since another one has its name or
	// UID. A fault of the source says which.
	LeftOut bool `json:"leftOut,omitempty"`
}

// An IgnoredFile is one that is no manifest.
type IgnoredFile struct {
	File   string `json:"file"`
	Reason string `json:"reason"`
}

// Wrong reports whether the source does not answer or says something wrong.
func (s Source) Wrong() bool { return s.State != SourceGood || len(s.Faults) > 0 }
