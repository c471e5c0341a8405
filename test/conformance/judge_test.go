package conformance

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestJudge(t *testing.T) {
	rows, err := ReadTable(strings.NewReader(`01 a	x:1	pass	passes
01 a	x:2	pass	fails
01 a	x:3	pass	is skipped
01 a	x:4	pass	is missing
02 b	x:5	pass	family …
02 b	x:6	out: never	is out
02 b	x:7	out: never	passes nevertheless
`))
	if err != nil {
		t.Fatal(err)
	}
	verdicts := Judge(rows, []Spec{
		{Test: "passes", State: "passed"},
		{Test: "fails", State: "failed", Message: "\nno pod\nat line 3"},
		{Test: "is skipped", State: "skipped"},
		{Test: "family one", State: "passed"},
		{Test: "family two", State: "timedout", Message: "too long"},
		{Test: "is out", State: "failed"},
		{Test: "passes nevertheless", State: "passed"},
	})
	var got []string
	for _, v := range verdicts {
		got = append(got, v.Bad)
	}
	want := []string{"", "failed: no pod", "skipped: no reason given", "missing: there is no such test", "timedout: too long", "", ""}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Error(diff)
	}
	if n := len(Failed(verdicts)); n != 4 {
		t.Errorf("%d failed, want 4", n)
	}
	var text strings.Builder
	if err := WriteSummary(&text, verdicts); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"01 a   4      1       3       0", "02 b   3      0       1       2", "FAILED 01: fails (x:2)", "PASSED though it is out (never): passes nevertheless"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in\n%s", want, text.String())
		}
	}
}

func TestReadReport(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run.json")
	if err := os.WriteFile(path, []byte(`[{"SpecialSuiteFailureReasons": ["interrupted"], "SpecReports": [
		{"LeafNodeType": "SynchronizedBeforeSuite", "State": "failed", "Failure": {"Message": "no node"}},
		{"ContainerHierarchyTexts": ["[sig-node] Pods [Slow]", "when [LinuxOnly] alone"], "LeafNodeType": "It", "LeafNodeText": "run  [Conformance]",
		 "LeafNodeLocation": {"FileName": "/mod/k8s.io/kubernetes@v1/test/e2e/pods.go", "LineNumber": 7}, "State": "passed", "RunTime": 2000000000}
	]}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	specs, trouble, err := readReport(path)
	if err != nil {
		t.Fatal(err)
	}
	want := []Spec{{
		Name: "[sig-node] Pods [Slow] when [LinuxOnly] alone run  [Conformance]", Test: "Pods when alone run",
		Where: "test/e2e/pods.go:7", State: "passed", Took: 2e9,
	}}
	if diff := cmp.Diff(specs, want); diff != "" {
		t.Error(diff)
	}
	if !specs[0].Slow() {
		t.Error("it is slow")
	}
	if diff := cmp.Diff(trouble, []string{"interrupted", "SynchronizedBeforeSuite: no node"}); diff != "" {
		t.Error(diff)
	}
}

// TestChanged checks that of what upstream's tests write only what they changed
// is set on the node.
func TestChanged(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := saveBase(".", []byte(`{"kubeletconfig": {"maxPods": 110, "staticPodPath": "/pods", "failSwapOn": false, "authentication": {"webhook": {"cacheTTL": "2m"}}}}`)); err != nil {
		t.Fatal(err)
	}
	got, err := changed(baseFile, settingsFile)
	if err != nil || len(got) != 0 {
		t.Fatalf("nothing was written: got %v, %v", got, err)
	}
	if err := os.WriteFile(settingsFile, []byte(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
maxPods: 110
staticPodPath: /pods
imageMaximumGCAge: 1m0s
syncFrequency: 0s
registryPullQPS: 0
authentication: {anonymous: {enabled: false}, webhook: {cacheTTL: 2m}, x509: {clientCAFile: /ca.crt}}
featureGates: {A: true, ReloadKubeletClientCAFile: true, RotateKubeletServerCertificate: false}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err = changed(baseFile, settingsFile)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(got, map[string]any{
		"imageMaximumGCAge": "1m0s", "featureGates": map[string]any{"A": true},
		"authentication": map[string]any{"x509": map[string]any{"clientCAFile": "/ca.crt"}},
	}); diff != "" {
		t.Error(diff)
	}
}
