package server

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/proxy"
	streamproxy "k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
)

// running returns the identifier of the target's container, or answers the
// request if it does not run.
func (t target) running(w http.ResponseWriter) (string, bool) {
	container := t.status.Container(t.container)
	if container == nil || container.State != observed.Running {
		http.Error(w, fmt.Sprintf("container not found (%q)", t.container), http.StatusNotFound)
		return "", false
	}
	return container.ID, true
}

// proxyStreams joins a client with the runtime's session at a URL. Clients
// that speak the newest WebSocket protocol are translated to SPDY, which is
// all that runtimes speak.
func (s *Server) proxyStreams(w http.ResponseWriter, r *http.Request, to string, streams streamproxy.Options) {
	if wsstream.IsWebSocketRequestWithStreamCloseProtocol(r) {
		s.metrics.webSockets.WithLabelValues(bucket(r.URL.Path)).Inc()
		location, err := url.Parse(to)
		if err != nil {
			http.Error(w, "the runtime gave no URL", http.StatusInternalServerError)
			return
		}
		streamproxy.NewStreamTranslatorHandler(location, nil, 0, streams).ServeHTTP(w, withoutCredentials(r))
		return
	}
	if handler, ok := s.upgrade(w, to); ok {
		handler.ServeHTTP(w, withoutCredentials(r))
	}
}

// upgrade is a proxy to the runtime's URL for requests that upgrade their
// connection; others are refused.
func (s *Server) upgrade(w http.ResponseWriter, to string) (http.Handler, bool) {
	location, err := url.Parse(to)
	if err != nil {
		http.Error(w, "the runtime gave no URL", http.StatusInternalServerError)
		return nil, false
	}
	return proxy.NewUpgradeAwareHandler(location, nil, false, true, responder{s.log}), true
}

type responder struct{ log *slog.Logger }

// Error answers a request whose session could not be reached, or that asks for
// none.
func (r responder) Error(w http.ResponseWriter, _ *http.Request, err error) {
	code := http.StatusInternalServerError
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok && status.Status().Code != 0 {
		code = int(status.Status().Code)
	} else {
		r.log.Warn("Session with the runtime failed", "err", err)
	}
	http.Error(w, err.Error(), code)
}
