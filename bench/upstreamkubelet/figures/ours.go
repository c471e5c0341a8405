package main

import (
	"context"
	"net/http"

	"github.com/holdfast-dev/holdfast/internal/kubelet/stats"
)

// ours serves from a collector.
type ours struct {
	collector *stats.Collector
	stop      func()
}

// newOurs starts a collector and waits for its first collection.
func newOurs(w *world) (*ours, error) {
	ctx, cancel := context.WithCancel(ctx)
	o := &ours{collector: stats.New(w.config())}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = o.collector.Run(ctx) // it fails for nothing
	}()
	o.stop = func() {
		cancel()
		<-ended
	}
	if _, err := o.collector.Last(ctx); err != nil {
		o.stop()
		return nil, err
	}
	return o, nil
}

func (o *ours) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var data []byte
	var err error
	if r.URL.Path == resourcePath {
		data, err = o.collector.ResourceMetrics(r.Context())
	} else {
		data, err = o.collector.SummaryJSON(r.Context(), false)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write(data) // a client that is gone is no matter
}

// fresh collects anew for each request.
type fresh struct{ world *world }

func (f fresh) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o, err := newOurs(f.world)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer o.stop()
	o.ServeHTTP(w, r)
}
