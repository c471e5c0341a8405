package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podadmit"
	"github.com/holdfast-dev/holdfast/internal/manifest"
)

// everything are the features that a node has on every host.
var everything = podadmit.Node{Features: podadmit.Features{Probes: true, ActiveDeadline: true, ReadinessGates: true}}

// check fails if text, a manifest, has a fault or a pod that a node refuses.
func check(t *testing.T, name, text string) {
	t.Helper()
	result := manifest.New().Parse(name, []byte(text))
	for _, fault := range result.Faults {
		t.Error(fault)
	}
	if len(result.Documents) == 0 {
		t.Errorf("%s holds nothing", name)
	}
	for _, doc := range result.Documents {
		pod, ok := doc.Object.(*v1.Pod)
		if !ok {
			continue
		}
		pod = pod.DeepCopy()
		pod.UID = "uid"
		if refusal := podadmit.Admit(everything, pod, nil); refusal != nil {
			t.Errorf("%s: pod %s is refused: %s: %s", name, pod.Name, refusal.Reason, refusal.Message)
		}
	}
}

func TestExamples(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(root, "examples", "*.yaml"))
	if err != nil || len(paths) < 5 {
		t.Fatalf("examples: %v, %v", paths, err)
	}
	names := map[manifest.Key]string{}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			check(t, filepath.Base(path), string(text))
			for _, doc := range manifest.New().Parse("x.yaml", text).Documents {
				if other, taken := names[doc.Key]; taken {
					t.Errorf("%s is in %s too: not all examples can be copied at once", doc.Key, other)
				}
				names[doc.Key] = filepath.Base(path)
			}
		})
	}
}

var block = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```\n")

// TestManifestsInPages holds that what a reader may copy is good: every block
// that begins like an object of the API. Blocks in which something is wrong on
// purpose begin with a comment, see TestFaultsInPages.
func TestManifestsInPages(t *testing.T) {
	for name, text := range pages(t) {
		for _, match := range block.FindAllStringSubmatch(text, -1) {
			if strings.HasPrefix(match[1], "apiVersion: v1\n") {
				check(t, name, match[1])
			}
		}
	}
}

// wrong is a manifest in a page with the faults that it has: a yaml block whose
// first line is a comment with the file's name, then a text block.
var wrong = regexp.MustCompile("(?ms)^```yaml\n# ([a-z-]+\\.yaml)\n(.*?)^```\n+```text\n(.*?)^```\n")

// TestFaultsInPages holds that the messages in docs/manifests.md are printed
// for the manifests above them. The file's name is not in the file.
func TestFaultsInPages(t *testing.T) {
	matches := wrong.FindAllStringSubmatch(pages(t)["docs/manifests.md"], -1)
	if len(matches) < 5 {
		t.Errorf("only %d broken manifests were found", len(matches))
	}
	for _, match := range matches {
		name, text, want := match[1], match[2], match[3]
		var got strings.Builder
		for _, fault := range manifest.New().Parse(name, []byte(text)).Faults {
			got.WriteString(fault.String() + "\n")
		}
		if got.String() != want {
			t.Errorf("%s says\n%s, and docs/manifests.md says\n%s", name, got.String(), want)
		}
	}
}
