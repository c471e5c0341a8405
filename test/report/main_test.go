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
		above = `{"Action":"fail","Package":"p","Test":"TestD/part"}` + "\n" + fail
		end   = `{"Action":"fail","Package":"p"}` + "\n"
		build = `{"Action":"build-output","ImportPath":"p [p.test]","Output":"x.go:1: no such thing\n"}` + "\n" +
			`{"Action":"build-fail","ImportPath":"p [p.test]"}` + "\n" + `{"Action":"fail","Package":"p","FailedBuild":"p [p.test]"}` + "\n"
		hangs = `{"Action":"run","Package":"p","Test":"TestE"}` + "\n" +
			`{"Action":"output","Package":"p","Test":"TestE","Output":"panic: test timed out after 1s\n"}` + "\n" + end
		exits = `{"Action":"output","Package":"p","Output":"goleak: found unexpected goroutines\n"}` + "\n" + end
		slow  = `{"Action":"pass","Package":"p","Test":"TestF","Elapsed":2.5}` + "\n" +
			`{"Action":"pass","Package":"p","Test":"TestF/part","Elapsed":2.4}` + "\n" +
			`{"Action":"pass","Package":"q","Test":"TestG","Elapsed":70.1}` + "\n"
	)
	skipped := func(capability string) string {
		return strings.ReplaceAll(skip, "needs root", "needs "+capability)
	}
	table := hostgaps.Table{{Host: "vm", Capability: "quota", Instead: "guest", Reason: "x"}, {Host: "vm", Capability: "nfs", Instead: "nowhere", Reason: "too far"}}
	for name, test := range map[string]struct {
		in     string
		host   string
		unit   bool
		failed string // what is written of it
		want   string
	}{
		"passed":                          {in: pass, want: "1 passed, 0 failed, 0 skipped\n"},
		"failed":                          {in: pass + fail + end, failed: "p TestD\n", want: "1 passed, 1 failed, 0 skipped\n"},
		"failed within":                   {in: above + end, failed: "p TestD/part\n", want: "0 passed, 2 failed"},
		"failed, of two packages":         {in: fail + strings.ReplaceAll(exits, `"p"`, `"p/q"`), failed: "p TestD\np/q: failed outside of its tests\n"},
		"does not build":                  {in: build, failed: "p [p.test]: does not build\n", want: "x.go:1: no such thing\n0 passed"},
		"does not end":                    {in: hangs, failed: "p TestE: did not end\n", want: "panic: test timed out after 1s\n"},
		"fails outside of tests":          {in: pass + exits, failed: "p: failed outside of its tests\n", want: "goleak: found unexpected goroutines\n"},
		"the slowest":                     {in: slow + pass, want: "  70.1 s  q TestG\n   2.5 s  p TestF\n4 passed"},
		"left to the guest":               {in: skipped("quota"), want: "left to the guest, for want of quota: p TestB"},
		"not run anywhere":                {in: skipped("nfs"), want: "not run, for want of nfs: too far: p TestB"},
		"another kind of host":            {in: skipped("nfs"), host: "guest", failed: "p TestB: skipped\n", want: "SKIPPED"},
		"an unlisted skip":                {in: skip, failed: "p TestB: skipped\n", want: "SKIPPED"},
		"an unlisted skip of a real part": {in: skip, unit: true, want: "0 passed, 0 failed, 1 skipped"},
		"another skip in the unit layer":  {in: lazy, unit: true, failed: "p TestC: skipped\n", want: "SKIPPED"},
		"a line that is not test2json's":  {in: "go: no such tool\n" + pass, want: "go: no such tool"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, failed strings.Builder
			rule := skipRule{table: table, host: "vm", unit: test.unit}
			if test.host != "" {
				rule.host = test.host
			}
			err := run(strings.NewReader(test.in), &out, &failed, rule)
			if (err != nil) != (test.failed != "") {
				t.Errorf("error %v, of %q", err, test.failed)
			}
			if failed.String() != test.failed {
				t.Errorf("failed: %q, want %q", failed.String(), test.failed)
			}
			if !strings.Contains(out.String(), test.want) {
				t.Errorf("got %q, want %q in it", out.String(), test.want)
			}
		})
	}
}
