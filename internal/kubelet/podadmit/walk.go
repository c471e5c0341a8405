package podadmit

import (
	"fmt"
	"reflect"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// A fieldError names a field that this version does not act on.
type fieldError struct {
	path string
	why  string
}

func (e *fieldError) Error() string { return e.path + ": " + e.why }

// atoms are struct types that are one value.
var atoms = map[reflect.Type]bool{
	reflect.TypeFor[resource.Quantity]():  true,
	reflect.TypeFor[intstr.IntOrString](): true,
	reflect.TypeFor[metav1.Time]():        true,
}

var containerTypes = map[reflect.Type]bool{
	reflect.TypeFor[v1.Container]():                true,
	reflect.TypeFor[v1.EphemeralContainerCommon](): true,
}

// unsupportedField returns the first field that is set and not acted on, or
// nil.
func unsupportedField(spec *v1.PodSpec, have Features) *fieldError {
	return walk(reflect.ValueOf(spec).Elem(), "spec", "", have)
}

// walk checks the fields of a struct. path is what a person would call it, key
// its place in the table.
func walk(s reflect.Value, path, key string, have Features) *fieldError {
	for i := range s.NumField() {
		field, value := s.Type().Field(i), s.Field(i)
		name := jsonName(field)
		if value.IsZero() {
			continue
		}
		if name == "" { // embedded
			if err := walk(value, path, keyOf(value.Type(), key), have); err != nil {
				return err
			}
			continue
		}
		if err := check(value, path+"."+name, join(key, name), have); err != nil {
			return err
		}
	}
	return nil
}

// check checks one field that is set.
func check(value reflect.Value, path, key string, have Features) *fieldError {
	r, ok := fields[key]
	if !ok {
		return &fieldError{path, "this version does not know it"}
	}
	if why := r.refuses(value, have); why != "" {
		return &fieldError{path, why}
	}
	if r.whole {
		return nil
	}
	return descend(value, path, key, have)
}

// descend checks what is below a field: the structs that it holds.
func descend(value reflect.Value, path, key string, have Features) *fieldError {
	switch value.Kind() {
	case reflect.Pointer:
		return descend(value.Elem(), path, key, have)
	case reflect.Slice:
		if !isStruct(value.Type().Elem()) {
			return nil
		}
		for i := range value.Len() {
			if err := walk(value.Index(i), fmt.Sprintf("%s[%d]", path, i), keyOf(value.Type().Elem(), key), have); err != nil {
				return err
			}
		}
		return nil
	case reflect.Struct:
		if !isStruct(value.Type()) {
			return nil
		}
		return walk(value, path, keyOf(value.Type(), key), have)
	default:
		return nil
	}
}

// keyOf returns where the table has the fields of a struct that stands at key:
// all containers stand at one place, and so do all hooks.
func keyOf(t reflect.Type, key string) string {
	switch {
	case containerTypes[t]:
		return "container"
	case t == reflect.TypeFor[v1.LifecycleHandler]():
		return "hook"
	default:
		return key
	}
}

func isStruct(t reflect.Type) bool { return t.Kind() == reflect.Struct && !atoms[t] }

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

func join(key, name string) string {
	if key == "" {
		return name
	}
	return key + "." + name
}
