package staticpod

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/manifest"
)

// TestUIDsOfReleases computes the UIDs that each release gave to the documents
// in testdata/uids/documents. One that changes here restarts that pod of every
// user at their next upgrade, so a file of UIDs is never edited: a release that
// brings new documents adds a file of its own, `UID FILE NODE SOURCE` a line.
func TestUIDsOfReleases(t *testing.T) {
	releases, err := filepath.Glob("testdata/uids/*.txt")
	if err != nil || len(releases) == 0 {
		t.Fatalf("%d releases, %v", len(releases), err)
	}
	known := map[string]bool{}
	for _, release := range releases {
		t.Run(filepath.Base(release), func(t *testing.T) {
			text, err := os.ReadFile(release)
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(text)) {
				f := strings.Fields(line)
				if len(f) != 4 {
					t.Fatalf("line %q has %d fields, want 4", line, len(f))
				}
				known[f[1]] = true
				got, err := UID(document(t, f[1]).Written, f[2], f[3])
				if err != nil {
					t.Fatal(err)
				}
				if string(got) != f[0] {
					t.Errorf("%s on %s from %s: got %s, want %s", f[1], f[2], f[3], got, f[0])
				}
			}
		})
	}
	documents, err := filepath.Glob("testdata/uids/documents/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range documents {
		if name := filepath.Base(path); !known[name] {
			got, _ := UID(document(t, name).Written, "edge-1", SourceFile)
			t.Errorf("no release has the UID of %s; the next one's would be\n%s %s edge-1 file", name, got, name)
		}
	}
}

func document(t *testing.T, name string) manifest.Document {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata/uids/documents", name))
	if err != nil {
		t.Fatal(err)
	}
	r := manifest.New().Parse(name, data)
	if len(r.Faults) > 0 || len(r.Documents) != 1 {
		t.Fatalf("%s: %d documents, %v", name, len(r.Documents), r.Faults)
	}
	return r.Documents[0]
}

// TestUIDOfNewerDefaults gives every field that is empty a value, as a release
// would that defaults them all: not one UID may change.
func TestUIDOfNewerDefaults(t *testing.T) {
	documents, err := filepath.Glob("testdata/uids/documents/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range documents {
		t.Run(filepath.Base(path), func(t *testing.T) {
			d := document(t, filepath.Base(path))
			uid := func(pod *corev1.Pod) types.UID {
				t.Helper()
				static, err := New(pod, d.Written, "edge-1", SourceFile)
				if err != nil {
					t.Fatal(err)
				}
				return static.UID
			}
			pod := d.Object.(*corev1.Pod)
			defaulted := pod.DeepCopy()
			if n := fill(reflect.ValueOf(&defaulted.Spec).Elem(), 0); n < 30 {
				t.Fatalf("only %d fields were given a value", n)
			}
			written := slices.Clone(d.Written)
			if got, want := uid(defaulted), uid(pod); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
			if !bytes.Equal(d.Written, written) {
				t.Error("the document was changed")
			}
		})
	}
}

// fill sets fields that are empty, and returns how many.
func fill(v reflect.Value, depth int) (n int) {
	switch {
	case v.Kind() == reflect.Struct:
		for _, f := range v.Fields() {
			if f.CanSet() {
				n += fill(f, depth)
			}
		}
		return n
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			n += fill(v.Index(i), depth)
		}
		return n
	case v.Kind() == reflect.Pointer && v.IsNil() && depth < 3:
		v.Set(reflect.New(v.Type().Elem()))
		return 1 + fill(v.Elem(), depth+1)
	case !v.IsZero():
		return 0
	case v.Kind() == reflect.String:
		v.SetString("default")
	case v.CanInt():
		v.SetInt(7)
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	default:
		return 0
	}
	return 1
}

// An upgrade may also default what is there: the pod's own UID does not come
// from what it is turned into.
func TestUIDWrittenIsKept(t *testing.T) {
	texts := []string{"i", "j"}
	var got []string
	for _, image := range texts {
		r := manifest.New().Parse("a.yaml", fmt.Appendf(nil, "apiVersion: v1\nkind: Pod\nmetadata: {name: web, uid: mine}\nspec:\n  containers:\n  - {name: c, image: %s}\n", image))
		if len(r.Faults) > 0 {
			t.Fatal(r.Faults)
		}
		static, err := New(r.Documents[0].Object.(*corev1.Pod), r.Documents[0].Written, "n1", SourceFile)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(static.UID), static.Annotations[HashAnnotation])
	}
	if want := []string{"mine", "mine", "mine", "mine"}; !slices.Equal(got, want) {
		t.Errorf("UIDs and hashes: got %v, want %v", got, want)
	}
}
