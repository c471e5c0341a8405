// Package credentialconfig reads which programs are asked for credentials of
// images: upstream's CredentialProviderConfig, from a file or from a folder of
// them. It reads each file once, writes nothing and keeps no state.
package credentialconfig

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	yamlv3 "go.yaml.in/yaml/v3"
	kubeletconfig "k8s.io/kubelet/config/v1"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-dev/holdfast/internal/regularfile"
)

// The groups and versions of the file, and of what is said to the programs. All
// versions look alike; upstream reads all of them, too.
var (
	fileVersions = []string{"kubelet.config.k8s.io/v1", "kubelet.config.k8s.io/v1beta1", "kubelet.config.k8s.io/v1alpha1"}
	// latest is the one that knows service account tokens.
	latest           = "credentialprovider.kubelet.k8s.io/v1"
	protocolVersions = []string{latest, "credentialprovider.kubelet.k8s.io/v1beta1", "credentialprovider.kubelet.k8s.io/v1alpha1"}
)

const fileKind = "CredentialProviderConfig"

// maxSize bounds one file, in bytes.
const maxSize = 1 << 20

// A Config is the providers of a node, in the order in which they are asked.
type Config struct {
	Providers []kubeletconfig.CredentialProvider
	BinDir    string // where their programs lie, under their names
	// Hash is of the files' content, as upstream's metric shows it.
	Hash string
}

// Load reads the file at path, or if that is a folder all *.json, *.yaml and *.yml
// in it, in the order of their names, and returns everything that is wrong with
// them. The programs must be in binDir.
func Load(path, binDir string) (*Config, error) {
	files, err := list(path)
	if err != nil {
		return nil, err
	}
	if err := checkFolder(binDir); err != nil {
		return nil, err
	}
	c := &Config{BinDir: binDir}
	hash := sha256.New()
	var errs []error
	seen := map[string]string{} // where a name was
	for _, file := range files {
		data, _, err := regularfile.ReadAll(file, maxSize)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		// With its length, so that no two lists of files have one hash.
		if err := binary.Write(hash, binary.BigEndian, uint64(len(data))); err != nil {
			return nil, err
		}
		hash.Write(data)
		providers, err := decode(data)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", file, err))
			continue
		}
		for i := range providers {
			at := fmt.Sprintf("%s: providers[%d]", file, i)
			p := &providers[i]
			errs = append(errs, check(at, p), checkProgram(at, p.Name, binDir))
			if first, ok := seen[p.Name]; ok && p.Name != "" {
				errs = append(errs, fmt.Errorf("%s.name: %q is there twice, first in %s", at, p.Name, first))
			}
			seen[p.Name] = at
			c.Providers = append(c.Providers, *p)
		}
	}
	c.Hash = fmt.Sprintf("sha256:%x", hash.Sum(nil))
	return c, errors.Join(errs...)
}

// list returns the files to read, sorted.
func list(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries { // sorted
		if !e.IsDir() && slices.Contains([]string{".json", ".yaml", ".yml"}, filepath.Ext(e.Name())) {
			files = append(files, filepath.Join(path, e.Name()))
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s holds no *.json, *.yaml or *.yml", path)
	}
	return files, nil
}

// decode reads one file, strictly: a field that is ignored is one that somebody
// relies on.
func decode(data []byte) ([]kubeletconfig.CredentialProvider, error) {
	var doc, more yamlv3.Node
	dec := yamlv3.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(&doc); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, errors.Join(errors.New("it holds more than one document"), err)
	}
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := yaml.Unmarshal(data, &head); err != nil {
		return nil, err
	}
	if head.Kind != fileKind || !slices.Contains(fileVersions, head.APIVersion) {
		return nil, fmt.Errorf("apiVersion is %q and kind is %q; want %q and %q", head.APIVersion, head.Kind, fileVersions[0], fileKind)
	}
	var config kubeletconfig.CredentialProviderConfig
	if err := yaml.UnmarshalStrict(data, &config); err != nil {
		return nil, place(&doc, err)
	}
	if len(config.Providers) == 0 {
		return nil, errors.New("providers: there is none")
	}
	for i := range config.Providers {
		if head.APIVersion != fileVersions[0] && config.Providers[i].TokenAttributes != nil {
			return nil, fmt.Errorf("providers[%d].tokenAttributes: only a file of %s has it", i, fileVersions[0])
		}
	}
	return config.Providers, nil
}

// place returns what is wrong with a file with the provider and the line where it
// stands, if it is in one.
func place(doc *yamlv3.Node, wrong error) error {
	var file struct {
		Providers []yamlv3.Node `yaml:"providers"`
	}
	if err := doc.Decode(&file); err != nil {
		return cause(wrong)
	}
	for i := range file.Providers {
		var provider kubeletconfig.CredentialProvider
		text, err := yamlv3.Marshal(&file.Providers[i])
		if err == nil {
			err = yaml.UnmarshalStrict(text, &provider)
		}
		if err != nil {
			return fmt.Errorf("line %d: providers[%d]: %w", file.Providers[i].Line, i, cause(err))
		}
	}
	return cause(wrong)
}

// cause is an error without its frame: the decoder's says nothing to who wrote
// the file.
func cause(err error) error {
	for next := errors.Unwrap(err); next != nil; next = errors.Unwrap(err) {
		err = next
	}
	return err
}

// checkFolder says why the folder of the programs cannot be that.
func checkFolder(dir string) error {
	info, err := os.Stat(dir)
	const sticky = os.ModeSticky | 0o002
	switch {
	case err != nil:
		return fmt.Errorf("the folder of the programs: %w", err)
	case !info.IsDir():
		return fmt.Errorf("%s is no folder of programs", dir)
	case info.Mode()&sticky == 0o002:
		return fmt.Errorf("the folder of the programs, %s, has mode %04o, and others may change what is in it, though it runs as this node: chmod o-w %s", dir, info.Mode().Perm(), dir)
	}
	return nil
}

// checkProgram says why the program of a provider cannot be run.
func checkProgram(at, name, binDir string) error {
	if checkName(name) != nil {
		return nil // that is said
	}
	path := filepath.Join(binDir, name)
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return fmt.Errorf("%s.name: its program: %w", at, err)
	case !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0:
		return fmt.Errorf("%s.name: %s is no program: it has mode %v", at, path, info.Mode())
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%s.name: %s has mode %04o, and others may change it, though it runs as this node: chmod 755 %s", at, path, info.Mode().Perm(), path)
	}
	return nil
}
