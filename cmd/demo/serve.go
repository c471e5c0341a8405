package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"
)

// serve answers HTTP until ctx ends, then lets requests in flight finish.
func serve(ctx context.Context, args []string, out io.Writer) error {
	addr, err := serveAddr(args, os.Getenv("PORT"))
	if err != nil {
		return err
	}
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "serving on %s\n", listener.Addr())

	server := &http.Server{Handler: handler(), ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1) // 1: the sender never waits for the reader
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	deadline, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err = server.Shutdown(deadline)
	if err != nil {
		err = errors.Join(err, server.Close())
	}
	if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// get asks an HTTP server, as one pod does another.
func get(ctx context.Context, args []string, out io.Writer) error {
	if len(args) != 1 {
		return fmt.Errorf("get takes one URL: %w", errUsage)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, args[0], nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, resp.Body)
	err = errors.Join(err, resp.Body.Close())
	if resp.StatusCode/100 != 2 {
		err = errors.Join(err, fmt.Errorf("%s answers %s", args[0], resp.Status))
	}
	return err
}

// serveAddr returns the address to listen on; port is the variable PORT.
func serveAddr(args []string, port string) (string, error) {
	switch {
	case len(args) == 2 && (args[0] == "--addr" || args[0] == "-addr"):
		return args[1], nil
	case len(args) > 0:
		return "", fmt.Errorf("serve takes --addr ADDR and nothing else: %w", errUsage)
	case port != "":
		return ":" + port, nil
	default:
		return ":8080", nil
	}
}

func handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "hello from %s\nyou are %s and asked for %s\n", self(), r.RemoteAddr, r.URL.Path)
	})
	return mux
}

// self is the pod's name where the manifest passes it as POD_NAME, or the
// host's name, which is the same unless the pod sets another.
func self() string {
	if name := os.Getenv("POD_NAME"); name != "" {
		return name
	}
	name, err := os.Hostname()
	if err != nil {
		return "a host without a name"
	}
	return name
}
