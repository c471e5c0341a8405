package podrun

import "fmt"

// The exit codes that are not a container's own. docs/ci.md lists them for
// users.
const (
	CodeInvalid = 120 // the documents are wrong: nothing was started
	CodeImage   = 121 // an image could not be had
	CodeRefused = 122 // the node did not take the pod, or put it out
	CodeStart   = 123 // a container could not be made or started
	CodeTimeout = 124 // a time limit passed, as of timeout(1)
	CodeFailed  = 125 // the node or the API failed, as of "docker run"
)

// A Failure is why a run ended with another exit code than 0.
type Failure struct {
	Code int
	Err  error
}

// Error says what happened.
func (f *Failure) Error() string { return f.Err.Error() }

// Unwrap returns the error without its code.
func (f *Failure) Unwrap() error { return f.Err }

// ExitCode returns the code that a command ends with.
func (f *Failure) ExitCode() int { return f.Code }

func failf(code int, format string, args ...any) *Failure {
	return &Failure{code, fmt.Errorf(format, args...)}
}
