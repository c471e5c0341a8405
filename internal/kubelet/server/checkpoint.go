package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// maxCheckpoint bounds the time that one checkpoint may take.
const maxCheckpoint = time.Hour

// checkpoints writes a container's state into a file. A runtime that cannot
// returns an error that says so; 0 is its own timeout.
type checkpoints interface {
	CheckpointContainer(ctx context.Context, id, file string, timeout time.Duration) error
}

// serveCheckpoint answers /checkpoint: it has the runtime write the state of a
// container into a file, and names that.
func (s *Server) serveCheckpoint(w http.ResponseWriter, r *http.Request) {
	timeout, err := checkpointTimeout(r.URL.Query()["timeout"])
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound) // as upstream
		return
	}
	target, ok := s.find(w, r)
	if !ok {
		return
	}
	id, ok := target.running(w)
	if !ok {
		return
	}
	// Upstream's name of the file.
	file := filepath.Join(s.cfg.CheckpointDir, fmt.Sprintf("checkpoint-%s_%s-%s-%s.tar",
		target.pod.Name, target.pod.Namespace, target.container, time.Now().Format(time.RFC3339)))
	if err = os.MkdirAll(s.cfg.CheckpointDir, 0o700); err == nil {
		err = s.cfg.Checkpoints.CheckpointContainer(r.Context(), id, file, timeout)
	}
	if err != nil {
		http.Error(w, fmt.Sprintf("checkpointing of %s/%s/%s failed (%v)", target.pod.Namespace, target.pod.Name, target.container, err),
			http.StatusInternalServerError)
		return
	}
	s.writeJSON(w, map[string][]string{"items": {file}})
}

// checkpointTimeout reads seconds, of which the last given counts.
func checkpointTimeout(given []string) (time.Duration, error) {
	if len(given) == 0 {
		return 0, nil
	}
	seconds, err := strconv.ParseInt(given[len(given)-1], 10, 64)
	if err != nil || seconds < 0 {
		return 0, errors.New("cannot parse value of timeout parameter")
	}
	return time.Duration(min(seconds, int64(maxCheckpoint/time.Second))) * time.Second, nil
}
