package control

// A Check says what is wrong with manifests that no node has read.
type Check struct {
	Documents int           `json:"documents"` // that are good
	Files     int           `json:"files"`     // that were read
	Faults    []Fault       `json:"faults"`
	Ignored   []IgnoredFile `json:"ignored"`
}
