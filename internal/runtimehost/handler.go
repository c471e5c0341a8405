package runtimehost

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// DefaultHandler is the name of the handler that pods run in which name none.
const DefaultHandler = "runc"

// A Handler is one more way to run pods, which RuntimeClasses name. Its JSON
// names are those of a node's configuration file.
type Handler struct {
	// Name is what a RuntimeClass has as its handler: a DNS label, and not "runc",
	// which is the bundled one. Required.
	Name string `json:"name"`
	// Binary is an OCI runtime that takes runc's place, such as /usr/bin/crun;
	// absolute. Either this or Shim is required. One that is not there when a pod
	// starts keeps that pod from starting.
	Binary string `json:"binary,omitempty"`
	// Shim is a shim of containerd's, such as
	// /usr/local/bin/containerd-shim-runsc-v1; absolute. Its name says what type of
	// runtime it is.
	Shim string `json:"shim,omitempty"`
	// ShimConfig is the file that the shim reads its configuration from; absolute.
	// Default: whatever it reads by itself.
	ShimConfig string `json:"shimConfig,omitempty"`
}

const shimPrefix = "containerd-shim-"

// kind returns the type of runtime that a shim runs, in the words of the shim's
// own file name and in the dotted ones of containerd: runsc-v1 is
// io.containerd.runsc.v1.
func (h Handler) kind() (name, dotted string, ok bool) {
	kind, ok := strings.CutPrefix(filepath.Base(h.Shim), shimPrefix)
	i := strings.LastIndex(kind, "-")
	if !ok || i <= 0 || i == len(kind)-1 {
		return "", "", false
	}
	return kind[:i], "io.containerd." + kind[:i] + "." + kind[i+1:], true
}

// Type is containerd's name for the type of runtime of the handler's shim.
func (h Handler) Type() string {
	_, dotted, _ := h.kind()
	return dotted
}

// check returns everything that is wrong with a handler.
func (h Handler) check() error {
	var errs []error
	for _, problem := range validation.IsDNS1123Label(h.Name) {
		errs = append(errs, fmt.Errorf("name: %s", problem))
	}
	if h.Name == DefaultHandler {
		errs = append(errs, fmt.Errorf("name: %s is the bundled one, which is always there; choose another", DefaultHandler))
	}
	for field, path := range map[string]string{"binary": h.Binary, "shim": h.Shim, "shimConfig": h.ShimConfig} {
		if path != "" && (!filepath.IsAbs(path) || filepath.Clean(path) != path) {
			errs = append(errs, fmt.Errorf("%s: %q is no absolute path", field, path))
		}
	}
	switch {
	case (h.Binary == "") == (h.Shim == ""):
		errs = append(errs, errors.New("write either binary, an OCI runtime such as /usr/bin/crun, or shim, one of containerd's such as /usr/local/bin/containerd-shim-runsc-v1"))
	case h.Binary != "" && h.ShimConfig != "":
		errs = append(errs, errors.New("shimConfig: it is for a shim, and the handler has a binary"))
	case h.Shim != "":
		if name, _, ok := h.kind(); !ok {
			errs = append(errs, fmt.Errorf("shim: %q is not called %sNAME-VERSION, which says what it runs", h.Shim, shimPrefix))
		} else if name == "runc" {
			errs = append(errs, errors.New("shim: the one of runc is bundled; write binary for the OCI runtime that it is to run"))
		}
	}
	return errors.Join(errs...)
}

// CheckHandlers returns everything that is wrong with a list of handlers, each
// problem with its place in field.
func CheckHandlers(field string, handlers []Handler) error {
	var errs []error
	seen := map[string]bool{}
	for i, h := range handlers {
		place := fmt.Sprintf("%s[%d]", field, i)
		if err := h.check(); err != nil {
			for problem := range strings.SplitSeq(err.Error(), "\n") {
				errs = append(errs, fmt.Errorf("%s: %s", place, problem))
			}
		}
		if seen[h.Name] {
			errs = append(errs, fmt.Errorf("%s: name: %q is there twice", place, h.Name))
		}
		seen[h.Name] = true
	}
	return errors.Join(errs...)
}

// warnOfHandlers says which handlers have no program now. It may come later.
func (c Config) warnOfHandlers() {
	for _, h := range c.Handlers {
		for _, path := range []string{h.Binary, h.Shim} {
			if path == "" {
				continue
			}
			if info, err := os.Stat(path); err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
				c.Log.Warn("no program for a handler of pods: they do not start", "runtime", h.Name, "path", path)
			}
		}
	}
}
