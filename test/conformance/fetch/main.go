// Command fetch stands in for curl and wget in the images of upstream's tests,
// with the options that those give: Debian's static busybox cannot look up
// names, and ends with a fault where it tries.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// The exit codes of curl.
const (
	codeUsage   = 2
	codeConnect = 7
	codeHTTP    = 22
)

func main() {
	code, err := fetch(context.Background(), filepath.Base(os.Args[0]), os.Args[1:], os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "fetch:", err)
	}
	os.Exit(code)
}

func fetch(ctx context.Context, name string, args []string, stdout io.Writer) (code int, err error) {
	var connect, whole float64
	var file string
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	for _, silent := range []string{"q", "s", "g", "f"} {
		flags.Bool(silent, false, "accepted, as the tests give it")
	}
	flags.StringVar(&file, "o", "", "file for the answer")
	flags.StringVar(&file, "O", "", "file for the answer, of wget")
	flags.Float64Var(&connect, "connect-timeout", 0, "seconds to connect")
	flags.Float64Var(&whole, "max-time", 0, "seconds for all of it")
	flags.Float64Var(&whole, "T", 0, "seconds for all of it, of wget")
	if err := flags.Parse(args); err != nil || flags.NArg() != 1 {
		return codeUsage, cmp.Or(err, errors.New("want one URL"))
	}
	url := flags.Arg(0)
	if !strings.Contains(url, "://") {
		url = "http://" + url
	}
	client := &http.Client{
		Timeout:   seconds(whole),
		Transport: &http.Transport{DialContext: (&net.Dialer{Timeout: seconds(connect)}).DialContext},
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return codeUsage, err
	}
	answer, err := client.Do(request)
	if err != nil {
		return codeConnect, err
	}
	defer answer.Body.Close()
	if name == "wget" && answer.StatusCode != http.StatusOK {
		return codeHTTP, errors.New(answer.Status)
	}
	if file != "" && file != "-" {
		out, err := os.Create(file)
		if err != nil {
			return codeUsage, err
		}
		defer func() { err = errors.Join(err, out.Close()) }()
		stdout = out
	}
	_, err = io.Copy(stdout, answer.Body)
	return 0, err
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }
