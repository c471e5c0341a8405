package server

import (
	"encoding/base64"
	"net/http"
	"slices"
	"strings"

	"k8s.io/streaming/pkg/httpstream/wsstream"
)

// Browsers cannot set headers of WebSocket requests but this one, so the API's
// clients may send their token in it: this, and the token in unpadded base64url.
const (
	protocolHeader = "Sec-Websocket-Protocol" // as net/http spells it
	bearerProtocol = "base64url.bearer.authorization.k8s.io."
)

// tokenOf returns the bearer token of a request: of its header Authorization or,
// for a WebSocket, of its list of protocols. Empty: it has none.
func tokenOf(r *http.Request) string {
	scheme, token, _ := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	if token = strings.TrimSpace(token); strings.EqualFold(scheme, "bearer") && token != "" {
		return token
	}
	if !wsstream.IsWebSocketRequest(r) {
		return ""
	}
	token, _ = splitProtocols(r.Header[protocolHeader])
	return token
}

// splitProtocols takes the token out of lists of WebSocket protocols. A list that
// names two, that names nothing beside, or whose token is no text has none:
// upstream refuses such a request too.
func splitProtocols(lists []string) (token string, others []string) {
	bad := false
	for _, list := range lists {
		for protocol := range strings.SplitSeq(list, ",") {
			protocol = strings.TrimSpace(protocol)
			encoded, ok := strings.CutPrefix(protocol, bearerProtocol)
			if !ok {
				if protocol != "" {
					others = append(others, protocol)
				}
				continue
			}
			text, err := base64.RawURLEncoding.DecodeString(encoded)
			bad = bad || err != nil || token != "" || len(text) == 0 || slices.ContainsFunc(text, func(c byte) bool { return c <= ' ' || c > '~' })
			token = string(text)
		}
	}
	if bad || len(others) == 0 {
		return "", others
	}
	return token, others
}

// withoutCredentials is a request as the runtime may see it: who sent it is
// settled, and a token is nothing for a third party.
func withoutCredentials(r *http.Request) *http.Request {
	clone := r.Clone(r.Context())
	clone.Header.Del("Authorization")
	clone.Header.Del("Cookie")
	if lists := clone.Header[protocolHeader]; len(lists) > 0 {
		clone.Header.Del(protocolHeader)
		if _, others := splitProtocols(lists); len(others) > 0 {
			clone.Header.Set(protocolHeader, strings.Join(others, ", "))
		}
	}
	return clone
}
