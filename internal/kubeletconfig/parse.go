package kubeletconfig

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
)

// parse reads the text of a field's flag, in upstream's form for a type, into what
// encoding/json would read.
func parse(t reflect.Type, r rule, text string) (any, error) {
	switch t {
	case reflect.TypeFor[metav1.Duration](), reflect.TypeFor[logsapi.TimeOrMetaDuration]():
		d, err := time.ParseDuration(text)
		if err != nil {
			return nil, fmt.Errorf("%q is no length of time, such as 30s or 1m30s", text)
		}
		return d.String(), nil
	case reflect.TypeFor[[]v1.Taint]():
		return parseTaints(text)
	case reflect.TypeFor[map[string][]string]():
		return parseHeaders(text)
	}
	switch t.Kind() {
	case reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return nil, fmt.Errorf("%q is neither true nor false", text)
		}
		return b, nil
	case reflect.Int32, reflect.Int64, reflect.Uint32:
		n, err := strconv.ParseInt(text, 0, 64)
		if err != nil || t.Kind() == reflect.Int32 && n != int64(int32(n)) || t.Kind() == reflect.Uint32 && n != int64(uint32(n)) { //nolint:gosec // that is what is asked
			return nil, fmt.Errorf("%q is no integer of this size", text)
		}
		return n, nil
	case reflect.String:
		return text, nil
	case reflect.Map:
		return parseMap(t, r, text)
	case reflect.Slice:
		if t.Elem().Kind() == reflect.String {
			return parseList(text), nil
		}
	default:
	}
	return nil, fmt.Errorf("not possible: %s", r.instead) // no other is in a field that is honoured
}

// typeName names what parse wants, for the help.
func typeName(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[metav1.Duration](), t == reflect.TypeFor[logsapi.TimeOrMetaDuration]():
		return "duration"
	case t.Kind() == reflect.Bool:
		return "bool"
	case t.Kind() == reflect.Map:
		return "mapping"
	case t.Kind() == reflect.Slice:
		return "list"
	case t.Kind() == reflect.String:
		return "string"
	default:
		return "int"
	}
}

// parseList reads `a,b`.
func parseList(text string) []any {
	list := []any{}
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			list = append(list, item)
		}
	}
	return list
}

// parseMap reads `a=b,c=d`, or `a<b,c<d` for amounts of evictions.
func parseMap(t reflect.Type, r rule, text string) (map[string]any, error) {
	between := "="
	if r.field == "evictionHard" || r.field == "evictionSoft" {
		between = "<"
	}
	all := map[string]any{}
	for _, item := range parseList(text) {
		name, value, ok := strings.Cut(item.(string), between)
		if name, value = strings.TrimSpace(name), strings.TrimSpace(value); !ok || name == "" {
			return nil, fmt.Errorf("%q is not of the form name%svalue", item, between)
		}
		if t.Elem().Kind() != reflect.Bool {
			all[name] = value
			continue
		}
		b, err := strconv.ParseBool(value)
		if err != nil {
			return nil, fmt.Errorf("%s: %q is neither true nor false", name, value)
		}
		all[name] = b
	}
	return all, nil
}

// parseHeaders reads `Name:value,Name:value`.
func parseHeaders(text string) (map[string]any, error) {
	all := map[string]any{}
	for _, item := range parseList(text) {
		name, value, ok := strings.Cut(item.(string), ":")
		if !ok || name == "" {
			return nil, errors.New("a header is not of the form Name:value") // its value may be a secret
		}
		before, _ := all[name].([]any)
		all[name] = append(before, value)
	}
	return all, nil
}

// parseTaints reads `key=value:effect,key:effect`.
func parseTaints(text string) ([]any, error) {
	taints := []any{}
	for _, item := range parseList(text) {
		rest, effect, ok := strings.Cut(item.(string), ":")
		if !ok || rest == "" || effect == "" {
			return nil, fmt.Errorf("%q is no taint, such as dedicated=gpu:NoSchedule", item)
		}
		taint := map[string]any{"effect": effect}
		key, value, ok := strings.Cut(rest, "=")
		if taint["key"] = key; ok && value != "" {
			taint["value"] = value
		}
		taints = append(taints, taint)
	}
	return taints, nil
}
