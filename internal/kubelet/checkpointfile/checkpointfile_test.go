package checkpointfile_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/checkpointfile"
)

var (
	secret = checkpointfile.Key{Kind: checkpointfile.Secret, Namespace: "default", Name: "s"}
	object = []byte(`{"data":{"password":"aHVudGVyMg=="}}`)
)

// cipher makes one whose key is this byte over and over.
func cipher(t testing.TB, b byte) *checkpointfile.Cipher {
	t.Helper()
	c, err := checkpointfile.ParseKey([]byte(base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, 32)) + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func encode(t testing.TB, key checkpointfile.Key, c *checkpointfile.Cipher) []byte {
	t.Helper()
	data, err := checkpointfile.Encode(key, object, c)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestRoundTrip(t *testing.T) {
	for name, c := range map[string]*checkpointfile.Cipher{"plain": nil, "encrypted": cipher(t, 1)} {
		t.Run(name, func(t *testing.T) {
			data := encode(t, secret, c)
			key, got, err := checkpointfile.Decode(data, c)
			if err != nil || key != secret || !bytes.Equal(got, object) {
				t.Errorf("got %v, %s, %v", key, got, err)
			}
			if has := bytes.Contains(data, []byte("aHVudGVyMg")); has != (c == nil) {
				t.Errorf("the object is readable: %v", has)
			}
		})
	}
}

// TestNonce holds that the same object is never encrypted to the same bytes.
func TestNonce(t *testing.T) {
	c := cipher(t, 1)
	if bytes.Equal(encode(t, secret, c), encode(t, secret, c)) {
		t.Error("a nonce was used twice")
	}
}

func TestDecodeRefuses(t *testing.T) {
	plain, one := encode(t, secret, nil), encode(t, secret, cipher(t, 1))
	flip := func(data []byte, at int) []byte {
		data = bytes.Clone(data)
		data[at] ^= 1
		return data
	}
	tests := []struct {
		name string
		data []byte
		c    *checkpointfile.Cipher
		want error
	}{
		{"nothing", nil, nil, checkpointfile.ErrDamaged},
		{"another file", []byte("{}\n{}"), nil, checkpointfile.ErrDamaged},
		{"cut short", plain[:len(plain)-1], nil, checkpointfile.ErrDamaged},
		{"cut in the header", plain[:10], nil, checkpointfile.ErrDamaged},
		{"one bit", flip(plain, len(plain)-3), nil, checkpointfile.ErrDamaged},
		{"one bit, encrypted", flip(one, len(one)-3), cipher(t, 1), checkpointfile.ErrDamaged},
		{"cut short, encrypted", one[:len(one)-1], cipher(t, 1), checkpointfile.ErrDamaged},
		{"passed off as another", bytes.Replace(one, []byte(`"name":"s"`), []byte(`"name":"t"`), 1), cipher(t, 1), checkpointfile.ErrDamaged},
		{"of another namespace", bytes.Replace(one, []byte(`"default"`), []byte(`"kube-system"`), 1), cipher(t, 1), checkpointfile.ErrDamaged},
		{"another kind", bytes.Replace(one, []byte(`"Secret"`), []byte(`"Pod"`), 1), cipher(t, 1), checkpointfile.ErrDamaged},
		{"another key", one, cipher(t, 2), checkpointfile.ErrKey},
		{"no key", one, nil, checkpointfile.ErrNoKey},
		{"a plain one where a key is configured", plain, cipher(t, 1), checkpointfile.ErrPlain},
		{"newer", bytes.Replace(plain, []byte(`"version":1`), []byte(`"version":2`), 1), nil, checkpointfile.ErrNewer},
		{"no version", bytes.Replace(plain, []byte(`"version":1`), []byte(`"version":0`), 1), nil, checkpointfile.ErrDamaged},
		{"too large", append(bytes.Clone(plain), make([]byte, checkpointfile.MaxSize)...), nil, checkpointfile.ErrDamaged},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, got, err := checkpointfile.Decode(tt.data, tt.c); !errors.Is(err, tt.want) || got != nil {
				t.Errorf("got %s, %v; want %v", got, err, tt.want)
			}
		})
	}
}

func TestEncodeRefusesWhatNobodyReads(t *testing.T) {
	if _, err := checkpointfile.Encode(secret, make([]byte, checkpointfile.MaxSize), nil); err == nil {
		t.Error("an object of 4 MiB was encoded")
	}
}

func TestParseKey(t *testing.T) {
	for name, text := range map[string]string{
		"empty": "", "short": base64.StdEncoding.EncodeToString(make([]byte, 16)), "not base64": strings.Repeat("!", 44),
		"two": strings.Repeat(base64.StdEncoding.EncodeToString(make([]byte, 32))+"\n", 2),
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := checkpointfile.ParseKey([]byte(text)); err == nil || text != "" && strings.Contains(err.Error(), text) {
				t.Errorf("got %v, want an error that does not show the key", err)
			}
		})
	}
}

func TestKeys(t *testing.T) {
	hour, day := int64(3600), int64(86400)
	request := func(change func(*authenticationv1.TokenRequestSpec)) *authenticationv1.TokenRequest {
		r := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			ExpirationSeconds: &hour, BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", Name: "p", UID: "u1"},
		}}
		change(&r.Spec)
		return r
	}
	token := func(namespace, account string, change func(*authenticationv1.TokenRequestSpec)) checkpointfile.Key {
		return checkpointfile.TokenKey(namespace, account, request(change))
	}
	nothing := func(*authenticationv1.TokenRequestSpec) {}
	all := map[string]checkpointfile.Key{
		"secret": secret, "config map": {Kind: checkpointfile.ConfigMap, Namespace: "default", Name: "s"},
		"other namespace":  {Kind: checkpointfile.Secret, Namespace: "x", Name: "s"},
		"pod":              checkpointfile.PodKey("default", "p", "u1"),
		"pod, other UID":   checkpointfile.PodKey("default", "p", "u2"),
		"token":            token("default", "a", nothing),
		"token, namespace": token("x", "a", nothing),
		"token, account":   token("default", "b", nothing),
		"token, audience":  token("default", "a", func(s *authenticationv1.TokenRequestSpec) { s.Audiences = []string{"x"} }),
		"token, life":      token("default", "a", func(s *authenticationv1.TokenRequestSpec) { s.ExpirationSeconds = &day }),
		"token, pod":       token("default", "a", func(s *authenticationv1.TokenRequestSpec) { s.BoundObjectRef.UID = "u2" }),
	}
	files := map[string]string{}
	for name, key := range all {
		if other, ok := files[key.File()]; ok {
			t.Errorf("%s and %s have one file", name, other)
		}
		files[key.File()] = name
	}
	if got := all["token"]; got != token("default", "a", nothing) || got.Owner() != "u1" || all["pod"].Owner() != "u1" || secret.Owner() != "" {
		t.Errorf("owners: %q, %q, %q", got.Owner(), all["pod"].Owner(), secret.Owner())
	}
	if got, want := all["pod"].String(), "Pod default/p"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	long := checkpointfile.Key{Kind: checkpointfile.Claim, Namespace: strings.Repeat("n", 63), Name: strings.Repeat("x", 253)}
	if got := len(long.File()) + len(".tmp--1234567890"); got > 255 {
		t.Errorf("the longest name makes a file name of %d bytes", got)
	}
}

func FuzzDecode(f *testing.F) {
	one := cipher(f, 1)
	f.Add(encode(f, secret, nil), false)
	f.Add(encode(f, secret, one), true)
	f.Add([]byte("{\"format\":\"holdfast checkpoint\",\"version\":1,\"keyID\":\"x\"}\n"), true)
	f.Add([]byte("\n"), false)
	f.Fuzz(func(t *testing.T, data []byte, encrypted bool) {
		var c *checkpointfile.Cipher
		if encrypted {
			c = one
		}
		key, object, err := checkpointfile.Decode(data, c)
		if err != nil {
			if object != nil {
				t.Errorf("an object with error %v", err)
			}
			return
		}
		again, err := checkpointfile.Encode(key, object, c)
		if err != nil {
			// Only names that no object has: they grow when they are quoted.
			if len(key.Kind)+len(key.Namespace)+len(key.Name) < 600 {
				t.Errorf("%v was read and cannot be written: %v", key, err)
			}
			return
		}
		key2, object2, err := checkpointfile.Decode(again, c)
		if err != nil || key2 != key || !bytes.Equal(object2, object) {
			t.Errorf("%v %q became %v %q, %v", key, object, key2, object2, err)
		}
	})
}
