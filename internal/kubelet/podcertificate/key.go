package podcertificate

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

// A privateKey is one that was made for one request.
type privateKey struct {
	pem   []byte // PKCS #8
	proof []byte // an empty PKCS #10 request, DER: shows that its maker has the key
}

// makeKey makes a key of a type that the API names.
func makeKey(keyType string) (privateKey, error) {
	signer, err := generate(keyType)
	if err != nil {
		return privateKey{}, fmt.Errorf("make a key of type %q: %w", keyType, err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(signer)
	if err != nil {
		return privateKey{}, fmt.Errorf("encode the key: %w", err)
	}
	proof, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, signer)
	if err != nil {
		return privateKey{}, fmt.Errorf("prove to have the key: %w", err)
	}
	return privateKey{pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), proof}, nil
}

func generate(keyType string) (crypto.Signer, error) {
	switch keyType {
	case "RSA3072":
		return rsa.GenerateKey(rand.Reader, 3072)
	case "RSA4096":
		return rsa.GenerateKey(rand.Reader, 4096)
	case "ECDSAP256":
		return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "ECDSAP384":
		return ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case "ECDSAP521":
		return ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	case "ED25519":
		_, key, err := ed25519.GenerateKey(rand.Reader)
		return key, err
	}
	return nil, errors.New("known are RSA3072, RSA4096, ECDSAP256, ECDSAP384, ECDSAP521 and ED25519")
}
