// Package server is the kubelet's HTTP API: logs of containers, commands in
// them, forwarded ports, the pods, health and metrics, at the paths and with
// the answers that API servers and other clients of the upstream kubelet
// expect.
//
// Every request to the main listeners is authenticated (client certificate or
// bearer token) and authorized by the API; nothing is served to strangers,
// unless the Policy says so. The health listener serves health alone, the
// read-only ones what upstream's serves; they ask for nothing.
//
// The package reads pods, their last known status and log files; it writes
// nothing, but has the runtime write checkpoints. Each request runs in the HTTP
// server's goroutine; what the fields of Config hold is called from many at
// once. Requests are bounded in size, time and number. Run ends the sessions
// that are open when it is told to stop.
package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	goruntime "runtime"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
)

// The bounds of a request, as for the upstream kubelet.
const (
	idleTimeout     = 90 * time.Second
	requestTimeout  = 4 * time.Hour // logs may be followed that long
	headerTimeout   = 30 * time.Second
	shutdownTimeout = 2 * time.Second

	maxHeaderBytes = 1 << 20 // the command of /exec is among them
	maxBodyBytes   = 1 << 20 // no endpoint reads more than a word
	maxRequests    = 1000    // at once: answers, logs that are followed, commands, forwarded ports
	maxConnections = 4000    // at once, of all listeners, whether or not anybody is known at their other end
)

// pods knows the pods that this node runs, with their last status. What it
// returns is not changed by either side.
type pods interface {
	Pods() []*v1.Pod
	PodByName(namespace, name string) (*v1.Pod, bool)
}

// statuses knows what the runtime last reported of a pod. An unknown pod gives
// an empty status.
type statuses interface {
	Get(uid types.UID) (*observed.Status, error)
}

// relist knows what the runtime has, wanted or not.
type relist interface {
	Pods() []observed.Pod
}

// statistics knows what the node and its pods use. Calls wait only until there is
// anything at all; nobody changes what they return.
type statistics interface {
	SummaryJSON(ctx context.Context, cpuAndMemory bool) ([]byte, error)
	ResourceMetrics(ctx context.Context) ([]byte, error)
	CadvisorMetrics(ctx context.Context) ([]byte, error)
}

// A Check is one part of /healthz.
type Check struct {
	Name string
	Err  func() error // nil: healthy; must not block
}

// Config says what to serve, where and to whom.
type Config struct {
	Listeners      []net.Listener // of the API, without TLS; closed by Run
	HealthListener net.Listener   // serves /healthz without TLS or credentials; nil: none. Closed by Run
	// ReadOnly serve, without TLS or credentials, what upstream's read-only port
	// does: health, pods, metrics, the Summary. Closed by Run.
	ReadOnly []net.Listener
	Policy   Policy

	Certificate  func(*tls.ClientHelloInfo) (*tls.Certificate, error) // the serving certificate, asked for at each handshake
	TLS          *tls.Config                                          // versions, cipher suites and key exchanges; nil: TLS 1.2 and later, as Go chooses
	ClientCAs    func() *x509.CertPool                                // sign client certificates, asked for at each handshake and request; nil: none are accepted
	TokenReviews tokenReviews                                         // nil: no bearer token is accepted
	AccessReview accessReviews

	Node     string // the Node's name: what access is asked for
	Pods     pods
	Statuses statuses
	Relist   relist
	Runtime  runtime
	LogDir   string // no log file outside it is read
	// SystemLogs is the folder that /logs shows; nothing outside it is read.
	// Default: /var/log.
	SystemLogs string
	// CheckpointDir is the folder of containers' checkpoints, made by the first one.
	CheckpointDir string
	Checkpoints   checkpoints
	Metrics       prometheus.Gatherer // /metrics; nil: there is none
	Probes        prometheus.Gatherer // /metrics/probes; nil: there is none
	Stats         statistics          // /stats/summary, /metrics/resource and /metrics/cadvisor; nil: there are none
	Checks        []Check             // of /healthz, beside ping
	// Configuration is what /configz shows; nil: there is none. Nobody changes it.
	Configuration *kubeletconfig.KubeletConfiguration
	// Flags are what /flagz shows, by name; nil: there is no /flagz.
	Flags map[string]string
	// SetVerbosity is told what was sent to /debug/flags/v, and returns what is
	// wrong with it; nil: there is no such path.
	SetVerbosity func(level string) error

	Registerer prometheus.Registerer // takes this package's metrics; nil: nobody sees them
	Log        *slog.Logger
}

// A Server serves one kubelet's API.
type Server struct {
	cfg    Config
	policy Policy
	log    *slog.Logger
	begun  time.Time

	users     *userCache
	strangers *userCache // tokens that are nobody's
	gates     *gateCache

	metrics  *metrics
	checks   *checkMetrics
	sessions sessions
}

// New prepares a Server; Run starts it.
func New(cfg Config) *Server {
	cfg.SystemLogs = cmp.Or(cfg.SystemLogs, "/var/log")
	return &Server{
		cfg:       cfg,
		policy:    cfg.Policy.withDefaults(),
		log:       cfg.Log,
		begun:     time.Now(),
		users:     newCache[hash, user](),
		strangers: newCache[hash, user](),
		gates:     newCache[hash, bool](),
		metrics:   newMetrics(cfg.Registerer),
		checks:    newCheckMetrics(),
		sessions:  sessions{idle: make(chan struct{})},
	}
}

// Run serves until ctx is done, then closes what is open and returns.
func (s *Server) Run(ctx context.Context) error {
	base, cancel := context.WithCancel(ctx)
	defer cancel()
	if s.policy.ContentionProfiling {
		goruntime.SetBlockProfileRate(1)
		defer goruntime.SetBlockProfileRate(0)
	}
	conns := &conns{open: map[*conn]struct{}{}}
	api := s.httpServer(base, s.metrics.count("readwrite", s.sessions.count(s.admit(mux(s.routes(s.debugging())...)))))
	api.TLSConfig = s.tlsConfig()
	api.ConnState = conns.state
	readOnly := s.httpServer(base, s.metrics.count("readonly", s.sessions.count(mux(s.routes(debuggingOff())...))))
	servers := []*http.Server{api, readOnly}
	failed := make(chan error, len(s.cfg.Listeners)+len(s.cfg.ReadOnly)+1) // one for each that serves
	var wg sync.WaitGroup
	wg.Go(func() { conns.closeIdle(base, s.policy.StreamIdle) })
	for _, l := range s.cfg.Listeners {
		wg.Go(func() { failed <- api.ServeTLS(listener{l, conns}, "", "") })
	}
	for _, l := range s.cfg.ReadOnly {
		wg.Go(func() { failed <- readOnly.Serve(listener{l, conns}) })
	}
	if s.cfg.HealthListener != nil {
		health := s.httpServer(base, mux(s.healthRoutes()...))
		servers = append(servers, health)
		wg.Go(func() { failed <- health.Serve(listener{s.cfg.HealthListener, conns}) })
	}

	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
		err = fmt.Errorf("serve the kubelet API: %w", err)
	}
	cancel() // ends those who follow a log
	s.sessions.close()
	grace, stop := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer stop()
	for _, server := range servers {
		if shutdownErr := server.Shutdown(grace); shutdownErr != nil {
			err = errors.Join(err, server.Close())
		}
	}
	conns.closeAll() // commands and forwarded ports: the server has let go of their connections
	<-s.sessions.idle
	wg.Wait()
	return err
}

func (s *Server) tlsConfig() *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.cfg.TLS != nil {
		config = s.cfg.TLS.Clone()
	}
	config.NextProtos = []string{"h2", "http/1.1"} // of those made below too, which the HTTP server does not complete
	config.GetCertificate = s.cfg.Certificate
	config.ClientAuth = tls.RequestClientCert // checked in authenticate: a bad one may come with a good token
	if s.cfg.ClientCAs != nil {
		static := config.Clone()
		config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
			now := static.Clone()
			now.ClientCAs = s.cfg.ClientCAs() // which the client is told, to choose one of its certificates by
			return now, nil
		}
	}
	return config
}

func (s *Server) httpServer(base context.Context, handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           bounded(handler),
		MaxHeaderBytes:    maxHeaderBytes,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      requestTimeout,
		IdleTimeout:       idleTimeout,
		BaseContext:       func(net.Listener) context.Context { return base },
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
}

// bounded lets no body through that is larger than any that is wanted.
func bounded(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			r.Body = http.MaxBytesReader(w, r.Body, maxBodyBytes)
		}
		handler.ServeHTTP(w, r)
	})
}
