// Package server is the kubelet's HTTP API: logs of containers, commands in
// them, forwarded ports, the pods, health and metrics, at the paths and with
// the answers that API servers and other clients of the upstream kubelet
// expect.
//
// Every request to the main listener is authenticated (client certificate or
// bearer token) and authorized by the API; nothing is served to strangers.
// The health listener serves health alone and asks for nothing.
//
// The package reads pods, their last known status and log files; it writes
// nothing. Each request runs in the HTTP server's goroutine; what the fields of
// Config hold is called from many at once. Run ends the sessions that are open
// when it is told to stop.
package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
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

	Certificate  func(*tls.ClientHelloInfo) (*tls.Certificate, error) // the serving certificate, asked for at each handshake
	ClientCAs    func() *x509.CertPool                                // sign client certificates, asked for at each handshake and request; nil: none are accepted
	TokenReviews tokenReviews                                         // nil: no bearer token is accepted
	AccessReview accessReviews

	Node     string // the Node's name: what access is asked for
	Pods     pods
	Statuses statuses
	Relist   relist
	Runtime  runtime
	LogDir   string              // no log file outside it is read
	Metrics  prometheus.Gatherer // /metrics; nil: there is none
	Probes   prometheus.Gatherer // /metrics/probes; nil: there is none
	Stats    statistics          // /stats/summary, /metrics/resource and /metrics/cadvisor; nil: there are none
	Checks   []Check             // of /healthz, beside ping
	// Configuration is what /configz shows; nil: there is none. Nobody changes it.
	Configuration *kubeletconfig.KubeletConfiguration
	Log           *slog.Logger
}

// A Server serves one kubelet's API.
type Server struct {
	cfg   Config
	log   *slog.Logger
	users *userCache
	gates *gateCache

	sessions sessions
}

// New prepares a Server; Run starts it.
func New(cfg Config) *Server {
	return &Server{
		cfg:      cfg,
		log:      cfg.Log,
		users:    newCache[tokenKey, user](),
		gates:    newCache[gateKey, bool](),
		sessions: sessions{idle: make(chan struct{})},
	}
}

// Run serves until ctx is done, then closes what is open and returns.
func (s *Server) Run(ctx context.Context) error {
	base, cancel := context.WithCancel(ctx)
	defer cancel()
	conns := &conns{open: map[net.Conn]struct{}{}}
	api := s.httpServer(base, s.sessions.count(s.admit(s.routes())))
	api.TLSConfig = s.tlsConfig()
	servers := []*http.Server{api}
	failed := make(chan error, len(s.cfg.Listeners)+1) // one for each that serves
	var wg sync.WaitGroup
	for _, l := range s.cfg.Listeners {
		wg.Go(func() { failed <- api.ServeTLS(listener{l, conns}, "", "") })
	}
	if s.cfg.HealthListener != nil {
		health := s.httpServer(base, s.healthRoutes())
		servers = append(servers, health)
		wg.Go(func() { failed <- health.Serve(s.cfg.HealthListener) })
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
	config := &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"h2", "http/1.1"}, // of those made below too, which the HTTP server does not complete
		GetCertificate: s.cfg.Certificate,
		ClientAuth:     tls.RequestClientCert, // checked in authenticate: a bad one may come with a good token
	}
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
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      requestTimeout,
		IdleTimeout:       idleTimeout,
		BaseContext:       func(net.Listener) context.Context { return base },
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
}

// routes maps the paths of the upstream kubelet. Paths with a UID address that
// very pod; paths without address whichever has the name.
func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	get := func(path string, handler http.HandlerFunc) {
		mux.Handle(path, only(handler, http.MethodGet))
	}
	mux.Handle("/healthz", only(s.serveHealth, http.MethodGet, http.MethodHead))
	mux.Handle("/healthz/{check}", only(s.serveHealth, http.MethodGet, http.MethodHead))
	get("/pods", s.servePods)
	get("/pods/{$}", s.servePods)
	get("/runningpods", s.serveRunningPods)
	get("/runningpods/{$}", s.serveRunningPods)
	if s.cfg.Metrics != nil {
		get("/metrics", serveMetrics(s.cfg.Metrics))
	}
	if s.cfg.Probes != nil {
		get("/metrics/probes", serveMetrics(s.cfg.Probes))
	}
	if s.cfg.Stats != nil {
		for _, path := range []string{"/stats/summary", "/stats/summary/{$}"} {
			mux.Handle(path, only(s.serveSummary, http.MethodGet, http.MethodPost))
		}
		get("/metrics/resource", s.serveResourceMetrics)
		get("/metrics/cadvisor", s.serveCadvisorMetrics)
	}
	if s.cfg.Configuration != nil {
		get("/configz", s.serveConfigz)
	}
	get("/containerLogs/{namespace}/{pod}/{container}", s.serveLogs)
	for path, handler := range map[string]http.HandlerFunc{
		"/exec":   s.serveExec,
		"/attach": s.serveAttach,
	} {
		mux.Handle(path+"/{namespace}/{pod}/{container}", only(handler, http.MethodGet, http.MethodPost))
		mux.Handle(path+"/{namespace}/{pod}/{uid}/{container}", only(handler, http.MethodGet, http.MethodPost))
	}
	mux.Handle("/portForward/{namespace}/{pod}", only(s.servePortForward, http.MethodGet, http.MethodPost))
	mux.Handle("/portForward/{namespace}/{pod}/{uid}", only(s.servePortForward, http.MethodGet, http.MethodPost))
	mux.Handle("/run/{namespace}/{pod}/{container}", only(s.serveRun, http.MethodPost))
	mux.Handle("/run/{namespace}/{pod}/{uid}/{container}", only(s.serveRun, http.MethodPost))
	return mux
}

func (s *Server) healthRoutes() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/healthz", only(s.serveHealth, http.MethodGet, http.MethodHead))
	mux.Handle("/healthz/{check}", only(s.serveHealth, http.MethodGet, http.MethodHead))
	return mux
}

// only answers other methods with 405 and the methods that would do.
func only(handler http.HandlerFunc, methods ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if slices.Contains(methods, r.Method) {
			handler(w, r)
			return
		}
		for _, method := range methods {
			w.Header().Add("Allow", method)
		}
		http.Error(w, "Method Not Allowed", http.StatusMethodNotAllowed)
	})
}
