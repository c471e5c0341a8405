package main

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

//go:generate go test -count=1 -run ^TestCommandReference$ . -update

var update = flag.Bool("update", false, "write the generated pages anew")

const cliHead = `<!-- Generated from the commands by "go generate ./cmd/holdfast". Do not edit. -->

# Look up a command or a flag

Every command finds its node by ` + "`--root-dir`" + `, or by the environment variable
` + "`HOLDFAST_ROOT_DIR`" + `. A program of the name ` + "`kubectl`" + ` or ` + "`kubelet`" + ` that is this
binary, by a link say, is ` + "`holdfast kubectl`" + ` or ` + "`holdfast kubelet`" + `.
`

// TestCommandReference holds that docs/cli.md says what the commands say.
func TestCommandReference(t *testing.T) {
	t.Setenv("HOLDFAST_ROOT_DIR", "") // it is a default that is printed
	root := newCommand()
	root.InitDefaultCompletionCmd()
	var b strings.Builder
	b.WriteString(cliHead)
	writeReference(&b, root)

	path := filepath.Join("..", "..", "docs", "cli.md")
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(string(got), b.String()); diff != "" {
		t.Errorf("docs/cli.md is not what the commands say (go generate ./cmd/holdfast):\n%s", diff)
	}
}

// TestEveryCommandIsExplained holds that nothing in the reference is empty.
func TestEveryCommandIsExplained(t *testing.T) {
	for _, cmd := range newCommand().Commands() {
		if cmd.Hidden {
			continue
		}
		if cmd.Short == "" || cmd.Example == "" {
			t.Errorf("%s lacks a short description or an example", cmd.CommandPath())
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" && !f.Hidden {
				t.Errorf("%s --%s is not explained", cmd.CommandPath(), f.Name)
			}
		})
	}
}

// writeReference writes cmd and the commands below it. The shells that the
// completion command knows are not pages of their own.
func writeReference(w io.Writer, cmd *cobra.Command) {
	fmt.Fprintf(w, "\n## %s\n\n", cmd.CommandPath())
	completion := cmd.Name() == "completion"
	text := cmp.Or(cmd.Long, cmd.Short+".")
	if completion {
		var shells []string
		for _, shell := range cmd.Commands() {
			shells = append(shells, shell.Name())
		}
		text = fmt.Sprintf("Prints the script that completes commands and flags in a shell: %s. How to load it: `holdfast completion SHELL --help`.", strings.Join(shells, ", "))
	}
	fmt.Fprintf(w, "%s\n", escape(text))
	if cmd.Example != "" {
		fmt.Fprintf(w, "\n```sh\n%s\n```\n", dedent(cmd.Example))
	}
	writeFlags(w, cmd)
	if completion {
		return
	}
	for _, sub := range cmd.Commands() {
		if !sub.Hidden && sub.Name() != "help" {
			writeReference(w, sub)
		}
	}
}

func writeFlags(w io.Writer, cmd *cobra.Command) {
	var rows []string
	flags := cmd.NonInheritedFlags()
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		value, usage := pflag.UnquoteUsage(f)
		if value != "" {
			name += " " + value
		}
		def := ""
		if f.DefValue != "" && f.DefValue != "false" {
			def = "`" + f.DefValue + "`"
		}
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s |", cell(name), def, cell(escape(usage))))
	})
	if len(rows) == 0 {
		return
	}
	slices.Sort(rows)
	fmt.Fprintf(w, "\n| flag | default | meaning |\n|---|---|---|\n%s\n", strings.Join(rows, "\n"))
}

// escape keeps a browser from taking <root-dir> for markup.
func escape(text string) string { return strings.ReplaceAll(text, "<", "\\<") }

// cell keeps a bar from ending a table's cell.
func cell(text string) string { return strings.ReplaceAll(text, "|", "\\|") }

// dedent takes two spaces, which help texts have, from every line.
func dedent(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimPrefix(line, "  ")
	}
	return strings.Join(lines, "\n")
}
