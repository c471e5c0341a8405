package main

import (
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/test/hostgaps"
)

func TestRun(t *testing.T) {
	const (
		pass = `{"Action":"pass","Package":"p","Test":"TestA"}` + "\n"
		skip = `{"Action":"output","Package":"p","Test":"TestB","Output":"x.go:1: needs root: user id is 7\n"}` + "\n" +
			`{"Action":"skip","Package":"p","Test":"TestB"}` + "\n"
		lazy = `{"Action":"output","Package":"p","Test":"TestC","Output":"x.go:1: not today\n"}` + "\n" +
			`{"Action":"skip","Package":"p","Test":"TestC"}` + "\n"
		fail  = `{"Action":"fail","Package":"p","Test":"TestD"}` + "\n"
		build = `{"Action":"build-fail","ImportPath":"p"}` + "\n"
	)
	skipped := func(capability string) string {
		return strings.ReplaceAll(skip, "needs root", "needs "+capability)
	}
	table := hostgaps.Table{{Host: "vm", Capability: "quota", Instead: "guest", Reason: "x"}, {Host: "vm", Capability: "nfs", Instead: "nowhere", Reason: "too far"}}
	for name, test := range map[string]struct {
		in   string
		host string
		unit bool
		bad  bool
		want string
	}{
		"passed":                          {in: pass, want: "1 passed, 0 failed, 0 skipped\n"},
		"failed":                          {in: pass + fail, bad: true, want: "1 passed, 1 failed, 0 skipped\n"},
		"does not build":                  {in: build, bad: true, want: "0 passed"},
		"left to the guest":               {in: skipped("quota"), want: "left to the guest, for want of quota: p TestB"},
		"not run anywhere":                {in: skipped("nfs"), want: "not run, for want of nfs: too far: p TestB"},
		"another kind of host":            {in: skipped("nfs"), host: "guest", bad: true, want: "SKIPPED"},
		"an unlisted skip":                {in: skip, bad: true, want: "SKIPPED"},
		"an unlisted skip of a real part": {in: skip, unit: true, want: "0 passed, 0 failed, 1 skipped"},
		"another skip in the unit layer":  {in: lazy, unit: true, bad: true, want: "SKIPPED"},
		"a line that is not test2json's":  {in: "go: no such tool\n" + pass, want: "go: no such tool"},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			rule := skipRule{table: table, host: "vm", unit: test.unit}
			if test.host != "" {
				rule.host = test.host
			}
			err := run(strings.NewReader(test.in), &out, rule)
			if (err != nil) != test.bad {
				t.Errorf("error %v, want one: %v", err, test.bad)
			}
			if !strings.Contains(out.String(), test.want) {
				t.Errorf("got %q, want %q in it", out.String(), test.want)
			}
		})
	}
}
