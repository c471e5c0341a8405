package manifest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// fields are the JSON fields of a struct, in the API's order.
type fields struct {
	names  []string
	byName map[string]reflect.StructField
}

// fieldsOf lists a struct's JSON fields, inlined ones included.
func fieldsOf(t reflect.Type) fields {
	f := fields{byName: map[string]reflect.StructField{}}
	f.addAll(t)
	return f
}

func (f *fields) addAll(t reflect.Type) {
	for sf := range t.Fields() {
		name, opts, _ := strings.Cut(sf.Tag.Get("json"), ",")
		switch {
		case name == "-" || !sf.IsExported():
		case name == "" && (sf.Anonymous || strings.Contains(opts, "inline")):
			f.addAll(deref(sf.Type))
		case name != "":
			f.names = append(f.names, name)
			f.byName[name] = sf
		}
	}
}

func deref(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// nearest returns the candidate that is a plausible misspelling away, or "".
func nearest(name string, candidates []string) string {
	best, bestDistance := "", -1
	lower := strings.ToLower(name)
	for _, c := range candidates {
		d := distance(lower, strings.ToLower(c))
		if limit := max(len(name), len(c)) / 3; d > max(limit, 1) {
			continue
		}
		if bestDistance < 0 || d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

// distance counts the insertions, deletions, replacements and swaps of
// neighbours that turn a into b (optimal string alignment).
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return max(len(a), len(b)) // no field name is that long
	}
	before, prev := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(prev[j]+1, row[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, prev = prev, row
	}
	return prev[len(b)]
}

// foreign are words of neighbouring tools and kinds whose field here has another
// name or place, seen from the struct in which they are usually written.
var foreign = map[string]string{
	"environment": "env", "entrypoint": "command", "cmd": "args",
	"env_file": "envFrom", "healthcheck": "livenessProbe", "cap_add": "securityContext.capabilities.add",
	"cap_drop": "securityContext.capabilities.drop", "mem_limit": "resources.limits.memory", "cpus": "resources.limits.cpu",
	"user": "securityContext.runAsUser", "network_mode": "hostNetwork", "restart": "restartPolicy",
	"memory": "resources.limits.memory", "cpu": "resources.limits.cpu", "pullpolicy": "imagePullPolicy",
	"pvc": "persistentVolumeClaim", "targetport": "containerPort", "storage": "resources.requests.storage",
}

// advise says what to write instead of an unknown key: a field of this struct
// that is spelt nearly so, or where the field belongs.
func (c *checker) advise(m member, t reflect.Type, path string) (suggestion, hint string) {
	names := fieldsOf(t).names
	near := nearest(m.name, names)
	if near != "" && distance(strings.ToLower(near), strings.ToLower(m.name)) <= 1 {
		return near, ""
	}
	if word, ok := foreign[strings.ToLower(m.name)]; ok && has(t, word) {
		return "", fmt.Sprintf("here it is %q", word)
	}
	if longer := extended(m, t); longer != "" {
		return longer, ""
	}
	if place, ok := c.belongs(m, path, 0); ok {
		return "", place
	}
	if near != "" {
		return near, ""
	}
	if place, ok := c.belongs(m, path, 1); ok {
		return "", place
	}
	if len(names) > 12 {
		return "", "remove it; see the API reference for the fields of " + cmp.Or(path, c.key.Kind)
	}
	return "", "remove it, or write one of " + strings.Join(names, ", ")
}

// has reports whether a struct has the first step of a path.
func has(t reflect.Type, path string) bool {
	first, _, _ := strings.Cut(path, ".")
	_, ok := fieldsOf(t).byName[first]
	return ok
}

// extended returns the only field of which the key is the beginning or the last
// word, and that takes its value: initialDelay for initialDelaySeconds, name for secretName.
func extended(m member, t reflect.Type) string {
	if len(m.name) < 4 {
		return ""
	}
	last := strings.ToUpper(m.name[:1]) + m.name[1:]
	known := fieldsOf(t)
	var found []string
	for _, c := range known.names {
		longer := strings.HasPrefix(strings.ToLower(c), strings.ToLower(m.name)) || strings.HasSuffix(c, last)
		if longer && takes(known.byName[c].Type, m.value) {
			found = append(found, c)
		}
	}
	if len(found) != 1 {
		return ""
	}
	return found[0]
}

// belongs looks for another place in the object that has a field of this name,
// give or take some letters, and takes such a value.
func (c *checker) belongs(m member, path string, letters int) (string, bool) {
	return c.search(path, func(name string) bool {
		return distance(strings.ToLower(name), strings.ToLower(m.name)) <= letters
	}, m)
}

// A place is a struct in the tree of a kind's type.
type place struct {
	steps    []string // list items as "[]"
	name     string   // of the field
	required bool     // every step is a field that must be written
}

// search returns where a field that fits the value belongs: the place nearest
// to where it was written, required parents first.
func (c *checker) search(path string, fits func(name string) bool, m member) (string, bool) {
	var found []place
	collect(c.root, nil, true, map[reflect.Type]bool{}, func(p place, t reflect.Type) {
		if fits(p.name) && takes(t, m.value) {
			p.steps = slices.Clone(p.steps)
			found = append(found, p)
		}
	})
	from := generalize(pathSteps(path))
	found = slices.DeleteFunc(found, func(p place) bool { return slices.Equal(p.steps, from) })
	if len(found) == 0 {
		return "", false
	}
	best := slices.MinFunc(found, func(a, b place) int {
		return cmp.Or(
			cmp.Compare(treeDistance(from, a.steps), treeDistance(from, b.steps)),
			cmp.Compare(boolOrder(a.required), boolOrder(b.required)),
			cmp.Compare(len(a.steps), len(b.steps)),
		)
	})
	where := "the top level"
	if len(best.steps) > 0 {
		where = fmt.Sprintf("%q", strings.ReplaceAll(strings.Join(best.steps, "."), ".[]", "[]"))
	}
	if best.name != m.name {
		return fmt.Sprintf("the field is %q, and it belongs in %s", best.name, where), true
	}
	return "it belongs in " + where, true
}

// collect visits every field below a struct. A type is not entered inside
// itself, and status is left out: nobody writes it.
func collect(t reflect.Type, steps []string, required bool, inside map[reflect.Type]bool, visit func(place, reflect.Type)) {
	t = deref(t)
	for t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8 {
		steps, t = append(steps, "[]"), deref(t.Elem())
	}
	if t.Kind() != reflect.Struct || inside[t] || len(steps) > 8 || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return
	}
	inside[t] = true
	defer delete(inside, t)
	known := fieldsOf(t)
	for _, name := range known.names {
		f := known.byName[name]
		visit(place{steps, name, required}, f.Type)
		if len(steps) == 0 && name == "status" || name == "managedFields" || name == "ephemeralContainers" {
			continue
		}
		must := required && (name == "metadata" || name == "spec" || !strings.Contains(f.Tag.Get("json"), "omitempty"))
		collect(f.Type, append(slices.Clone(steps), name), must, inside, visit)
	}
}

// takes reports whether a field of type t can hold such a value at all.
func takes(t reflect.Type, v *value) bool {
	t = deref(t)
	switch {
	case v.isNull():
		return true
	case reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()):
		return v.shape == scalar
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return v.shape == mapping
	case reflect.Slice:
		return v.shape == sequence
	default:
		return v.shape == scalar
	}
}

// generalize replaces indexes by "[]".
func generalize(steps []string) []string {
	general := slices.Clone(steps)
	for i, s := range general {
		if s != "" && strings.Trim(s, "0123456789") == "" {
			general[i] = "[]"
		}
	}
	return general
}

// treeDistance counts the steps up and down from one struct to another.
func treeDistance(a, b []string) int {
	a, b = slices.DeleteFunc(slices.Clone(a), isItem), slices.DeleteFunc(slices.Clone(b), isItem)
	common := 0
	for common < min(len(a), len(b)) && a[common] == b[common] {
		common++
	}
	return len(a) + len(b) - 2*common
}

func isItem(step string) bool { return step == "[]" }

func boolOrder(first bool) int {
	if first {
		return 0
	}
	return 1
}
