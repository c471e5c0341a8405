package cri

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/runtimelabels"
	"github.com/holdfast-dev/holdfast/internal/regularfile"
)

// Upstream's limits, in bytes and lines.
const (
	maxMessageFile = 4096
	maxMessageLog  = 2048
	maxLogLines    = 80
)

// message returns why a container ended: the runtime's message and what the
// container itself left in its termination message file or, if its policy
// says so, at the end of its log.
func message(c *runtimeapi.ContainerStatus) string {
	own := ""
	if c.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
		own = ownMessage(c)
	}
	if c.GetMessage() != "" && own != "" {
		own = ": " + own
	}
	return strings.ToValidUTF8(c.GetMessage()+own, "\uFFFD") // the API takes nothing else
}

func ownMessage(c *runtimeapi.ContainerStatus) string {
	text, err := readMessageFile(c)
	if err != nil {
		return fmt.Sprintf("termination message cannot be read: %v", err)
	}
	policy := corev1.TerminationMessagePolicy(c.GetAnnotations()[runtimelabels.TerminationPolicy])
	// A container that did not start wrote no log.
	started := c.GetReason() != "ContainerCannotRun" && c.GetReason() != "StartError"
	if text != "" || policy != corev1.TerminationMessageFallbackToLogsOnError || c.GetExitCode() == 0 || !started {
		return text
	}
	text, err = logTail(c.GetLogPath())
	if err != nil {
		return fmt.Sprintf("end of the log cannot be read: %v", err)
	}
	return text
}

// readMessageFile reads the host's side of the mount at the container's
// termination message path. No mount or no file is an empty message.
func readMessageFile(c *runtimeapi.ContainerStatus) (string, error) {
	path := c.GetAnnotations()[runtimelabels.TerminationMessagePath]
	if path == "" {
		return "", nil
	}
	for _, m := range c.GetMounts() {
		if m.GetContainerPath() != path {
			continue
		}
		data, err := readEnd(m.GetHostPath(), maxMessageFile)
		if errors.Is(err, fs.ErrNotExist) {
			return "", nil
		}
		return string(data), err
	}
	return "", nil
}

// logTail returns the text of the last lines of a container's log, at most
// maxLogLines and maxMessageLog bytes of it.
func logTail(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	// The head of a line, time and stream, takes some 45 bytes.
	data, err := readEnd(path, maxMessageLog+64*maxLogLines)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	} else if err != nil {
		return "", err
	}
	return parseLogTail(data), nil
}

// parseLogTail extracts the text from the end of a log in CRI's format. Its
// first line may be cut anywhere.
func parseLogTail(data []byte) string {
	lines := bytes.SplitAfter(data, []byte("\n"))
	lines = lines[max(0, len(lines)-maxLogLines-1):] // what follows the last newline is a line, too
	var text strings.Builder
	for _, line := range lines {
		if s, ok := logText(line); ok {
			text.Write(s)
		}
	}
	return cutFront(text.String(), maxMessageLog)
}

// logText returns the text of one line, "TIME STREAM TAG TEXT\n". That of a
// partial line (tag P) has no newline. A line that is none, such as one that is
// cut, is not ok.
func logText(line []byte) (text []byte, ok bool) {
	fields := bytes.SplitN(line, []byte(" "), 4)
	if len(fields) < 4 || len(fields[0]) < len("2006-01-02T15:04:05Z") || fields[0][4] != '-' {
		return nil, false
	}
	if stream := string(fields[1]); stream != "stdout" && stream != "stderr" {
		return nil, false
	}
	if tag, _, _ := bytes.Cut(fields[2], []byte(":")); string(tag) == "P" {
		return bytes.TrimSuffix(fields[3], []byte("\n")), true
	}
	return fields[3], true
}

// cutFront keeps the last n bytes of s, less what would be half a character.
func cutFront(s string, n int) string {
	if len(s) <= n {
		return s
	}
	s = s[len(s)-n:]
	for i := 0; i < utf8.UTFMax && i < len(s); i++ {
		if utf8.RuneStart(s[i]) {
			return s[i:]
		}
	}
	return s
}

// readEnd returns the last n bytes of a regular file. It follows no link in
// the file's place and does not wait for a pipe's other end: the pod may have
// put there what it likes.
func readEnd(path string, n int64) ([]byte, error) {
	f, info, err := regularfile.Open(path, unix.O_NOFOLLOW)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err := f.Seek(max(0, info.Size()-n), io.SeekStart); err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(f, n))
}
