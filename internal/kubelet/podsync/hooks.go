package podsync

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/holdfast-dev/holdfast/internal/kubelet/reason"
)

// maxHookAnswer is how much of an answer is read so that its connection can be
// used again, in bytes.
const maxHookAnswer = 10 << 10

// hookClient returns the client for HTTP hooks. As upstream's, it checks no
// certificate: the address is the pod's own.
func hookClient() *http.Client {
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // see above
		DisableKeepAlives: true,
	}}
}

// A hook says where a lifecycle hook runs.
type hook struct {
	containerID string
	ips         []string // the pod's
}

// runHook runs a lifecycle hook to its end.
func (s *Syncer) runHook(ctx context.Context, pod *v1.Pod, c *v1.Container, h *v1.LifecycleHandler, at hook) error {
	switch {
	case h.Exec != nil:
		stdout, stderr, code, err := s.cfg.Runtime.ExecSync(ctx, at.containerID, h.Exec.Command, 0)
		if err == nil && code != 0 {
			err = fmt.Errorf("command %q exited with %d: %q", h.Exec.Command, code, string(stdout)+string(stderr))
		}
		return err
	case h.HTTPGet != nil:
		return s.httpHook(ctx, pod, c, h.HTTPGet, at.ips)
	case h.Sleep != nil:
		timer := time.NewTimer(time.Duration(h.Sleep.Seconds) * time.Second)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	default:
		return errors.New("a hook of a kind that is not supported")
	}
}

// httpHook sends a hook's request; any answer is success, as upstream has it.
// A server that speaks HTTP where HTTPS was asked for is asked again in HTTP.
func (s *Syncer) httpHook(ctx context.Context, pod *v1.Pod, c *v1.Container, get *v1.HTTPGetAction, ips []string) error {
	req, err := hookRequest(ctx, c, get, ips)
	if err != nil {
		return err
	}
	err = s.send(req)
	if !isPlainHTTP(err) {
		return err
	}
	req = req.Clone(ctx)
	req.URL.Scheme = "http"
	req.Header.Del("Authorization") // not over a connection that others may read
	if err := s.send(req); err != nil {
		return err
	}
	s.events.warn(pod, reason.LifecycleHTTPFallback, "request to HTTPS lifecycle hook %s got HTTP response, retry with HTTP succeeded", req.URL.Host)
	return nil
}

func (s *Syncer) send(req *http.Request) error {
	answer, err := s.cfg.HTTP.Do(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, io.LimitReader(answer.Body, maxHookAnswer))
	return errors.Join(err, answer.Body.Close())
}

func isPlainHTTP(err error) bool {
	return err != nil && strings.Contains(err.Error(), "server gave HTTP response to HTTPS client")
}

func hookRequest(ctx context.Context, c *v1.Container, get *v1.HTTPGetAction, ips []string) (*http.Request, error) {
	host := get.Host
	if host == "" {
		if len(ips) == 0 {
			return nil, errors.New("the pod has no address")
		}
		host = ips[0]
	}
	port, err := hookPort(c, get.Port)
	if err != nil {
		return nil, err
	}
	target, err := url.Parse(get.Path)
	if err != nil {
		target = &url.URL{Path: get.Path}
	}
	target.Scheme = strings.ToLower(string(get.Scheme))
	if target.Scheme == "" {
		target.Scheme = "http"
	}
	target.Host = net.JoinHostPort(host, strconv.Itoa(port))
	if !path.IsAbs(target.Path) {
		target.Path = "/" + target.Path
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "kube-lifecycle/holdfast")
	req.Header.Set("Accept", "*/*")
	for _, h := range get.HTTPHeaders {
		if http.CanonicalHeaderKey(h.Name) == "Host" {
			req.Host = h.Value
			continue
		}
		req.Header.Add(h.Name, h.Value)
	}
	return req, nil
}

// hookPort resolves a port by number or by the name that the container gives it.
func hookPort(c *v1.Container, port intstr.IntOrString) (int, error) {
	number := port.IntValue()
	if port.Type == intstr.String {
		for _, p := range c.Ports {
			if p.Name == port.StrVal {
				number = int(p.ContainerPort)
			}
		}
	}
	if number < 1 || number > 65535 {
		return 0, fmt.Errorf("port %q is neither a number nor a port of container %s", port.String(), c.Name)
	}
	return number, nil
}
