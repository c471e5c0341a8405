package podfiles

import "strings"

// Expand replaces each $(NAME) in s by what lookup returns for NAME. A name
// that lookup does not know stays as it is, $$ becomes $, and a $ before
// anything else is an ordinary character, as the API describes for command,
// args and env.
func Expand(s string, lookup func(name string) (string, bool)) string {
	if !strings.Contains(s, "$") {
		return s
	}
	var out strings.Builder
	for {
		i := strings.IndexByte(s, '$')
		if i < 0 || i == len(s)-1 {
			out.WriteString(s)
			return out.String()
		}
		out.WriteString(s[:i])
		rest := s[i+1:]
		switch rest[0] {
		case '$':
			out.WriteByte('$')
			s = rest[1:]
		case '(':
			name, after, closed := strings.Cut(rest[1:], ")")
			if !closed {
				out.WriteString("$(")
				s = rest[1:]
				continue
			}
			if value, ok := lookup(name); ok {
				out.WriteString(value)
			} else {
				out.WriteString("$(" + name + ")")
			}
			s = after
		default:
			out.WriteByte('$')
			s = rest
		}
	}
}
