package probehandler

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// httpClient makes a client for probes: no proxy of the node's, no connection
// kept, no certificate checked. Redirects are followed on the same host only:
// a probe must not be led to where the container may not go.
func httpClient(h2c bool) *http.Client {
	transport := &http.Transport{
		TLSClientConfig:    &tls.Config{InsecureSkipVerify: true}, // the container's certificate is for its users
		ForceAttemptHTTP2:  !h2c,
		DisableKeepAlives:  true,
		DisableCompression: true,
		DialContext:        dialer().DialContext,
	}
	if h2c {
		transport.Protocols = new(http.Protocols)
		transport.Protocols.SetUnencryptedHTTP2(true)
	}
	return &http.Client{Transport: transport, CheckRedirect: func(req *http.Request, via []*http.Request) error {
		if req.URL.Hostname() != via[0].URL.Hostname() {
			return http.ErrUseLastResponse
		}
		if len(via) >= 10 {
			return errors.New("stopped after 10 redirects")
		}
		return nil
	}}
}

// get is well if the answer's status is 2xx or 3xx.
func (h *Handler) get(ctx context.Context, action *v1.HTTPGetAction, c *v1.Container, podIP string) (bool, string, error) {
	req, err := h.request(ctx, action, c, podIP)
	if err != nil {
		return false, "", err
	}
	client := h.http
	if action.Protocol != nil && *action.Protocol == v1.HTTPProtocolHTTP2 {
		client = h.h2c
	}
	resp, err := client.Do(req)
	if err != nil {
		if errors.Is(ctx.Err(), context.Canceled) {
			return false, "", ctx.Err()
		}
		return false, err.Error(), nil // a container that does not answer is not well
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxOutput))
	if err != nil {
		return false, "", err
	}
	switch {
	case resp.StatusCode < 200 || resp.StatusCode >= 400:
		// Not the body: whoever reads events may not be who may read this (#99425).
		return false, fmt.Sprintf("HTTP probe failed with statuscode: %d", resp.StatusCode), nil
	case resp.StatusCode >= 300:
		return true, fmt.Sprintf("Probe terminated redirects, Response body: %s", body), nil
	default:
		return true, "", nil
	}
}

func (h *Handler) request(ctx context.Context, action *v1.HTTPGetAction, c *v1.Container, podIP string) (*http.Request, error) {
	host, err := hostOr(action.Host, podIP)
	if err != nil {
		return nil, err
	}
	port, err := portOf(action.Port, c)
	if err != nil {
		return nil, err
	}
	target, err := url.Parse(action.Path)
	if err != nil {
		target = &url.URL{Path: action.Path} // as it is: it was admitted
	}
	target.Scheme = "http"
	if strings.EqualFold(string(action.Scheme), string(v1.URISchemeHTTPS)) {
		target.Scheme = "https"
	}
	target.Host = net.JoinHostPort(host, strconv.Itoa(int(port)))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, err
	}
	for _, header := range action.HTTPHeaders {
		req.Header.Add(header.Name, header.Value)
	}
	if _, ok := req.Header["User-Agent"]; !ok {
		req.Header.Set("User-Agent", h.agent)
	}
	switch _, ok := req.Header["Accept"]; {
	case !ok:
		req.Header.Set("Accept", "*/*")
	case req.Header.Get("Accept") == "":
		req.Header.Del("Accept") // an empty one asks for none
	}
	req.Host = req.Header.Get("Host")
	return req, nil
}
