package credentialconfig

import (
	"fmt"
	"net"
	"net/url"
	"path"
	"strings"
)

// parsePattern splits a pattern, or the name of an image, which looks the same.
func parsePattern(pattern string) (*url.URL, error) {
	u, err := url.Parse("https://" + pattern)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%q is no pattern of images, such as *.registry.example or registry.example:5000/team", pattern)
	case strings.Contains(pattern, "://"):
		return nil, fmt.Errorf("%q: want it without a scheme", pattern)
	case u.Host == "":
		return nil, fmt.Errorf("%q names no registry", pattern)
	}
	for _, part := range hostParts(u.Host) {
		if _, err := path.Match(part, ""); err != nil {
			return nil, fmt.Errorf("%q: %q: %w", pattern, part, err)
		}
	}
	return u, nil
}

// Matches reports whether a pattern is for an image, by upstream's rules: as many
// parts of the host, each like the pattern's, which may have wildcards; the same
// port or none; and a path that begins like the pattern's.
func Matches(pattern, image string) bool {
	p, err := parsePattern(pattern)
	if err != nil {
		return false
	}
	i, err := parsePattern(image)
	if err != nil {
		return false
	}
	want, got := hostParts(p.Host), hostParts(i.Host)
	if p.Port() != i.Port() || len(want) != len(got) || !strings.HasPrefix(i.Path, p.Path) {
		return false
	}
	for n := range want {
		if ok, err := path.Match(want[n], got[n]); err != nil || !ok {
			return false
		}
	}
	return true
}

// hostParts splits a host without its port.
func hostParts(host string) []string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.Split(host, ".")
}
