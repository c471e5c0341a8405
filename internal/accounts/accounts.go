// Package accounts keeps limited accounts of the embedded API, for people and
// programs on other machines.
//
// An account is a service account in a namespace of its own with one binding to
// a cluster role; both carry the label holdfast.dev/account. Its credentials
// are tokens that end by themselves, and all at once when the account is
// deleted. (A client certificate could not be taken back.)
package accounts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
)

const (
	// Namespace is where the accounts are.
	Namespace = "holdfast-accounts"

	label = "holdfast.dev/account"
	// expiresKey is an annotation: when the last token ends, in RFC 3339.
	expiresKey = "holdfast.dev/expires"
	// bindingPrefix is that of a binding's name; the account's name follows.
	bindingPrefix = "holdfast.dev:account:"
)

// MinExpires is the shortest life of a token that the API gives.
const MinExpires = 10 * time.Minute

// ErrNone is returned by Revoke when there is no such account.
var ErrNone = errors.New("no such account")

// An Account is one account and what it may do.
type Account struct {
	Name      string    `json:"name"`
	Role      string    `json:"role"`                // a cluster role
	Namespace string    `json:"namespace,omitempty"` // where it may; empty: everywhere
	Created   time.Time `json:"created,omitzero"`
	Expires   time.Time `json:"expires,omitzero"` // when its last token ends
}

// A Token is a credential.
type Token struct {
	Secret  string
	Expires time.Time
}

// A Keeper makes, lists and deletes accounts. Its methods may be called concurrently.
type Keeper struct {
	api kubernetes.Interface
}

// New returns a Keeper that works with the rights of client, an administrator's.
func New(client kubernetes.Interface) *Keeper { return &Keeper{client} }

// Grant returns a new token for an account, and makes the account if there is
// none. It refuses to change what an account may do, for that would change
// what its earlier tokens may do.
func (k *Keeper) Grant(ctx context.Context, a Account, life time.Duration) (Token, error) {
	if problems := validation.IsDNS1123Label(a.Name); len(problems) > 0 {
		return Token{}, fmt.Errorf("account %q: %s", a.Name, strings.Join(problems, "; "))
	}
	if err := checkLife(life); err != nil {
		return Token{}, err
	}
	if err := k.check(ctx, a); err != nil {
		return Token{}, err
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace}}
	if _, err := k.api.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return Token{}, fmt.Errorf("make namespace %s: %w", Namespace, err)
	}
	meta := metav1.ObjectMeta{Name: a.Name, Labels: map[string]string{label: a.Name}}
	_, err := k.api.CoreV1().ServiceAccounts(Namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return Token{}, fmt.Errorf("make account %q: %w", a.Name, err)
	}
	if err := k.bind(ctx, a); err != nil {
		return Token{}, err
	}
	token, err := k.Token(ctx, Namespace, a.Name, life)
	if err != nil {
		return Token{}, err
	}
	return token, k.note(ctx, a.Name, token.Expires)
}

// check refuses what could not be given, before anything is made.
func (k *Keeper) check(ctx context.Context, a Account) error {
	_, err := k.api.RbacV1().ClusterRoles().Get(ctx, a.Role, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("role %q: there is no such cluster role (the usual ones are view, edit, admin and cluster-admin)", a.Role)
	}
	if err != nil {
		return fmt.Errorf("role %q: %w", a.Role, err)
	}
	if a.Namespace != "" {
		_, err := k.api.CoreV1().Namespaces().Get(ctx, a.Namespace, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return fmt.Errorf("namespace %q: there is none of this name", a.Namespace)
		}
		if err != nil {
			return fmt.Errorf("namespace %q: %w", a.Namespace, err)
		}
	}
	all, err := k.List(ctx)
	if err != nil {
		return err
	}
	for _, old := range all {
		if old.Name == a.Name && old.Role != "" && (old.Role != a.Role || old.Namespace != a.Namespace) {
			return fmt.Errorf("account %q has role %s %s: revoke it first, or choose another name", a.Name, old.Role, scope(old))
		}
	}
	return nil
}

func scope(a Account) string {
	if a.Namespace == "" {
		return "in all namespaces"
	}
	return "in namespace " + a.Namespace
}

func (k *Keeper) bind(ctx context.Context, a Account) (err error) {
	meta := metav1.ObjectMeta{Name: bindingPrefix + a.Name, Labels: map[string]string{label: a.Name}}
	role := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: a.Role}
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: Namespace, Name: a.Name}}
	if a.Namespace == "" {
		_, err = k.api.RbacV1().ClusterRoleBindings().Create(ctx,
			&rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: role, Subjects: subjects}, metav1.CreateOptions{})
	} else {
		_, err = k.api.RbacV1().RoleBindings(a.Namespace).Create(ctx,
			&rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: role, Subjects: subjects}, metav1.CreateOptions{})
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("give account %q the role %s: %w", a.Name, a.Role, err)
	}
	return nil
}

// Token returns a token for a service account that is there.
func (k *Keeper) Token(ctx context.Context, namespace, account string, life time.Duration) (Token, error) {
	if err := checkLife(life); err != nil {
		return Token{}, err
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(life / time.Second))}}
	got, err := k.api.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
	if apierrors.IsNotFound(err) {
		return Token{}, fmt.Errorf("service account %s/%s: there is none of this name", namespace, account)
	}
	if err != nil {
		return Token{}, fmt.Errorf("make a token of %s/%s: %w", namespace, account, err)
	}
	return Token{got.Status.Token, got.Status.ExpirationTimestamp.Time}, nil
}

func checkLife(life time.Duration) error {
	if life < MinExpires {
		return fmt.Errorf("a token cannot live for %v: %v at least", life, MinExpires)
	}
	return nil
}

// note keeps when the last token of an account ends.
func (k *Keeper) note(ctx context.Context, name string, expires time.Time) error {
	api := k.api.CoreV1().ServiceAccounts(Namespace)
	account, err := api.Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		if old, _ := time.Parse(time.RFC3339, account.Annotations[expiresKey]); old.After(expires) {
			return nil
		}
		metav1.SetMetaDataAnnotation(&account.ObjectMeta, expiresKey, expires.UTC().Format(time.RFC3339))
		_, err = api.Update(ctx, account, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("note when the token of %q ends: %w", name, err)
	}
	return nil
}

// List returns every account by name. One without a role lost its binding.
func (k *Keeper) List(ctx context.Context) ([]Account, error) {
	opts := metav1.ListOptions{LabelSelector: label}
	list, err := k.api.CoreV1().ServiceAccounts(Namespace).List(ctx, opts)
	if err != nil {
		return nil, fmt.Errorf("list accounts: %w", err)
	}
	roles, err := k.api.RbacV1().RoleBindings(metav1.NamespaceAll).List(ctx, opts)
	if err != nil {
		return nil, fmt.Errorf("list the accounts' roles: %w", err)
	}
	clusterRoles, err := k.api.RbacV1().ClusterRoleBindings().List(ctx, opts)
	if err != nil {
		return nil, fmt.Errorf("list the accounts' roles: %w", err)
	}
	found := make([]Account, 0, len(list.Items))
	for _, item := range list.Items {
		a := Account{Name: item.Name, Created: item.CreationTimestamp.Time}
		a.Expires, _ = time.Parse(time.RFC3339, item.Annotations[expiresKey]) // zero: unknown
		for _, b := range roles.Items {
			if b.Labels[label] == a.Name {
				a.Role, a.Namespace = b.RoleRef.Name, b.Namespace
			}
		}
		for _, b := range clusterRoles.Items {
			if b.Labels[label] == a.Name {
				a.Role, a.Namespace = b.RoleRef.Name, ""
			}
		}
		found = append(found, a)
	}
	slices.SortFunc(found, func(a, b Account) int { return cmp.Compare(a.Name, b.Name) })
	return found, nil
}

// Revoke deletes an account: first what it may do, then itself and with it all
// its tokens. The API lets a token pass for ten more seconds, without rights.
func (k *Keeper) Revoke(ctx context.Context, name string) error {
	all, err := k.List(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(a Account) bool { return a.Name == name })
	if i < 0 {
		return fmt.Errorf("%q: %w", name, ErrNone)
	}
	binding := bindingPrefix + name
	if ns := all[i].Namespace; ns != "" {
		err = k.api.RbacV1().RoleBindings(ns).Delete(ctx, binding, metav1.DeleteOptions{})
	} else {
		err = k.api.RbacV1().ClusterRoleBindings().Delete(ctx, binding, metav1.DeleteOptions{})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("take the role from account %q: %w", name, err)
	}
	if err := k.api.CoreV1().ServiceAccounts(Namespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete account %q: %w", name, err)
	}
	return nil
}
