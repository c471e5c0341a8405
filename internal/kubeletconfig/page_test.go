package kubeletconfig

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

//go:generate go test -count=1 -run ^TestPage$ . -update

var update = flag.Bool("update", false, "write the generated page anew")

const pageHead = `<!-- Generated from the rules by "go generate ./internal/kubeletconfig". Do not edit. -->

# Look up what a field of the kubelet's configuration does

` + "`holdfast kubelet`" + ` reads upstream's ` + "`KubeletConfiguration`" + ` (` + "`kubelet.config.k8s.io/v1beta1`" + `) and upstream's flags:
[cluster.md](cluster.md). A field that is honoured does what it does in upstream's kubelet. Any other may have its
default, and is refused with anything else, with its file and line.
`

// TestPage holds that docs/kubelet-configuration.md says what the rules say.
func TestPage(t *testing.T) {
	var b strings.Builder
	b.WriteString(pageHead)
	standard := Default()
	defaults := asJSON(t, standard)
	row := func(r rule, rest string) {
		byFlag, value := "", ""
		if r.flag != "" {
			byFlag = "`--" + r.flag + "`"
		}
		if text, err := r.value(defaults); err != nil {
			t.Fatal(err)
		} else if text != "" && text != "{}" {
			value = "`" + strings.ReplaceAll(strings.Trim(text, `"`), "|", `\|`) + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |%s\n", r.field, byFlag, value, rest)
	}
	b.WriteString("\n## Honoured\n\n| field | flag | default |\n|---|---|---|\n")
	for _, r := range rules {
		if r.instead == "" {
			row(r, "")
		}
	}
	b.WriteString("\n## Refused with anything but the default\n\n| field | flag | default | what to do |\n|---|---|---|---|\n")
	for _, r := range rules {
		if r.instead == "" {
			continue
		}
		rest := r.instead
		if len(r.also) > 0 {
			rest += " (" + strings.Trim(strings.Join(r.also, ", "), `"`) + " may be written too)"
		}
		row(r, " "+strings.ReplaceAll(rest, "|", `\|`)+" |")
	}
	b.WriteString("\n## Flags without a field that have no effect\n\nThose with a remedy are refused with anything but what says nothing; the others are taken with a warning.\n\n| flag | what to do |\n|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(unusedFlags)) {
		rest := unusedFlags[name].instead
		if rest == "" {
			rest = "nothing: upstream has it from a library that is not used here"
		}
		fmt.Fprintf(&b, "| `--%s` | %s |\n", name, rest)
	}

	path := filepath.Join("..", "..", "docs", "kubelet-configuration.md")
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(got), b.String()); diff != "" {
		t.Errorf("docs/kubelet-configuration.md is not what the rules say (go generate ./internal/kubeletconfig):\n%s", diff)
	}
}
