package checkpointfile

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
)

// keySize is the size in bytes of an AES-256 key.
const keySize = 32

// A Cipher encrypts and decrypts with one key.
type Cipher struct {
	aead cipher.AEAD
	id   string // tells keys apart and nothing of the key
}

// errKeyFile is returned by ParseKey, which never tells what it read.
var errKeyFile = errors.New("want 32 random bytes in base64, as `head -c 32 /dev/urandom | base64` prints them")

// ParseKey reads the content of a key file: 32 bytes in base64, with space
// around.
func ParseKey(text []byte) (*Cipher, error) {
	key, err := base64.StdEncoding.DecodeString(string(bytes.TrimSpace(text)))
	if err != nil || len(key) != keySize {
		return nil, errKeyFile
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("make a cipher: %w", err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("make a cipher: %w", err)
	}
	sum := sha256.Sum256(append([]byte(magic+" key\x00"), key...))
	return &Cipher{aead, hex.EncodeToString(sum[:8])}, nil
}

func (c *Cipher) seal(key Key, object []byte) (nonce, body []byte) {
	nonce = make([]byte, c.aead.NonceSize())
	rand.Read(nonce) // never fails, as its documentation has it
	return nonce, c.aead.Seal(nil, nonce, object, key.identity())
}

func (c *Cipher) open(key Key, nonce, body []byte) ([]byte, error) {
	if len(nonce) != c.aead.NonceSize() {
		return nil, ErrDamaged
	}
	object, err := c.aead.Open(nil, nonce, body, key.identity())
	if err != nil {
		return nil, ErrDamaged
	}
	return object, nil
}
