package podvolumes

import "strings"

// Join returns the errors that are not nil as one, on one line, as events and
// conditions show it; nil if there is none.
func Join(errs ...error) error {
	var list joined
	for _, err := range errs {
		if err != nil {
			list = append(list, err)
		}
	}
	if len(list) == 0 {
		return nil
	}
	return list
}

type joined []error

func (j joined) Error() string {
	parts := make([]string, 0, len(j))
	for _, err := range j {
		parts = append(parts, err.Error())
	}
	return strings.Join(parts, "; ")
}

func (j joined) Unwrap() []error { return j }
