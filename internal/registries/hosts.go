package registries

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"

	"github.com/holdfast-dev/holdfast/internal/atomicfile"
)

// header begins the files that are ours to write and to remove.
const header = "# Written by Holdfast from images.mirrors of the node's configuration; changes made here are lost.\n"

const hostsFile = "hosts.toml"

// WriteHosts makes dir, which containerd reads at each pull, say the mirrors.
// A file there that a person wrote stays, and is an error where a mirror is for
// the same registry.
func WriteHosts(dir string, mirrors []Mirror) error {
	var errs []error
	wanted := map[string]bool{}
	for i, m := range mirrors {
		wanted[m.folder()] = true
		if err := m.write(dir); err != nil {
			errs = append(errs, fmt.Errorf("images.mirrors[%d]: %w", i, err))
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(append(errs, err)...)
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name(), hostsFile)
		if wanted[e.Name()] || !ours(path) {
			continue
		}
		errs = append(errs, os.Remove(path))
		_ = os.Remove(filepath.Dir(path)) // unless somebody keeps something there
	}
	return errors.Join(errs...)
}

// folder is the name of the folder where containerd looks for a registry.
func (m Mirror) folder() string {
	if m.Registry == "*" {
		return "_default"
	}
	return m.Registry
}

func ours(path string) bool {
	data, err := os.ReadFile(path)
	return err == nil && bytes.HasPrefix(data, []byte(header))
}

func (m Mirror) write(dir string) error {
	path := filepath.Join(dir, m.folder(), hostsFile)
	want, err := m.hosts()
	if err != nil {
		return err
	}
	old, err := os.ReadFile(path)
	switch {
	case err == nil && bytes.Equal(old, want):
		return nil // no write, no sync: a warm start is quick
	case err == nil && !bytes.HasPrefix(old, []byte(header)):
		return fmt.Errorf("%s was not written by Holdfast and says how to reach %s already: remove that file, or this mirror", path, m.Registry)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return atomicfile.Write(path, want, 0o644)
}

// hosts returns the file hosts.toml of one registry. The last endpoint is the
// file's server if it is the registry itself: else containerd would ask the same
// place again, without its certificates.
func (m Mirror) hosts() ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(header)
	endpoints := m.Endpoints
	if last := endpoints[len(endpoints)-1]; last.host() == m.Registry {
		endpoints = endpoints[:len(endpoints)-1]
		if err := last.settings(&b, "", "server = "); err != nil {
			return nil, err
		}
	}
	for _, e := range endpoints {
		if err := e.settings(&b, "  ", "\n[host."); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}

func (e Endpoint) host() string {
	u, err := url.Parse(e.URL)
	if err != nil {
		return ""
	}
	return u.Host
}

// settings writes an endpoint in TOML. A JSON string is a TOML basic string, a
// list of them a list.
func (e Endpoint) settings(b *bytes.Buffer, indent, before string) error {
	var errs []error
	put := func(key string, value any) {
		data, err := json.Marshal(value)
		errs = append(errs, err)
		fmt.Fprintf(b, "%s%s = %s\n", indent, key, data)
	}
	name, err := json.Marshal(e.URL)
	errs = append(errs, err)
	b.WriteString(before)
	b.Write(name)
	if indent != "" {
		b.WriteString("]")
	}
	b.WriteString("\n")
	capabilities := e.Capabilities
	if len(capabilities) == 0 {
		capabilities = []string{"pull", "resolve"}
	}
	put("capabilities", capabilities)
	if e.OverridePath {
		put("override_path", true)
	}
	if e.CAFile != "" {
		put("ca", e.CAFile)
	}
	if e.ClientCertFile != "" {
		put("client", [][]string{{e.ClientCertFile, e.ClientKeyFile}})
	}
	if e.InsecureSkipVerify {
		put("skip_verify", true)
	}
	return errors.Join(errs...)
}
