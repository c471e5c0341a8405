package pluginregistry

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// register asks the plugin behind a socket who it is, has its handler take it
// and tells it how that ended.
func (r *Registry) register(ctx context.Context, path string) (_ *taken, err error) {
	conn, err := dial(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	client := registration.NewRegistrationClient(conn)
	p, kind, err := r.ask(ctx, client, path)
	if err != nil {
		return nil, err
	}
	handler := r.cfg.Handlers[kind]
	if handler == nil {
		return nil, r.refuse(ctx, client, fmt.Errorf("plugins of type %s cannot be used by this version, only %s", quote(kind), r.types()))
	}
	if err := handler.Register(ctx, p); err != nil {
		return nil, r.refuse(ctx, client, err)
	}
	err = r.tell(ctx, client, &registration.RegistrationStatus{PluginRegistered: true})
	if err != nil && ctx.Err() == nil {
		handler.Deregister(p) // it does not know that it is in use, and may be on its way out
		return nil, err
	}
	return &taken{p, handler}, nil
}

// ask asks a plugin who it is.
func (r *Registry) ask(ctx context.Context, client registration.RegistrationClient, path string) (p Plugin, kind string, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Ask)
	defer cancel()
	info, err := client.GetInfo(ctx, &registration.InfoRequest{})
	if err != nil {
		return p, "", fmt.Errorf("ask the plugin who it is: %s", status.Convert(err).Message())
	}
	p = Plugin{Name: info.GetName(), Endpoint: info.GetEndpoint(), Versions: info.GetSupportedVersions()}
	if p.Endpoint == "" {
		p.Endpoint = path
	}
	return p, info.GetType(), nil
}

// refuse tells a plugin why it is not taken, and returns that.
func (r *Registry) refuse(ctx context.Context, client registration.RegistrationClient, why error) error {
	return errors.Join(why, r.tell(ctx, client, &registration.RegistrationStatus{Error: why.Error()}))
}

func (r *Registry) tell(ctx context.Context, client registration.RegistrationClient, s *registration.RegistrationStatus) error {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Ask)
	defer cancel()
	if _, err := client.NotifyRegistrationStatus(ctx, s); err != nil {
		return fmt.Errorf("tell the plugin how its registration ended: %s", status.Convert(err).Message())
	}
	return nil
}

// types names the types that have a handler.
func (r *Registry) types() string {
	var names []string
	for name := range r.cfg.Handlers {
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// quote bounds what a plugin says of itself before a person reads it.
func quote(s string) string {
	if len(s) > 63 {
		s = s[:63] + "…"
	}
	return fmt.Sprintf("%q", s)
}

func dial(path string) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("passthrough:///"+path, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}))
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", path, err)
	}
	return conn, nil
}
