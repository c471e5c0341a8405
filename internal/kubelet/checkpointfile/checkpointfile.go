// Package checkpointfile is the format of the files in which a node keeps what
// it needs to start its pods while the API server is away: one file an object.
//
// A file is a header, one line of JSON, and the object's JSON after it. Without
// a key the header holds the object's SHA-256, so that damage is seen. With a key
// the object is encrypted and authenticated by AES-256-GCM under a random nonce,
// together with its kind, namespace and name: a file cannot be passed off as
// another object's. These three stay readable, for people to know what a file is.
//
// Everything here is a pure function or a value; any goroutine may call it.
package checkpointfile

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
)

// version is the version of the format.
const version = 1

// magic tells our files from others.
const magic = "holdfast checkpoint"

// MaxSize is the size in bytes of the largest file that is read or written: more
// than twice of what the API server takes as one object.
const MaxSize = 4 << 20

// maxHeader is the size in bytes of the longest header: its names are at most
// 253 bytes each.
const maxHeader = 4 << 10

var (
	// ErrDamaged is returned for a file that is not what was written.
	ErrDamaged = errors.New("the file is damaged")
	// ErrKey is returned for a file that was encrypted with another key.
	ErrKey = errors.New("the file is encrypted with another key than the configured one")
	// ErrNoKey is returned for a file that is encrypted where no key is configured.
	ErrNoKey = errors.New("the file is encrypted, and no key is configured")
	// ErrPlain is returned for a file that is not encrypted where a key is
	// configured: anybody may have written it.
	ErrPlain = errors.New("the file is not encrypted, and a key is configured")
	// ErrNewer is returned for a file of a newer release.
	ErrNewer = errors.New("the file is of a newer release")
)

// A Kind is what a file holds.
type Kind string

// The kinds.
const (
	Pod              Kind = "Pod"
	ConfigMap        Kind = "ConfigMap"
	Secret           Kind = "Secret"
	Claim            Kind = "PersistentVolumeClaim"
	PersistentVolume Kind = "PersistentVolume"
	CSIDriver        Kind = "CSIDriver"
	RuntimeClass     Kind = "RuntimeClass"
	TrustBundles     Kind = "ClusterTrustBundle" // all of them, without a name
	Token            Kind = "Token"              // of a service account, for one pod
	Services         Kind = "Services"           // those of a namespace, as pods' environments name them
	Node             Kind = "Node"               // this one
	Answer           Kind = "Answer"             // when the API last answered
)

// A Key names what a file holds.
type Key struct {
	Kind            Kind
	Namespace, Name string
}

// String names the object for people.
func (k Key) String() string {
	name, _, _ := strings.Cut(k.Name, "/")
	switch {
	case k.Kind == Token:
		return "Token of the pod with UID " + k.Owner()
	case k.Namespace == "":
		return strings.TrimSpace(string(k.Kind) + " " + name)
	}
	return strings.TrimSuffix(string(k.Kind)+" "+k.Namespace+"/"+name, "/")
}

// File returns the name of the file of an object. It is a hash, as a name of the
// API may be as long as a name of a file.
func (k Key) File() string {
	sum := sha256.Sum256(k.identity())
	return strings.ToLower(string(k.Kind)) + "-" + hex.EncodeToString(sum[:16]) + Suffix
}

// Suffix ends the names of all files.
const Suffix = ".checkpoint"

// identity is what encryption binds the object to.
func (k Key) identity() []byte {
	return []byte(magic + "\x00" + string(k.Kind) + "\x00" + k.Namespace + "\x00" + k.Name)
}

// PodKey names a pod: by its UID, too, as there may be two of one name for a while.
func PodKey(namespace, name, uid string) Key {
	return Key{Pod, namespace, name + "/" + uid}
}

// TokenKey names the token that a request for a service account gives.
func TokenKey(namespace, account string, request *authenticationv1.TokenRequest) Key {
	var seconds int64
	if request.Spec.ExpirationSeconds != nil {
		seconds = *request.Spec.ExpirationSeconds
	}
	var to authenticationv1.BoundObjectReference
	if request.Spec.BoundObjectRef != nil {
		to = *request.Spec.BoundObjectRef
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %d %q %q", account, request.Spec.Audiences, seconds, to.Kind, to.Name))
	return Key{Token, namespace, string(to.UID) + "/" + hex.EncodeToString(sum[:16])}
}

// Owner returns the UID of the pod that a Pod or a Token is of, or "".
func (k Key) Owner() string {
	switch k.Kind {
	case Pod:
		_, uid, _ := strings.Cut(k.Name, "/")
		return uid
	case Token:
		uid, _, _ := strings.Cut(k.Name, "/")
		return uid
	default:
		return ""
	}
}

// A File is one that was found on the disk.
type File struct {
	Name   string // in its folder
	Key    Key    // as the header says it; zero if that cannot be read
	Object []byte
	Err    error // why it cannot be used; nil: it can
}

// header is the first line of a file.
type header struct {
	Magic     string `json:"format"`
	Version   int    `json:"version"`
	Kind      Kind   `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	SHA256    string `json:"sha256,omitempty"` // of the object; plain files only
	KeyID     string `json:"keyID,omitempty"`  // encrypted files only, as is the next
	Nonce     []byte `json:"nonce,omitempty"`
}

// Encode returns the file of an object. c is nil where no key is configured.
func Encode(key Key, object []byte, c *Cipher) ([]byte, error) {
	h := header{Magic: magic, Version: version, Kind: key.Kind, Namespace: key.Namespace, Name: key.Name}
	body := object
	if c == nil {
		sum := sha256.Sum256(object)
		h.SHA256 = hex.EncodeToString(sum[:])
	} else {
		h.KeyID = c.id
		h.Nonce, body = c.seal(key, object)
	}
	line, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", key, err)
	}
	if len(line) > maxHeader || len(line)+1+len(body) > MaxSize {
		return nil, fmt.Errorf("encode %s: %d bytes are too many", key, len(line)+1+len(body))
	}
	return slices.Concat(line, []byte{'\n'}, body), nil
}

// Decode reads a file. With an error key is what the header says, if it could be
// read: it may not be true. The errors match those above.
func Decode(data []byte, c *Cipher) (key Key, object []byte, err error) {
	line, body, found := bytes.Cut(data, []byte{'\n'})
	if !found || len(line) > maxHeader || len(data) > MaxSize {
		return Key{}, nil, ErrDamaged
	}
	var h header
	if err := json.Unmarshal(line, &h); err != nil || h.Magic != magic {
		return Key{}, nil, ErrDamaged
	}
	key = Key{h.Kind, h.Namespace, h.Name}
	switch {
	case h.Version > version:
		return key, nil, ErrNewer
	case h.Version != version:
		return key, nil, ErrDamaged
	case h.KeyID != "" && c == nil:
		return key, nil, ErrNoKey
	case h.KeyID != "" && h.KeyID != c.id:
		return key, nil, ErrKey
	case h.KeyID != "":
		object, err = c.open(key, h.Nonce, body)
		return key, object, err
	case c != nil:
		return key, nil, ErrPlain
	}
	if sum := sha256.Sum256(body); hex.EncodeToString(sum[:]) != h.SHA256 {
		return key, nil, ErrDamaged
	}
	return key, body, nil
}
