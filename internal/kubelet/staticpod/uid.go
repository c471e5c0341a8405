package staticpod

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"

	"k8s.io/apimachinery/pkg/types"
)

// UID returns the UID of a document's pod: 128 bits, in hexadecimal, of the
// node, the source (`file`, or the address of a URL) and the document's fields
// as written. Spelling does not count: the order of keys, comments, YAML or
// JSON, and a field that is null or empty, which says the same as one that is
// not there. Nor do status and the node's own annotations. The file's path and
// everything that an API version defaults do not come into it at all.
//
// It fails if written is not one JSON object.
func UID(written []byte, node, source string) (types.UID, error) {
	dec := json.NewDecoder(bytes.NewReader(written))
	dec.UseNumber() // numbers count as written
	var doc map[string]any
	if err := dec.Decode(&doc); err != nil {
		return "", fmt.Errorf("identify a pod: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return "", errors.New("identify a pod: text after the object")
	}
	delete(doc, "status")
	if meta, ok := doc["metadata"].(map[string]any); ok {
		if annotations, ok := meta["annotations"].(map[string]any); ok {
			maps.DeleteFunc(annotations, func(name string, _ any) bool { return ours(name) })
		}
	}
	canonical, err := json.Marshal(prune(doc)) // sorts keys
	if err != nil {
		return "", fmt.Errorf("identify a pod: %w", err)
	}

	h := sha256.New()
	// The first line is the version of this recipe. Changing the recipe
	// recreates every static pod of every user.
	fmt.Fprintf(h, "holdfast static pod 1\nnode %q\nsource %q\n", node, source)
	h.Write(canonical)
	return types.UID(hex.EncodeToString(h.Sum(nil)[:16])), nil
}

// prune drops the keys of mappings whose value is null or empty. Items of lists
// stay: their number and place mean something.
func prune(v any) any {
	switch t := v.(type) {
	case map[string]any:
		for name, c := range t {
			t[name] = prune(c)
		}
		maps.DeleteFunc(t, func(_ string, c any) bool { return empty(c) })
	case []any:
		for i, c := range t {
			t[i] = prune(c)
		}
	}
	return v
}

func empty(v any) bool {
	switch t := v.(type) {
	case nil:
		return true
	case string:
		return t == ""
	case map[string]any:
		return len(t) == 0
	case []any:
		return len(t) == 0
	default:
		return false
	}
}
