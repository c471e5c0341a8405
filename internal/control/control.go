// Package control is how commands talk to the process that runs a node: the
// report it gives of itself, and a client for its control socket.
//
// The socket is <run folder>/control.sock, mode 0600: who may open it may stop
// the node. GET /report answers a Report; GET /store a snapshot of the store; POST /down stops pods and node and
// answers one Progress a line until it is done. Package
// internal/node/controlserver is the other end.
package control

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"syscall"
	"time"
)

// A Report says what a node runs and what is wrong. It is printed by
// "holdfast status"; the JSON names are for scripts and stay.
type Report struct {
	Node        string    `json:"node"`
	RootDir     string    `json:"rootDir"`
	ID          string    `json:"id"`
	PID         int       `json:"pid,omitempty"` // 0: no process runs the node
	Version     string    `json:"version,omitempty"`
	Started     time.Time `json:"started,omitzero"`
	Ready       bool      `json:"ready"`
	API         string    `json:"api,omitempty"`        // https://address:port
	APIOutside  []string  `json:"apiOutside,omitempty"` // address:port, for other machines; the best first
	Kubeconfig  string    `json:"kubeconfig"`
	ManifestDir string    `json:"manifestDir"`
	Parts       []Part    `json:"parts"`
	Sources     []Source  `json:"sources"`
	Pods        []Pod     `json:"pods"`
	Images      []Image   `json:"images"`
	Faults      []Fault   `json:"faults"`

	Certificates []Certificate `json:"certificates,omitempty"` // the authority first
}

// A Certificate is one that the node keeps.
type Certificate struct {
	Name    string    `json:"name"`
	File    string    `json:"file"`
	Expires time.Time `json:"expires,omitzero"` // zero: never
	Names   []string  `json:"names,omitempty"`  // hosts and addresses that a server's is for
}

// A Part is one long-lived part of the node.
type Part struct {
	Name    string    `json:"name"`
	State   PartState `json:"state"`
	Since   time.Time `json:"since,omitzero"`
	Message string    `json:"message,omitempty"`
}

// A PartState says how a part is.
type PartState string

// The states of a part.
const (
	Waiting  PartState = "waiting" // for a part before it
	Starting PartState = "starting"
	Running  PartState = "running"
	Failing  PartState = "failing" // runs, and reports an error
	Stopped  PartState = "stopped"
	External PartState = "external" // the user runs it; what is wrong with it is a fault
)

// A Pod is one pod in a report.
type Pod struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Source    string    `json:"source"` // file or api
	Phase     string    `json:"phase"`
	Reason    string    `json:"reason,omitempty"` // why it is not ready
	Message   string    `json:"message,omitempty"`
	Ready     int       `json:"ready"`      // containers ready
	Total     int       `json:"containers"` // containers in all
	Restarts  int32     `json:"restarts"`
	IP        string    `json:"ip,omitempty"`
	Started   time.Time `json:"started,omitzero"`
}

// An Image is one archive of the folder of images.
type Image struct {
	File  string   `json:"file"`
	State string   `json:"state"` // waiting, importing, imported or wrong
	Names []string `json:"names"` // of the images that came from it
}

// A Fault is something wrong that a person can mend, with the place to do it.
type Fault struct {
	File    string    `json:"file,omitempty"`
	Line    int       `json:"line,omitempty"`   // from 1; 0: the whole file
	Reason  string    `json:"reason,omitempty"` // "UnknownField", of a manifest
	Object  string    `json:"object,omitempty"` // "Pod default/web"
	Field   string    `json:"field,omitempty"`  // "spec.containers[0].image"
	Message string    `json:"message"`
	Hint    string    `json:"hint,omitempty"` // what to do
	Since   time.Time `json:"since,omitzero"`
}

// Progress is one line of a long answer. The last has Done or Error.
type Progress struct {
	Step  string `json:"step,omitempty"`
	Done  bool   `json:"done,omitempty"`
	Error string `json:"error,omitempty"`
}

// ErrNotRunning is returned when nothing answers at the control socket.
var ErrNotRunning = errors.New("no process runs this node")

// A Client talks to one control socket. Its methods may be called concurrently.
type Client struct {
	http http.Client
}

// NewClient returns a client for the control socket at path.
func NewClient(path string) *Client {
	var d net.Dialer
	return &Client{http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return d.DialContext(ctx, "unix", path)
		},
	}}}
}

// Report asks the node for its report.
func (c *Client) Report(ctx context.Context) (*Report, error) {
	body, err := c.do(ctx, http.MethodGet, "/report")
	if err != nil {
		return nil, err
	}
	defer body.Close()
	var r Report
	if err := json.NewDecoder(body).Decode(&r); err != nil {
		return nil, fmt.Errorf("read the node's report: %w", err)
	}
	return &r, nil
}

// Store copies a snapshot of the node's store to w.
func (c *Client) Store(ctx context.Context, w io.Writer) error {
	body, err := c.do(ctx, http.MethodGet, "/store")
	if err != nil {
		return err
	}
	defer body.Close()
	if _, err := io.Copy(w, body); err != nil {
		return fmt.Errorf("copy the store: %w", err)
	}
	return nil
}

// Down stops the node's pods and then the node. It calls step with each line
// of progress and returns when the node says that it is done.
func (c *Client) Down(ctx context.Context, step func(string)) error {
	body, err := c.do(ctx, http.MethodPost, "/down")
	if err != nil {
		return err
	}
	defer body.Close()
	lines := bufio.NewScanner(body)
	for lines.Scan() {
		var p Progress
		if err := json.Unmarshal(lines.Bytes(), &p); err != nil {
			return fmt.Errorf("read the node's progress: %w", err)
		}
		switch {
		case p.Error != "":
			return errors.New(p.Error)
		case p.Done:
			return nil
		default:
			step(p.Step)
		}
	}
	return errors.Join(lines.Err(), errors.New("the node ended before it said that it was done; see \"holdfast status\""))
}

func (c *Client) do(ctx context.Context, method, path string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://holdfast"+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		switch {
		case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ECONNREFUSED),
			errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.EOF): // it ended this moment
			return nil, fmt.Errorf("%w: %w", ErrNotRunning, err)
		case errors.Is(err, fs.ErrPermission):
			return nil, fmt.Errorf("%w (the node answers to root alone: use sudo)", err)
		default:
			return nil, err
		}
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, 4096))
	return nil, errors.Join(fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, bytes.TrimSpace(text)), err, resp.Body.Close())
}
