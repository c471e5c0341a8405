package conformance

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A Spec is one test as the test program knows it, and what came of it.
type Spec struct {
	Name    string // all of its words, with tags: what selects it
	Test    string // the same without tags
	Where   string // file and line
	State   string // passed, skipped, failed or another word of Ginkgo's
	Took    time.Duration
	Message string // of a failure or a skip
	Output  string // what the test wrote
}

// Slow reports whether upstream says that the test takes minutes.
func (s *Spec) Slow() bool { return strings.Contains(s.Name, "[Slow]") }

// ginkgoSuite is the part of Ginkgo's report in JSON that matters here.
type ginkgoSuite struct {
	SpecReports []struct {
		ContainerHierarchyTexts []string
		LeafNodeType            string
		LeafNodeText            string
		LeafNodeLocation        struct {
			FileName   string
			LineNumber int
		}
		State                      string
		RunTime                    time.Duration
		Failure                    struct{ Message string }
		CapturedGinkgoWriterOutput string
	}
	SpecialSuiteFailureReasons []string
}

// readReport reads Ginkgo's report: the tests, and what failed beside them, a
// preparation of the whole suite perhaps.
func readReport(path string) (specs []Spec, trouble []string, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	var suites []ginkgoSuite
	if err := json.Unmarshal(data, &suites); err != nil {
		return nil, nil, fmt.Errorf("report %s: %w", path, err)
	}
	for _, suite := range suites {
		trouble = append(trouble, suite.SpecialSuiteFailureReasons...)
		for _, r := range suite.SpecReports {
			if r.LeafNodeType != "It" {
				if r.Failure.Message != "" {
					trouble = append(trouble, r.LeafNodeType+": "+r.Failure.Message)
				}
				continue
			}
			name := strings.Join(append(slices.Clone(r.ContainerHierarchyTexts), r.LeafNodeText), " ")
			_, file, _ := strings.Cut(r.LeafNodeLocation.FileName, "/test/")
			specs = append(specs, Spec{
				Name: name, Test: withoutTags(name), Where: fmt.Sprintf("test/%s:%d", file, r.LeafNodeLocation.LineNumber),
				State: r.State, Took: r.RunTime, Message: r.Failure.Message, Output: r.CapturedGinkgoWriterOutput,
			})
		}
	}
	return specs, trouble, nil
}

var tag = regexp.MustCompile(`\s*\[[^]]*\]`)

// withoutTags returns a test's words without what stands in brackets.
func withoutTags(name string) string {
	return strings.Join(strings.Fields(tag.ReplaceAllString(name, "")), " ")
}
