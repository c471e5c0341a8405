package pullrecords

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

const image, id = "reg.example/a:1", "sha256:1"

var byAnn = kubeletconfig.ImagePullCredentials{KubernetesSecrets: []kubeletconfig.ImagePullSecret{{UID: "u", Namespace: "ns", Name: "ann", CredentialHash: "h"}}}

func open(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := New(dir, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// want checks what is known of the image.
func want(t *testing.T, s *Store, pulled bool, by *kubeletconfig.ImagePullCredentials) {
	t.Helper()
	record, got, err := s.Look(image, id, nil)
	must(t, err)
	if got != pulled {
		t.Errorf("pulled: got %v, want %v", got, pulled)
	}
	switch {
	case by == nil && record != nil && len(record.CredentialMapping) > 0:
		t.Errorf("got a record %v, want nobody in it", record)
	case by != nil && record == nil:
		t.Error("there is no record")
	case by != nil:
		if diff := cmp.Diff(record.CredentialMapping["reg.example/a"], *by); diff != "" {
			t.Errorf("got -, want +:\n%s", diff)
		}
	}
}

func TestPull(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	want(t, s, false, nil)
	must(t, s.Begin(image))
	must(t, s.Begin(image)) // of another pod
	want(t, s, true, nil)
	must(t, s.Add(id, "reg.example/a", byAnn))
	must(t, s.End(image, true))
	if got := testutil.ToFloat64(s.intents); got != 1 {
		t.Errorf("%v pulls, want 1 that goes on", got)
	}
	must(t, s.End(image, true))
	want(t, s, true, &byAnn)
	if intents, records := testutil.ToFloat64(s.intents), testutil.ToFloat64(s.records); intents != 0 || records != 1 {
		t.Errorf("%v pulls and %v records, want 0 and 1", intents, records)
	}
	again := open(t, dir)
	want(t, again, true, &byAnn)
	if records := testutil.ToFloat64(again.records); records != 1 {
		t.Errorf("%v records after a restart, want 1", records)
	}
}

func TestFailedPull(t *testing.T) {
	s := open(t, t.TempDir())
	must(t, s.Begin(image))
	must(t, s.End(image, true))
	want(t, s, false, nil)
}

// TestUnknownEnd: what is there after a pull that nobody saw the end of is no
// image that somebody put there, and stays so when another pull fails.
func TestUnknownEnd(t *testing.T) {
	for name, restart := range map[string]bool{"not known": false, "the agent died": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir)
			must(t, s.Begin(image))
			if restart {
				s = open(t, dir)
			} else {
				must(t, s.End(image, false))
			}
			want(t, s, true, nil)
			must(t, s.Begin(image))
			must(t, s.End(image, true))
			want(t, s, true, nil)
		})
	}
}

// TestNoteStays: a pull that failed says nothing of an earlier one of the same
// image, nor of one beside it.
func TestNoteStays(t *testing.T) {
	for name, begin := range map[string]func(s *Store){
		"before": func(s *Store) {
			must(t, errors.Join(s.Begin(image), s.End(image, false), s.Begin(image), s.End(image, true)))
		},
		"beside": func(s *Store) {
			must(t, errors.Join(s.Begin(image), s.Begin(image), s.End(image, false), s.End(image, true)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, t.TempDir())
			begin(s)
			want(t, s, true, nil)
		})
	}
	s := open(t, t.TempDir())
	must(t, errors.Join(s.Begin(image), s.End(image, false), s.Tidy(nil, time.Now().Add(time.Minute))))
	want(t, s, false, nil) // it never came
	must(t, errors.Join(s.Begin(image), s.End(image, true)))
	want(t, s, false, nil)
}

// TestOtherNames: an image is pulled, whatever a pod calls it.
func TestOtherNames(t *testing.T) {
	const digest = "@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	names := []string{"docker.io/library/a:1", "docker.io/library/a" + digest}
	for _, pull := range []string{"a:1", "docker.io/a:1", "a" + digest, "a:1" + digest} {
		for _, ask := range []string{"a:1", "library/a:1", "a" + digest, "a:2" + digest} {
			s := open(t, t.TempDir())
			must(t, s.Begin(pull))
			if record, pulled, err := s.Look(ask, id, names); record != nil || !pulled || err != nil {
				t.Errorf("%s while %s is pulled: got %v, %v, %v", ask, pull, record, pulled, err)
			}
			must(t, s.End(pull, false))
			if _, pulled, err := s.Look(ask, id, names); !pulled || err != nil {
				t.Errorf("%s after %s was pulled: got %v, %v", ask, pull, pulled, err)
			}
			must(t, s.Tidy([]*runtimeapi.Image{{Id: id, RepoTags: names[:1], RepoDigests: names[1:]}}, time.Now().Add(time.Minute)))
			if record, _, err := s.Look(ask, id, names); record == nil || err != nil {
				t.Errorf("%s has no record of %s (%v)", ask, pull, err)
			}
			if _, pulled, err := s.Look("b:1", "sha256:9", []string{"docker.io/library/b:1"}); pulled || err != nil {
				t.Errorf("another image is pulled: %v, %v", pulled, err)
			}
		}
	}
}

func TestTidy(t *testing.T) {
	there := &runtimeapi.Image{Id: "sha256:2", RepoTags: []string{"docker.io/library/there:latest"}}
	dir := t.TempDir()
	s := open(t, dir)
	must(t, s.Begin("there"))  // was pulled when the agent died
	must(t, s.Begin("absent")) // was not
	s = open(t, dir)
	must(t, s.Begin("goes on"))
	must(t, s.Add(id, "reg.example/a", byAnn))
	must(t, s.Add("sha256:3", "reg.example/b", byAnn))
	tidy := func(images ...*runtimeapi.Image) {
		t.Helper()
		must(t, s.Tidy(images, time.Now().Add(time.Minute)))
	}
	must(t, s.Tidy(nil, time.Now().Add(-time.Minute))) // knows less than the records
	want(t, s, true, &byAnn)
	tidy(there, &runtimeapi.Image{Id: id})
	want(t, s, true, &byAnn)
	if record, pulled, err := s.Look("there", "sha256:2", nil); record == nil || !pulled || err != nil {
		t.Errorf("the image of a pull that was broken off has no record (%v)", err)
	}
	if _, pulled, err := s.Look("absent", "sha256:9", nil); pulled || err != nil {
		t.Errorf("a pull that was broken off is remembered (%v)", err)
	}
	if record, pulled, err := s.Look("goes on", "sha256:9", nil); record != nil || !pulled || err != nil {
		t.Errorf("a pull that goes on is forgotten (%v)", err)
	}
	if _, pulled, err := s.Look("reg.example/b:1", "sha256:3", nil); pulled || err != nil {
		t.Errorf("an image that is gone is remembered (%v)", err)
	}
	tidy(there)
	want(t, s, false, nil)
}

func TestDamage(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	for name, text := range map[string]string{
		"no JSON":         "{",
		"another version": `{"apiVersion":"kubelet.config.k8s.io/v9","kind":"ImagePulledRecord","imageRef":"sha256:1"}`,
		"another kind":    `{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"ImagePullIntent","image":"sha256:1"}`,
		"more fields":     `{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"ImagePulledRecord","imageRef":"sha256:1","onlyOnTuesdays":true}`,
		"another image":   `{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"ImagePulledRecord","imageRef":"sha256:2"}`,
	} {
		t.Run(name, func(t *testing.T) {
			must(t, os.WriteFile(path(s.pulled, id), []byte(text), 0o600))
			if _, pulled, err := s.Look(image, id, nil); err == nil || !pulled {
				t.Errorf("got pulled %v and error %v, want both", pulled, err)
			}
			must(t, s.Add(id, "reg.example/a", byAnn)) // it was pulled again
			want(t, s, true, &byAnn)
		})
	}
}

// TestUpstreamsFile reads what an upstream kubelet wrote, in its place.
func TestUpstreamsFile(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	must(t, s.Begin(image))
	must(t, s.Add(id, "reg.example/a", byAnn))
	var files []string
	must(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if info, _ := d.Info(); err == nil && info.Mode().Perm()&0o077 != 0 && path != dir {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		if err == nil && d.Type().IsRegular() {
			name, _ := filepath.Rel(dir, path)
			files = append(files, name)
		}
		return err
	}))
	wanted := []string{ // the hashes are sha256sum's
		"image_manager/pulled/sha256-51ae7fa00c92525c319404a3a6d400e52ff9372c5a39cb415e0486fe425f3165",
		"image_manager/pulling/sha256-87a7cf96c8418c91910d29ed4744ef5d33f162c22e769e98123619c37cc96384",
	}
	if diff := cmp.Diff(files, wanted); diff != "" {
		t.Errorf("files: got -, want +:\n%s", diff)
	}
	text := `{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1","lastUpdatedTime":"2025-01-02T03:04:05Z","imageRef":"sha256:1","credentialMapping":{"reg.example/a":{"nodePodsAccessible":true}}}`
	must(t, os.WriteFile(path(s.pulled, id), []byte(text), 0o600))
	want(t, s, true, &kubeletconfig.ImagePullCredentials{NodePodsAccessible: true})
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"ImagePulledRecord","imageRef":"sha256:1","credentialMapping":{"a":{"kubernetesSecrets":[{"uid":"u"}]}}}`))
	f.Add([]byte(`{"kind":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var record kubeletconfig.ImagePulledRecord
		if err := decode(data, recordKind, &record); err == nil && (record.Kind != recordKind || record.APIVersion == "") {
			t.Errorf("took %+v", record)
		}
	})
}
