package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/bench/page"
)

const (
	summaryPath  = "/stats/summary"
	resourcePath = "/metrics/resource"

	rounds  = 5   // how often everything is measured
	clients = 10  // at once
	each    = 100 // requests of each of them
)

// nobody throws an answer away, and counts it.
type nobody struct {
	header http.Header
	code   int
	bytes  int
}

func (n *nobody) Header() http.Header { return n.header }
func (n *nobody) WriteHeader(c int)   { n.code = c }

func (n *nobody) Write(data []byte) (int, error) {
	n.bytes += len(data)
	return len(data), nil
}

func report() (string, error) {
	head, err := page.Head("figures", fmt.Sprintf("The least of %d", rounds))
	if err != nil {
		return "", err
	}
	w := newWorld()
	o, err := newOurs(w)
	if err != nil {
		return "", err
	}
	defer o.stop()
	last, err := o.collector.Last(ctx)
	if err != nil {
		return "", err
	}
	up := newUpstream(last.Summary)
	var b strings.Builder
	b.WriteString(head)
	fmt.Fprintf(&b, "| one request, %d pods of %d containers and %d volumes | upstream | Holdfast | time | upstream, allocated | Holdfast, allocated | garbage | upstream, size | Holdfast, size |\n|---|---|---|---|---|---|---|---|---|\n", pods, containers, volumes)
	for _, c := range []struct {
		name, path string
		ours       http.Handler
	}{
		{"Summary, of the last collection", summaryPath, o},
		{"Summary, each after a collection of its own", summaryPath, fresh{w}},
		{"`/metrics/resource`, of the last collection", resourcePath, o},
		{"`/metrics/resource`, each after a collection of its own", resourcePath, fresh{w}},
	} {
		if err := row(&b, c.name, c.path, up, c.ours); err != nil {
			return "", err
		}
	}
	fmt.Fprintf(&b, "\n| %d clients at once, over HTTP | upstream, p50 | p99 | Holdfast, p50 | p99 |\n|---|---|---|---|---|\n", clients)
	for _, path := range []string{summaryPath, resourcePath} {
		theirs, err := latencies(up, path)
		if err != nil {
			return "", err
		}
		our, err := latencies(o, path)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", path, milliseconds(quantile(theirs, 0.5)), milliseconds(quantile(theirs, 0.99)), milliseconds(quantile(our, 0.5)), milliseconds(quantile(our, 0.99)))
	}
	return b.String(), nil
}

// row measures one kind of request on both sides, in turns.
func row(b *strings.Builder, name, path string, sides ...http.Handler) error {
	var least [2]testing.BenchmarkResult
	var size [2]int
	for range rounds {
		for i, handler := range sides {
			failed := 0
			r := testing.Benchmark(func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					request, answer := httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil), &nobody{header: http.Header{}, code: http.StatusOK}
					handler.ServeHTTP(answer, request)
					if size[i] = answer.bytes; answer.code != http.StatusOK {
						failed = answer.code
					}
				}
			})
			if failed != 0 {
				return fmt.Errorf("%s is answered with %d", path, failed)
			}
			if least[i].N == 0 || r.NsPerOp() < least[i].NsPerOp() {
				least[i] = r
			}
		}
	}
	up, our := least[0], least[1]
	fmt.Fprintf(b, "| %s | %s | %s | %s | %s, %d | %s, %d | %s | %s | %s |\n", name, milliseconds(time.Duration(up.NsPerOp())), milliseconds(time.Duration(our.NsPerOp())), ratio(our.NsPerOp(), up.NsPerOp()),
		kilobytes(up.AllocedBytesPerOp()), up.AllocsPerOp(), kilobytes(our.AllocedBytesPerOp()), our.AllocsPerOp(), ratio(our.AllocedBytesPerOp(), up.AllocedBytesPerOp()),
		kilobytes(int64(size[0])), kilobytes(int64(size[1])))
	return nil
}

// latencies are how long each of many requests took.
func latencies(handler http.Handler, path string) ([]time.Duration, error) {
	server := httptest.NewServer(handler)
	defer server.Close()
	var mu sync.Mutex // guards the two below
	var all []time.Duration
	var errs []error
	var asking sync.WaitGroup
	for range clients {
		asking.Go(func() {
			client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
			defer client.CloseIdleConnections()
			for range each {
				began := time.Now()
				err := get(client, server.URL+path)
				took := time.Since(began)
				mu.Lock()
				all, errs = append(all, took), append(errs, err)
				mu.Unlock()
			}
		})
	}
	asking.Wait()
	slices.Sort(all)
	return all, errors.Join(errs...)
}

// get asks and reads the answer to its end.
func get(client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, answer.Body)
	return errors.Join(err, answer.Body.Close())
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[int(q*float64(len(sorted)-1))]
}

func ratio(of, to int64) string {
	if r := float64(of) / float64(to); r >= 0.01 {
		return fmt.Sprintf("%.2f", r)
	}
	return "< 0.01"
}

func milliseconds(d time.Duration) string {
	if d < 100*time.Microsecond {
		return fmt.Sprintf("%.1f µs", float64(d)/float64(time.Microsecond))
	}
	return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond))
}

func kilobytes(n int64) string {
	if n < 10_000 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%d KB", n/1000)
}
