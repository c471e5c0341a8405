// Package certrenewal renews certificates while a node runs.
//
// It asks at each tick whether one is due, rather than to wait until then: the
// clock may jump by years, when a machine that keeps no time hears of it, and
// addresses that a certificate must name come and go.
package certrenewal

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// authority issues again what is due. What it could not issue stays in use.
type authority interface {
	Renew() (renewed []string, err error)
}

// A Config says what to renew.
type Config struct {
	Authority authority
	// Renewed is called with the names of the certificates that were issued
	// again, to put them to use. An error is logged, and the call made again at
	// the next tick. May be nil.
	Renewed func(names []string) error
	// Every is the time between two looks. Default: a minute.
	Every time.Duration
	Log   *slog.Logger
}

const defaultEvery = time.Minute

// A Renewer renews one authority's certificates.
type Renewer struct {
	cfg     Config
	pending []string // renewed, and not yet in use
	told    string   // the last trouble that was logged
}

// New returns a Renewer that does not run yet.
func New(cfg Config) *Renewer {
	if cfg.Every == 0 {
		cfg.Every = defaultEvery
	}
	if cfg.Renewed == nil {
		cfg.Renewed = func([]string) error { return nil }
	}
	return &Renewer{cfg: cfg}
}

// Run renews until ctx is done.
func (r *Renewer) Run(ctx context.Context) error {
	tick := time.NewTicker(r.cfg.Every)
	defer tick.Stop()
	for {
		r.look()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (r *Renewer) look() {
	renewed, err := r.cfg.Authority.Renew()
	for _, name := range renewed {
		r.cfg.Log.Info("a certificate was renewed", "file", name)
	}
	r.pending = append(r.pending, renewed...)
	if len(r.pending) > 0 {
		errUse := r.cfg.Renewed(r.pending)
		if errUse == nil {
			r.pending = nil
		}
		err = errors.Join(err, errUse)
	}
	trouble := ""
	if err != nil {
		trouble = err.Error()
	}
	if trouble != "" && trouble != r.told {
		r.cfg.Log.Error("certificates are not renewed", "err", err)
	}
	r.told = trouble
}
