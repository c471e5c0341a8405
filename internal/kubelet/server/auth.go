package server

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// How long an answer of the API is believed, as for the upstream kubelet.
const (
	userTTL   = 2 * time.Minute
	allowTTL  = 5 * time.Minute
	refuseTTL = 30 * time.Second

	reviewTimeout = 10 * time.Second
)

// tokenReviews asks the API whose a bearer token is.
type tokenReviews interface {
	Create(ctx context.Context, review *authenticationv1.TokenReview, opts metav1.CreateOptions) (*authenticationv1.TokenReview, error)
}

// accessReviews asks the API whether somebody may do something.
type accessReviews interface {
	Create(ctx context.Context, review *authorizationv1.SubjectAccessReview, opts metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error)
}

// user is who sent a request.
type user = authenticationv1.UserInfo

type (
	tokenKey  = [sha256.Size]byte
	userCache = cache[tokenKey, user]
	gateCache = cache[gateKey, bool]
)

// gateKey is one question that was asked about access.
type gateKey struct {
	name, groups, verb, subresource string
}

// admit lets those requests through that come from somebody known who may make
// them. Its answers are the upstream kubelet's.
func (s *Server) admit(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, err := s.authenticate(r)
		if err != nil {
			s.log.Debug("Request without identity", "path", r.URL.Path, "err", err)
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		verb, subresources := attributes(r.Method, r.URL.Path)
		for _, subresource := range subresources {
			ok, err := s.authorize(r.Context(), who, verb, subresource)
			if err != nil {
				s.log.Warn("Access could not be reviewed", "user", who.Username, "err", err)
				http.Error(w, fmt.Sprintf("Authorization error (user=%s, verb=%s, resource=nodes, subresource=%s)",
					who.Username, verb, subresource), http.StatusInternalServerError)
				return
			}
			if ok {
				handler.ServeHTTP(w, r)
				return
			}
		}
		s.log.Debug("Request refused", "path", r.URL.Path, "user", who.Username, "verb", verb)
		http.Error(w, fmt.Sprintf("Forbidden (user=%s, verb=%s, resource=nodes, subresource(s)=%v)\n",
			who.Username, verb, subresources), http.StatusForbidden)
	})
}

// errNoCredentials is wrapped by what authenticate returns to a request with
// neither a certificate nor a token.
var errNoCredentials = errors.New("no credentials")

// authenticate finds out who sent a request: by its client certificate, else
// by its token.
func (s *Server) authenticate(r *http.Request) (user, error) {
	who, certErr := s.byCertificate(r)
	if certErr == nil {
		return who, nil
	}
	who, tokenErr := s.byToken(r)
	if tokenErr == nil {
		return who, nil
	}
	return user{}, errors.Join(certErr, tokenErr)
}

func (s *Server) byCertificate(r *http.Request) (user, error) {
	if s.cfg.ClientCAs == nil || r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return user{}, fmt.Errorf("client certificate: %w", errNoCredentials)
	}
	chain := r.TLS.PeerCertificates
	opts := x509.VerifyOptions{
		Roots:         s.cfg.ClientCAs(),
		Intermediates: x509.NewCertPool(),
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, cert := range chain[1:] {
		opts.Intermediates.AddCert(cert)
	}
	if _, err := chain[0].Verify(opts); err != nil {
		return user{}, fmt.Errorf("client certificate: %w", err)
	}
	if chain[0].Subject.CommonName == "" {
		return user{}, errors.New("client certificate: no common name")
	}
	return user{
		Username: chain[0].Subject.CommonName,
		Groups:   append(append([]string{}, chain[0].Subject.Organization...), "system:authenticated"),
	}, nil
}

func (s *Server) byToken(r *http.Request) (user, error) {
	scheme, token, _ := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	token = strings.TrimSpace(token)
	if s.cfg.TokenReviews == nil || !strings.EqualFold(scheme, "bearer") || token == "" {
		return user{}, fmt.Errorf("bearer token: %w", errNoCredentials)
	}
	key := sha256.Sum256([]byte(token)) // no token is kept in memory longer than its request
	if who, ok := s.users.get(key); ok {
		return who, nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), reviewTimeout)
	defer cancel()
	review, err := s.cfg.TokenReviews.Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token},
	}, metav1.CreateOptions{})
	if err != nil {
		return user{}, fmt.Errorf("review token: %w", err)
	}
	if !review.Status.Authenticated {
		return user{}, fmt.Errorf("bearer token: not accepted: %s", review.Status.Error)
	}
	s.users.put(key, review.Status.User, userTTL)
	return review.Status.User, nil
}

// authorize asks whether somebody may use one subresource of this node.
func (s *Server) authorize(ctx context.Context, who user, verb, subresource string) (bool, error) {
	key := gateKey{who.Username, strings.Join(who.Groups, "\x00"), verb, subresource}
	cacheable := len(who.Extra) == 0 // such a user is not all in the key
	if cacheable {
		if ok, known := s.gates.get(key); known {
			return ok, nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	extra := map[string]authorizationv1.ExtraValue{}
	for name, values := range who.Extra {
		extra[name] = authorizationv1.ExtraValue(values)
	}
	review, err := s.cfg.AccessReview.Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: who.Username, UID: who.UID, Groups: who.Groups, Extra: extra,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: verb, Version: "v1", Resource: "nodes", Subresource: subresource, Name: s.cfg.Node,
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("review access: %w", err)
	}
	ok := review.Status.Allowed && !review.Status.Denied
	if cacheable {
		ttl := refuseTTL
		if ok {
			ttl = allowTTL
		}
		s.gates.put(key, ok, ttl)
	}
	return ok, nil
}
