// Package wire is what the test and the emulated machine say to each other:
// one JSON document a line, over a serial port that nobody else uses.
//
// The machine says an Answer with Ready when it has booted. Then the test sends a
// Request and reads Answers until one is Done; the next request follows.
package wire

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

const (
	// Port is the name of the serial port.
	Port = "holdfast.control"
	// Shell is the kernel's parameter that gives the console to a person; then
	// nobody serves the port.
	Shell = "guest.shell"

	disksParameter = "guest.disks="
)

// A Disk is a disk of the machine, which keeps what is on it when the machine
// ends.
type Disk struct {
	MiB      int      // size
	FS       string   // the file system that a new disk gets: ext4, xfs, or "" for none
	Mount    string   // where the machine mounts it
	Options  string   // of that mount
	MkfsArgs []string // for mkfs
}

// DisksParameter returns the parameter of the kernel's command line that tells
// the machine of its disks, in the order of their devices.
func DisksParameter(disks []Disk) (string, error) {
	data, err := json.Marshal(disks)
	return disksParameter + base64.RawURLEncoding.EncodeToString(data), err
}

// ParseDisks finds the disks in a kernel's command line.
func ParseDisks(commandLine string) ([]Disk, error) {
	for parameter := range strings.FieldsSeq(commandLine) {
		text, ok := strings.CutPrefix(parameter, disksParameter)
		if !ok {
			continue
		}
		var disks []Disk
		data, err := base64.RawURLEncoding.DecodeString(text)
		if err == nil {
			err = json.Unmarshal(data, &disks)
		}
		if err != nil {
			return nil, fmt.Errorf("kernel parameter %s: %w", disksParameter, err)
		}
		return disks, nil
	}
	return nil, nil
}

// A Request asks for one program to be run, or for the machine to be
// restarted.
type Request struct {
	Argv    []string      `json:"argv,omitempty"`
	Env     []string      `json:"env,omitempty"` // added to the machine's own
	Stdin   []byte        `json:"stdin,omitempty"`
	Timeout time.Duration `json:"timeout,omitempty"` // then the program and its group are killed; 0 waits for ever

	// Reboot ends every process, unmounts the disks and restarts the machine.
	// Nothing is answered.
	Reboot bool `json:"reboot,omitempty"`
}

// An Answer is a piece of output, or how the program ended.
type Answer struct {
	Ready  bool   `json:"ready,omitempty"`
	Stdout []byte `json:"stdout,omitempty"`
	Stderr []byte `json:"stderr,omitempty"`
	Done   bool   `json:"done,omitempty"`
	Code   int    `json:"code,omitempty"`  // with Done: the exit code, -1 where a signal ended it
	Error  string `json:"error,omitempty"` // with Done: why it did not run, or not to its end
}
