package podfiles

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestEnvFileValue(t *testing.T) {
	tests := map[string]struct{ in, want, err string }{
		"one":                          {"A='1'", "1", ""},
		"after others":                 {"# note\n\n  B='2' # note\n\tA='1'\n", "1", ""},
		"the first counts":             {"A='1'\nA='2'", "1", ""},
		"taken as it stands":           {`A='$B \n "x" # y'`, `$B \n "x" # y`, ""},
		"several lines":                {"A='a\n#b\n\nc' # note", "a\n#b\n\nc", ""},
		"several lines of another":     {"B='x\nA='\nA='1'", "1", ""},
		"lines of another system":      {"B='2'\r\nA='1'\r\n", "1", ""},
		"an equals sign in the value":  {"A='x=y'", "x=y", ""},
		"none":                         {"B='2'", "", ""},
		"empty":                        {"A=''", "", ""},
		"a blank before the value":     {"A= '1'", "", ""},
		"such a blank of another":      {"B= x\nA='1'", "1", ""},
		"what follows does not matter": {"A='1'\nrubbish", "1", ""},
		"no equals sign":               {"# note\nrubbish\nA='1'", "", "line 2: there is no '='"},
		"no name":                      {" ='1'", "", "line 1: there is no name"},
		"a blank before the equals":    {"A ='1'", "", "line 1: there is a blank"},
		"no quotes":                    {"A=1", "", "line 1: the value is not in single quotes"},
		"double quotes":                {`A="1"`, "", "line 1: the value is not in single quotes"},
		"not closed":                   {"B='2'\nA='1\n\n", "", "line 2: the quote is not closed"},
		"more behind the quote":        {"A='1\n2' 3", "", "line 2: something stands behind"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := envFileValue(test.in, "A")
			if got != test.want || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("got %q, %v; want %q, %q", got, err, test.want, test.err)
			}
		})
	}
}

func FuzzEnvFileValue(f *testing.F) {
	for _, s := range []string{"A='1'", "B='x\ny'\nA='2' # c", "A= '1'", "A='", "=\n", "\r\n'"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		value, err := envFileValue(s, "A")
		if strings.Contains(value, "'") || err != nil && value != "" {
			t.Errorf("%q has the value %q, %v", s, value, err)
		}
		if err == nil && !strings.ContainsAny(s, "\r") {
			// What stands before counts: the same variable before all of it wins.
			if first, err := envFileValue("A='x\ny'\n"+s, "A"); first != "x\ny" || err != nil {
				t.Errorf("before %q: got %q, %v", s, first, err)
			}
		}
	})
}

func TestFileKey(t *testing.T) {
	files := func(volume, path string) ([]byte, error) {
		switch volume + ":" + path {
		case "v:good":
			return []byte("A='1'"), nil
		case "v:bad":
			return []byte("A"), nil
		case "v:none":
			return nil, fs.ErrNotExist
		default:
			return nil, errors.New("cannot be read")
		}
	}
	tests := map[string]struct {
		path, key string
		optional  bool
		want, err string
		unset     bool
	}{
		"there":                 {path: "good", key: "A", want: "1"},
		"no such key":           {path: "good", key: "B", err: `environment variable key "B" not found in file "good"`},
		"no such optional key":  {path: "good", key: "B", optional: true, unset: true},
		"no such file":          {path: "none", key: "A", err: "file does not exist"},
		"no such optional file": {path: "none", key: "A", optional: true, unset: true},
		"a bad file":            {path: "bad", key: "A", err: `couldn't parse env file "bad" of volume "v": line 1`},
		"a bad optional file":   {path: "bad", key: "A", optional: true, err: "couldn't parse env file"},
		"an unreadable one":     {path: "locked", key: "A", optional: true, err: "cannot be read"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := &v1.Container{Env: []v1.EnvVar{{Name: "X", ValueFrom: &v1.EnvVarSource{FileKeyRef: &v1.FileKeySelector{
				VolumeName: "v", Path: test.path, Key: test.key, Optional: &test.optional,
			}}}}}
			env, err := (&Node{}).Env(&v1.Pod{}, c, EnvSources{File: files})
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("got %v, want %q", err, test.err)
				}
				return
			}
			switch {
			case err != nil:
				t.Error(err)
			case test.unset != (len(env) == 0), !test.unset && env[0] != Var{"X", test.want}:
				t.Errorf("got %v, want %q", env, test.want)
			}
		})
	}
}
