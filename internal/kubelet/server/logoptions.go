package server

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// errDecode is wrapped by what logOptions returns for a query that cannot be
// read; other errors are of a query that was read and asks for what cannot be.
var errDecode = errors.New("unable to decode query")

// logOptions reads the parameters of /containerLogs: those of PodLogOptions,
// and tail, which is what tailLines was called once.
func logOptions(query url.Values) (*v1.PodLogOptions, error) {
	d := decoder{query: query}
	opts := &v1.PodLogOptions{
		Follow:       d.boolean("follow"),
		Previous:     d.boolean("previous"),
		Timestamps:   d.boolean("timestamps"),
		SinceSeconds: d.number("sinceSeconds"),
		SinceTime:    d.time("sinceTime"),
		TailLines:    d.number("tailLines"),
		LimitBytes:   d.number("limitBytes"),
	}
	if tail := query.Get("tail"); tail == "all" {
		opts.TailLines = nil
	} else if tail != "" {
		opts.TailLines = d.number("tail")
	}
	stream := v1.LogStreamAll
	if query.Has("stream") {
		stream = query.Get("stream")
	}
	opts.Stream = &stream
	if d.err != nil {
		return nil, d.err
	}
	return opts, validLogOptions(opts)
}

// validLogOptions holds the API's rules for PodLogOptions.
func validLogOptions(opts *v1.PodLogOptions) error {
	var errs []error
	if opts.TailLines != nil && *opts.TailLines < 0 {
		errs = append(errs, fmt.Errorf("tailLines: %d is negative", *opts.TailLines))
	}
	if opts.LimitBytes != nil && *opts.LimitBytes < 1 {
		errs = append(errs, fmt.Errorf("limitBytes: %d is less than 1", *opts.LimitBytes))
	}
	if opts.SinceSeconds != nil && opts.SinceTime != nil {
		errs = append(errs, errors.New("at most one of sinceTime and sinceSeconds may be given"))
	} else if opts.SinceSeconds != nil && *opts.SinceSeconds < 1 {
		errs = append(errs, fmt.Errorf("sinceSeconds: %d is less than 1", *opts.SinceSeconds))
	}
	switch *opts.Stream {
	case v1.LogStreamAll:
	case v1.LogStreamStdout, v1.LogStreamStderr:
		if opts.TailLines != nil {
			errs = append(errs, errors.New("tailLines and a single stream exclude each other"))
		}
	default:
		errs = append(errs, fmt.Errorf("stream: %q is none of All, Stdout and Stderr", *opts.Stream))
	}
	return errors.Join(errs...)
}

// decoder reads query parameters and keeps the first error.
type decoder struct {
	query url.Values
	err   error
}

// boolean reads as the API does: a parameter without value is true.
func (d *decoder) boolean(name string) bool {
	if !d.query.Has(name) {
		return false
	}
	switch value := strings.ToLower(d.query.Get(name)); value {
	case "false", "0":
		return false
	default:
		return true
	}
}

func (d *decoder) number(name string) *int64 {
	text := d.query.Get(name)
	if text == "" {
		return nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		d.fail(name, text)
		return nil
	}
	return &n
}

func (d *decoder) time(name string) *metav1.Time {
	text := d.query.Get(name)
	if text == "" {
		return nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		d.fail(name, text)
		return nil
	}
	return &metav1.Time{Time: at}
}

func (d *decoder) fail(name, value string) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s: %q", errDecode, name, value)
	}
}
