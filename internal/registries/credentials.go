package registries

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-dev/holdfast/internal/regularfile"
)

func (c Credential) check(at string) error {
	var errs []error
	host, _, _ := strings.Cut(c.Registry, "/")
	switch {
	case host == "":
		errs = append(errs, fmt.Errorf("%s.registry: it is empty", at))
	case strings.Contains(c.Registry, "://"):
		errs = append(errs, fmt.Errorf("%s.registry: %q: want it without a scheme, such as registry.example or registry.example/team", at, c.Registry))
	}
	if c.Username == "" {
		errs = append(errs, fmt.Errorf("%s.username: it is empty", at))
	}
	if _, err := c.password(); err != nil {
		errs = append(errs, fmt.Errorf("%s.passwordFile: %w", at, err))
	}
	return errors.Join(errs...)
}

func (c Credential) password() (string, error) {
	if c.PasswordFile == "" {
		return "", errors.New("it is missing")
	}
	data, err := readPrivate(c.PasswordFile)
	if err != nil {
		return "", err
	}
	password := strings.TrimRight(string(data), "\r\n")
	if password == "" {
		return "", fmt.Errorf("%s is empty", c.PasswordFile)
	}
	return password, nil
}

// maxPrivate bounds a file of credentials, in bytes.
const maxPrivate = 1 << 20

// readPrivate reads a file that nobody else may read.
func readPrivate(path string) ([]byte, error) {
	data, info, err := regularfile.ReadAll(path, maxPrivate)
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s has mode %04o, and others may read it: chmod 600 %s", path, info.Mode().Perm(), path)
	}
	return data, nil
}

// readDockerConfig reads a file of `docker login`. What it cannot give is an
// error, not a pull that fails one day.
func readDockerConfig(path string) ([]byte, error) {
	data, err := readPrivate(path)
	if err != nil {
		return nil, err
	}
	var config struct {
		Auths map[string]struct {
			Auth          string `json:"auth"`
			Username      string `json:"username"`
			IdentityToken string `json:"identitytoken"`
			RegistryToken string `json:"registrytoken"`
		} `json:"auths"`
		CredsStore  string            `json:"credsStore"`
		CredHelpers map[string]string `json:"credHelpers"`
	}
	if err := json.Unmarshal(data, &config); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	switch {
	case config.CredsStore != "":
		return nil, fmt.Errorf("%s keeps its credentials in %q (credsStore), which is not asked: log in with a configuration that has none", path, config.CredsStore)
	case len(config.CredHelpers) > 0:
		return nil, fmt.Errorf("%s names credHelpers, which are not asked: log in with a configuration that has none", path)
	case len(config.Auths) == 0:
		return nil, fmt.Errorf("%s holds no credentials (auths)", path)
	}
	for registry, a := range config.Auths {
		switch {
		case a.Auth == "" && a.Username == "" && a.IdentityToken == "" && a.RegistryToken == "":
			return nil, fmt.Errorf("%s: auths[%q] is empty", path, registry)
		case a.Auth == "":
			continue
		}
		raw, err := base64.StdEncoding.DecodeString(a.Auth)
		if err != nil {
			raw, err = base64.RawStdEncoding.DecodeString(a.Auth) // as some tools write it
		}
		if err != nil || !strings.Contains(string(raw), ":") {
			return nil, fmt.Errorf("%s: auths[%q].auth is not base64 of user:password", path, registry)
		}
	}
	return data, nil
}

// Secrets returns the credentials as pull secrets, as the files say them now. An
// error does not hide what others say.
func (c Config) Secrets() ([]*v1.Secret, error) {
	var secrets []*v1.Secret
	var errs []error
	add := func(name string, data []byte, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
			return
		}
		secrets = append(secrets, &v1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Type: v1.SecretTypeDockerConfigJson, Data: map[string][]byte{v1.DockerConfigJsonKey: data},
		})
	}
	for i, cred := range c.Credentials {
		password, err := cred.password()
		var data []byte
		if err == nil {
			data, err = json.Marshal(map[string]any{"auths": map[string]any{
				cred.Registry: map[string]string{"username": cred.Username, "password": password},
			}})
		}
		add(fmt.Sprintf("images.credentials[%d].passwordFile", i), data, err)
	}
	if c.DockerConfigFile != "" {
		data, err := readDockerConfig(c.DockerConfigFile)
		add("images.dockerConfigFile", data, err)
	}
	return secrets, errors.Join(errs...)
}
