package server

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// reviewTimeout bounds one question to the API.
const reviewTimeout = 10 * time.Second

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

// What is remembered has a hash for its key: no token is kept in memory longer
// than its request.
type (
	hash      = [sha256.Size]byte
	userCache = cache[hash, user]
	gateCache = cache[hash, bool]
)

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

// anonymous is who sends a request without credentials, where that is allowed.
var anonymous = user{Username: "system:anonymous", Groups: []string{"system:unauthenticated"}}

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
	if s.policy.Anonymous && errors.Is(certErr, errNoCredentials) && errors.Is(tokenErr, errNoCredentials) {
		return anonymous, nil
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
	token := tokenOf(r)
	if s.cfg.TokenReviews == nil || s.policy.NoTokens || token == "" {
		return user{}, fmt.Errorf("bearer token: %w", errNoCredentials)
	}
	key := sha256.Sum256([]byte(token))
	if who, ok := s.users.get(key); ok {
		return who, nil
	}
	if _, refused := s.strangers.get(key); refused {
		return user{}, errors.New("bearer token: not accepted a moment ago")
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
		s.strangers.put(key, user{}, s.policy.TokenTTL)
		return user{}, fmt.Errorf("bearer token: not accepted: %s", review.Status.Error)
	}
	s.users.put(key, review.Status.User, s.policy.TokenTTL)
	return review.Status.User, nil
}

// authorize asks whether somebody may use one subresource of this node.
func (s *Server) authorize(ctx context.Context, who user, verb, subresource string) (bool, error) {
	if s.policy.AlwaysAllow {
		return true, nil
	}
	extra := map[string]authorizationv1.ExtraValue{}
	for name, values := range who.Extra {
		extra[name] = authorizationv1.ExtraValue(values)
	}
	question := authorizationv1.SubjectAccessReviewSpec{
		User: who.Username, UID: who.UID, Groups: who.Groups, Extra: extra,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: verb, Version: "v1", Resource: "nodes", Subresource: subresource, Name: s.cfg.Node,
		},
	}
	text, err := json.Marshal(question)
	if err != nil {
		return false, fmt.Errorf("review access: %w", err)
	}
	key := sha256.Sum256(text)
	if ok, known := s.gates.get(key); known {
		return ok, nil
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	review, err := s.cfg.AccessReview.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: question}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("review access: %w", err)
	}
	ok := review.Status.Allowed && !review.Status.Denied
	ttl := s.policy.RefuseTTL
	if ok {
		ttl = s.policy.AllowTTL
	}
	s.gates.put(key, ok, ttl)
	return ok, nil
}
