package manifesturl

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
)

// tlsConfig reads the files for https. An error begins with the field.
func (s Source) tlsConfig() (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.CAFile != "" {
		data, err := os.ReadFile(s.CAFile)
		if err != nil {
			return nil, fmt.Errorf("caFile: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(data) {
			return nil, fmt.Errorf("caFile: %s holds no certificate in PEM", s.CAFile)
		}
	}
	if s.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(s.CertFile, s.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("certFile, keyFile: %w", err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}

// token reads the bearer token; "" if there is to be none.
func (s Source) token() (string, error) {
	if s.BearerTokenFile == "" {
		return "", nil
	}
	data, err := os.ReadFile(s.BearerTokenFile)
	if err != nil {
		return "", fmt.Errorf("bearerTokenFile: %w", err)
	}
	token := string(bytes.TrimSpace(data))
	switch {
	case token == "":
		return "", fmt.Errorf("bearerTokenFile: %s is empty", s.BearerTokenFile)
	case strings.ContainsAny(token, " \t\r\n"):
		return "", fmt.Errorf("bearerTokenFile: %s holds more than one word", s.BearerTokenFile)
	}
	return token, nil
}

// keyFile reads the file of public keys; nil if answers are not signed.
func (s Source) keyFile() ([]byte, error) {
	if s.SignatureKeyFile == "" {
		return nil, nil
	}
	data, err := os.ReadFile(s.SignatureKeyFile)
	if err != nil {
		return nil, fmt.Errorf("signatureKeyFile: %w", err)
	}
	return data, nil
}

// keys reads the public keys; nil if answers are not signed.
func (s Source) keys() (keys, error) {
	data, err := s.keyFile()
	if err != nil || data == nil {
		return nil, err
	}
	found, err := parseKeys(data)
	if err == nil && len(found) == 0 {
		err = errors.New("it holds no public key in PEM (BEGIN PUBLIC KEY)")
	}
	if err != nil {
		return nil, fmt.Errorf("signatureKeyFile: %s: %w", s.SignatureKeyFile, err)
	}
	return found, nil
}
