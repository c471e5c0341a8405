package server

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	streamproxy "k8s.io/apiserver/pkg/util/proxy"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

// servePortForward answers /portForward: connections to ports of a pod. Over
// SPDY the ports come with the streams; over plain WebSocket with the request.
func (s *Server) servePortForward(w http.ResponseWriter, r *http.Request) {
	tunnel := wsstream.IsWebSocketRequestWithTunnelingProtocol(r)
	var ports []int32
	if wsstream.IsWebSocketRequest(r) && !tunnel {
		var err error
		if ports, err = portsOf(r.URL.Query()["port"]); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	target, ok := s.find(w, r)
	if !ok {
		return
	}
	sandbox := target.status.ReadySandbox()
	if sandbox == nil {
		http.Error(w, fmt.Sprintf("pod %q has no running sandbox", target.pod.Name), http.StatusNotFound)
		return
	}
	url, err := s.cfg.Runtime.PortForward(r.Context(), &runtimeapi.PortForwardRequest{PodSandboxId: sandbox.GetId(), Port: ports})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	handler, ok := s.upgrade(w, url)
	if !ok {
		return
	}
	if tunnel {
		s.metrics.webSockets.WithLabelValues("portforward").Inc()
		handler = streamproxy.NewTunnelingHandler(handler)
	}
	handler.ServeHTTP(w, withoutCredentials(r))
}

// portsOf reads ports, given one a parameter or with commas between.
func portsOf(params []string) ([]int32, error) {
	var ports []int32
	for _, param := range params {
		for text := range strings.SplitSeq(param, ",") {
			port, err := strconv.ParseUint(text, 10, 16)
			if err != nil || port == 0 {
				return nil, fmt.Errorf("%q is no port", text)
			}
			ports = append(ports, int32(port))
		}
	}
	if len(ports) == 0 {
		return nil, fmt.Errorf("query parameter %q is required", "port")
	}
	return ports, nil
}
