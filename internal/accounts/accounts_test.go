package accounts

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

var now = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

// newKeeper returns a Keeper on an API that has the roles view and edit.
func newKeeper(t *testing.T) (*Keeper, *fake.Clientset) {
	t.Helper()
	api := fake.NewClientset(
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "view"}}, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "edit"}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "web"}},
	)
	api.PrependReactor("create", "serviceaccounts", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "token" {
			return false, nil, nil
		}
		r := action.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenRequest).DeepCopy()
		r.Status.Token = "secret"
		r.Status.ExpirationTimestamp = metav1.NewTime(now.Add(time.Duration(*r.Spec.ExpirationSeconds) * time.Second))
		return true, r, nil
	})
	return New(api), api
}

func TestLifeOfAnAccount(t *testing.T) {
	k, api := newKeeper(t)
	ctx := t.Context()
	for _, step := range []struct {
		a    Account
		life time.Duration
	}{
		{Account{Name: "ci", Role: "edit", Namespace: "web"}, 48 * time.Hour},
		{Account{Name: "anna", Role: "view"}, time.Hour},
		{Account{Name: "ci", Role: "edit", Namespace: "web"}, time.Hour}, // for another machine
	} {
		token, err := k.Grant(ctx, step.a, step.life)
		if err != nil {
			t.Fatal(err)
		}
		if want := (Token{"secret", now.Add(step.life)}); token != want {
			t.Errorf("got %v, want %v", token, want)
		}
	}
	list := func(want ...Account) {
		t.Helper()
		got, err := k.List(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(got, want, cmpopts.EquateEmpty()); diff != "" {
			t.Error(diff)
		}
	}
	anna := Account{Name: "anna", Role: "view", Expires: now.Add(time.Hour)}
	list(anna, Account{Name: "ci", Role: "edit", Namespace: "web", Expires: now.Add(48 * time.Hour)})

	binding, err := api.RbacV1().RoleBindings("web").Get(ctx, bindingPrefix+"ci", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(binding.Subjects, []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: Namespace, Name: "ci"}}); diff != "" {
		t.Error(diff)
	}

	if err := k.Revoke(ctx, "ci"); err != nil {
		t.Fatal(err)
	}
	list(anna)
	if err := k.Revoke(ctx, "ci"); !errors.Is(err, ErrNone) {
		t.Errorf("revoked twice: %v", err)
	}
	if err := k.Revoke(ctx, "anna"); err != nil {
		t.Fatal(err)
	}
	list()
	for _, verb := range api.Actions() {
		if verb.GetVerb() == "delete" && verb.GetResource().Resource == "namespaces" {
			t.Error("a namespace was deleted")
		}
	}
	left, err := api.RbacV1().ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	if err != nil || len(left.Items) > 0 {
		t.Errorf("left: %v, %v", left.Items, err)
	}
}

// A refusal says why and makes nothing.
func TestGrantRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		a    Account
		life time.Duration
		want string
	}{
		"no role of this name":      {Account{Name: "x", Role: "vew"}, time.Hour, `role "vew": there is no such cluster role`},
		"no namespace of this name": {Account{Name: "x", Role: "view", Namespace: "wbe"}, time.Hour, `namespace "wbe": there is none`},
		"another role":              {Account{Name: "ci", Role: "edit"}, time.Hour, `account "ci" has role view in all namespaces: revoke it first`},
		"another place":             {Account{Name: "ci", Role: "view", Namespace: "web"}, time.Hour, "revoke it first"},
		"a moment":                  {Account{Name: "x", Role: "view"}, time.Minute, "10m0s at least"},
		"a wrong name":              {Account{Name: "Anna B", Role: "view"}, time.Hour, `account "Anna B"`},
	} {
		t.Run(name, func(t *testing.T) {
			k, api := newKeeper(t)
			if _, err := k.Grant(t.Context(), Account{Name: "ci", Role: "view"}, time.Hour); err != nil {
				t.Fatal(err)
			}
			api.ClearActions()
			_, err := k.Grant(t.Context(), test.a, test.life)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			for _, action := range api.Actions() {
				if action.GetVerb() == "create" {
					t.Errorf("%s was made", action.GetResource().Resource)
				}
			}
		})
	}
}

func TestShortToken(t *testing.T) {
	k, _ := newKeeper(t)
	if _, err := k.Token(t.Context(), "web", "default", time.Minute); err == nil || !strings.Contains(err.Error(), "10m0s at least") {
		t.Errorf("got %v", err)
	}
}
