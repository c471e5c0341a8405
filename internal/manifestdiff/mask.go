package manifestdiff

import "reflect"

// lastApplied is where kubectl keeps the whole object, values and all.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// mask takes the values out of two versions of a Secret, and leaves which of
// them differ.
func mask(before, after map[string]any) {
	for _, name := range []string{"data", "stringData"} {
		maskValues(mapping(before[name]), mapping(after[name]), func(string) bool { return true })
	}
	annotations := func(doc map[string]any) map[string]any { return mapping(mapping(doc["metadata"])["annotations"]) }
	maskValues(annotations(before), annotations(after), func(name string) bool { return name == lastApplied })
}

func maskValues(before, after map[string]any, secret func(name string) bool) {
	for name, old := range before {
		if !secret(name) {
			continue
		}
		now, both := after[name]
		before[name] = "***"
		switch {
		case both && reflect.DeepEqual(old, now):
			after[name] = "***"
		case both:
			before[name], after[name] = "*** (before)", "*** (after)"
		}
	}
	for name := range after {
		if _, both := before[name]; !both && secret(name) {
			after[name] = "***"
		}
	}
}

// mapping returns v as a mapping; an empty one if it is none.
func mapping(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}
