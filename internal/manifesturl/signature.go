package manifesturl

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
)

// maxSignature is the most bytes that a signature may have, spelt as text.
const maxSignature = 4096

// keys are those of which one must have signed an answer.
type keys []crypto.PublicKey

// parseKeys reads every public key of a PEM file. A private key is refused: it
// has no business on a node.
func parseKeys(data []byte) (keys, error) {
	var found keys
	for {
		block, rest := pem.Decode(data)
		if block == nil {
			return found, nil
		}
		data = rest
		if block.Type != "PUBLIC KEY" {
			return nil, fmt.Errorf("it holds a %s: want PUBLIC KEY", block.Type)
		}
		key, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			return nil, err
		}
		switch k := key.(type) {
		case ed25519.PublicKey:
		case *ecdsa.PublicKey:
			if k.Curve != elliptic.P256() {
				return nil, fmt.Errorf("a key on %s is not possible: want P-256 or Ed25519", k.Curve.Params().Name)
			}
		default:
			return nil, fmt.Errorf("a key of type %T is not possible: want ECDSA on P-256, or Ed25519", key)
		}
		found = append(found, key)
	}
}

// verify returns an error unless signature, which may be in base64, is that of
// body by one of the keys: Ed25519 of the bytes themselves, ECDSA (ASN.1) of
// their SHA-256.
func (ks keys) verify(body, signature []byte) error {
	if len(bytes.TrimSpace(signature)) == 0 {
		return errors.New("the signature is empty")
	}
	spellings := [][]byte{signature}
	text := bytes.Join(bytes.Fields(signature), nil)
	if raw, err := base64.StdEncoding.DecodeString(string(text)); err == nil {
		spellings = append(spellings, raw)
	}
	digest := sha256.Sum256(body)
	for _, key := range ks {
		for _, sig := range spellings {
			switch k := key.(type) {
			case ed25519.PublicKey:
				if ed25519.Verify(k, body, sig) {
					return nil
				}
			case *ecdsa.PublicKey:
				if ecdsa.VerifyASN1(k, digest[:], sig) {
					return nil
				}
			}
		}
	}
	return errors.New("the signature is not that of this document by a key of signatureKeyFile")
}
