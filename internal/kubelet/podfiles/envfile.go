package podfiles

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// MaxEnvFile is how long a file of variables may be, in bytes.
const MaxEnvFile = 1 << 20

// fileKey returns a variable's value in a file of a volume; ok is false if an
// optional one has none, or if there is no such file.
func fileKey(ref *v1.FileKeySelector, read func(volume, path string) ([]byte, error)) (value string, ok bool, err error) {
	optional := isTrue(ref.Optional)
	content, err := read(ref.VolumeName, ref.Path)
	switch {
	case err != nil && optional && errors.Is(err, fs.ErrNotExist):
		return "", false, nil
	case err != nil:
		return "", false, err
	}
	value, err = envFileValue(string(content), ref.Key)
	if err != nil {
		return "", false, fmt.Errorf("couldn't parse env file %q of volume %q: %w", ref.Path, ref.VolumeName, err)
	}
	if value == "" && !optional {
		return "", false, fmt.Errorf("environment variable key %q not found in file %q", ref.Key, ref.Path)
	}
	return value, value != "", nil
}

// envFileValue returns the value of the first variable called key, or nothing.
//
// The format is upstream's, a part of the shell's: NAME='value', where a value
// is taken as it stands and may have several lines, and a comment may follow it.
// A blank after the equals sign makes the value empty, which is none. Lines
// behind the variable are not looked at.
func envFileValue(content, key string) (string, error) {
	lines := strings.Split(content, "\n")
	for i := 0; i < len(lines); i++ {
		line := strings.TrimLeft(endless(lines[i]), " \t")
		if line == "" || line[0] == '#' {
			continue
		}
		name, rest, ok := strings.Cut(line, "=")
		switch {
		case !ok:
			return "", fmt.Errorf("line %d: there is no '='", i+1)
		case name == "" || strings.TrimRight(name, " \t") == "":
			return "", fmt.Errorf("line %d: there is no name before the '='", i+1)
		case strings.TrimRight(name, " \t") != name:
			return "", fmt.Errorf("line %d: there is a blank before the '='", i+1)
		case strings.TrimLeft(rest, " \t") != rest:
			if name == key {
				return "", nil
			}
			continue
		case !strings.HasPrefix(rest, "'"):
			return "", fmt.Errorf("line %d: the value is not in single quotes", i+1)
		}
		value, next, err := quoted(lines, i, rest[1:])
		if err != nil {
			return "", err
		}
		if name == key {
			return value, nil
		}
		i = next
	}
	return "", nil
}

// quoted returns a value whose opening quote stands before first, in line i,
// and the line of its closing one.
func quoted(lines []string, i int, first string) (value string, last int, err error) {
	var out strings.Builder
	rest := first
	for at := i; ; at++ {
		text, after, ok := strings.Cut(rest, "'")
		out.WriteString(text)
		if ok {
			if after = strings.TrimLeft(after, " \t"); after != "" && after[0] != '#' {
				return "", 0, fmt.Errorf("line %d: something stands behind the closing quote", at+1)
			}
			return out.String(), at, nil
		}
		if at+1 == len(lines) {
			return "", 0, fmt.Errorf("line %d: the quote is not closed", i+1)
		}
		out.WriteByte('\n')
		rest = endless(lines[at+1])
	}
}

// endless returns a line without the carriage return at its end, if it has one.
func endless(line string) string { return strings.TrimSuffix(line, "\r") }
