package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/holdfast-dev/holdfast/internal/accounts"
	"github.com/holdfast-dev/holdfast/internal/atomicfile"
	"github.com/holdfast-dev/holdfast/internal/cli"
	"github.com/holdfast-dev/holdfast/internal/control"
	"github.com/holdfast-dev/holdfast/internal/instance"
	"github.com/holdfast-dev/holdfast/internal/localapi/pki"
)

// defaultExpires is how long a token lives.
const defaultExpires = 30 * 24 * time.Hour

// apiTimeout bounds each command's work with the API.
const apiTimeout = 30 * time.Second

// kubeconfigFlags are the flags of `holdfast kubeconfig`.
type kubeconfigFlags struct {
	user, role, namespace string
	serviceAccount        string
	expires               time.Duration
	server, file          string
	list                  bool
	revoke                string
	format                cli.Format
}

func newKubeconfig(g *global) *cobra.Command {
	var f kubeconfigFlags
	cmd := &cobra.Command{
		Use:   "kubeconfig",
		Short: "Make a kubeconfig for another machine, or take it back",
		Long: `Writes a kubeconfig for kubectl on another machine. The node must be reachable
there: see --bind-address of "holdfast up".

With --user it holds a token of a limited account, which is made if it is not
there: a service account in the namespace ` + accounts.Namespace + ` that is bound to
one cluster role, in one namespace with --namespace, else in all. The token ends
after --expires; --revoke ends all tokens of an account.

With --service-account it holds a token of a service account that is there
already. With neither it holds the administrator's own credentials, which
cannot be revoked.

The roles view, edit, admin and cluster-admin are Kubernetes' own. Who may make
pods (edit and above) can become root on this machine, unless the namespace
forbids it with the label pod-security.kubernetes.io/enforce.`,
		Example: `  holdfast kubeconfig --user anna --file anna.kubeconfig           # may look at everything but Secrets
  holdfast kubeconfig --user ci --role edit --namespace web --expires 24h
  holdfast kubeconfig --user anna --server edge.example.com        # by that name
  holdfast kubeconfig --service-account web/deployer
  holdfast kubeconfig --list
  holdfast kubeconfig --revoke anna`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			in, err := g.open()
			if err == nil {
				err = f.validate(cmd)
			}
			if err == nil {
				err = cli.NeedRoot(cmd)
			}
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), apiTimeout)
			defer cancel()
			return f.run(ctx, cmd, in)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.user, "user", "", "name of the account: lower-case letters, digits and dashes")
	flags.StringVar(&f.role, "role", "view", "cluster role of the account: view, edit, admin, cluster-admin, or one of yours")
	flags.StringVarP(&f.namespace, "namespace", "n", "", "where the account has the role (default all namespaces)")
	flags.StringVar(&f.serviceAccount, "service-account", "", "service account that is there, as NAMESPACE/NAME")
	flags.DurationVar(&f.expires, "expires", defaultExpires, "how long the token lives, such as 24h")
	flags.StringVar(&f.server, "server", "auto", "address or name by which the other machine reaches the API, with or without a port; auto picks one that the API listens on")
	flags.StringVarP(&f.file, "file", "f", "", "file to write, with mode 0600 (default standard output)")
	flags.BoolVar(&f.list, "list", false, "list the accounts")
	flags.StringVar(&f.revoke, "revoke", "", "delete the account of this name, and with it all its tokens")
	flags.VarP(&f.format, "output", "o", "output format of --list")
	cmd.MarkFlagsMutuallyExclusive("user", "service-account", "list", "revoke")
	return cmd
}

// validate refuses flags that would have no effect.
func (f *kubeconfigFlags) validate(cmd *cobra.Command) error {
	given := cmd.Flags().Changed
	need := func(flag string, others ...string) error {
		if given(flag) && !slices.ContainsFunc(others, given) {
			return fmt.Errorf("--%s has no meaning without --%s", flag, strings.Join(others, " or --"))
		}
		return nil
	}
	errs := []error{
		need("role", "user"), need("namespace", "user"), need("expires", "user", "service-account"), need("output", "list"),
	}
	if given("list") || given("revoke") {
		for _, flag := range []string{"server", "file"} {
			if given(flag) {
				errs = append(errs, fmt.Errorf("--%s has no meaning with --list or --revoke", flag))
			}
		}
	}
	if given("user") && f.user == "" {
		errs = append(errs, errors.New("--user is empty"))
	}
	return errors.Join(errs...)
}

func (f *kubeconfigFlags) run(ctx context.Context, cmd *cobra.Command, in *instance.Instance) error {
	report, err := control.NewClient(in.ControlSocket()).Report(ctx)
	if err != nil {
		return fmt.Errorf("%w (start it with \"holdfast up --detach%s\")", err, rootDirFlag(in))
	}
	admin, err := clientcmd.LoadFromFile(in.Kubeconfig())
	if err != nil {
		return fmt.Errorf("the administrator's kubeconfig: %w", err)
	}
	rest, err := clientcmd.NewDefaultClientConfig(*admin, nil).ClientConfig()
	if err != nil {
		return fmt.Errorf("the administrator's kubeconfig: %w", err)
	}
	client, err := kubernetes.NewForConfig(rest)
	if err != nil {
		return err
	}
	keeper := accounts.New(client)
	switch {
	case f.list:
		return listAccounts(ctx, cmd.OutOrStdout(), keeper, f.format)
	case f.revoke != "":
		if err := keeper.Revoke(ctx, f.revoke); err != nil {
			return fmt.Errorf("revoke %w (see \"holdfast kubeconfig --list%s\")", err, rootDirFlag(in))
		}
		fmt.Fprintf(cmd.OutOrStdout(), "Account %s is revoked: its tokens end within ten seconds.\n", f.revoke)
		return nil
	}
	cluster, err := reach(f.server, report, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	current := admin.Contexts[admin.CurrentContext]
	cluster.CertificateAuthorityData = admin.Clusters[current.Cluster].CertificateAuthorityData
	who, auth, err := f.credentials(ctx, cmd.ErrOrStderr(), keeper, admin.AuthInfos[current.AuthInfo])
	if err != nil {
		return err
	}
	return f.write(cmd.OutOrStdout(), kubeconfig(report.Node, who, f.namespace, cluster, auth))
}

// credentials returns who the kubeconfig is for, and what proves it.
func (f *kubeconfigFlags) credentials(ctx context.Context, notes io.Writer, keeper *accounts.Keeper, admin *clientcmdapi.AuthInfo) (string, *clientcmdapi.AuthInfo, error) {
	if f.user == "" && f.serviceAccount == "" {
		fmt.Fprintln(notes, "Note: these are the administrator's credentials, which may do everything and cannot be revoked; --user makes limited ones.")
		return "admin", admin, nil
	}
	if err := pki.CheckClock(time.Now()); err != nil {
		return "", nil, err
	}
	var token accounts.Token
	var err error
	who := f.user
	if f.user != "" {
		token, err = keeper.Grant(ctx, accounts.Account{Name: f.user, Role: f.role, Namespace: f.namespace}, f.expires)
	} else {
		namespace, name, ok := strings.Cut(f.serviceAccount, "/")
		if !ok || namespace == "" || name == "" {
			return "", nil, fmt.Errorf("--service-account %q: want NAMESPACE/NAME", f.serviceAccount)
		}
		who = namespace + "-" + name
		token, err = keeper.Token(ctx, namespace, name, f.expires)
	}
	if err != nil {
		return "", nil, err
	}
	fmt.Fprintf(notes, "Note: the token of %s ends on %s.\n", who, token.Expires.UTC().Format(time.DateTime+" UTC"))
	return who, &clientcmdapi.AuthInfo{Token: token.Secret}, nil
}

// reach returns how another machine reaches the API by the address or name that
// the user gave.
func reach(server string, report *control.Report, notes io.Writer) (*clientcmdapi.Cluster, error) {
	local, err := url.Parse(report.API)
	if err != nil || local.Port() == "" {
		return nil, fmt.Errorf("the node says that its API is at %q; see \"holdfast status\"", report.API)
	}
	if server == "auto" {
		if len(report.APIOutside) == 0 {
			fmt.Fprintln(notes, `Note: the API listens on this machine alone, and so the kubeconfig works here alone; see --bind-address of "holdfast up".`)
			return &clientcmdapi.Cluster{Server: report.API}, nil
		}
		return &clientcmdapi.Cluster{Server: "https://" + report.APIOutside[0]}, nil
	}
	host, port := strings.TrimSuffix(strings.TrimPrefix(server, "https://"), "/"), local.Port()
	if h, p, err := net.SplitHostPort(host); err == nil {
		host, port = h, p
	}
	host = strings.Trim(host, "[]")
	if host == "" || strings.ContainsAny(host, "/ @") {
		return nil, fmt.Errorf("--server %q: want an address or a name, with or without a port", server)
	}
	cluster := &clientcmdapi.Cluster{Server: "https://" + net.JoinHostPort(host, port)}
	if !certified(host, report.Certificates) {
		// A client may expect another name than it calls: as good, since the
		// authority is the node's own.
		cluster.TLSServerName = report.Node
		fmt.Fprintf(notes, "Note: the API's certificate does not name %s: the kubeconfig expects the name %s in it instead. For other clients name it with --api-name of \"holdfast up\".\n", host, report.Node)
	}
	return cluster, nil
}

// certified reports whether the API's certificate names a host.
func certified(host string, certificates []control.Certificate) bool {
	for _, c := range certificates {
		if c.Name != "apiserver" {
			continue
		}
		return slices.ContainsFunc(c.Names, func(name string) bool {
			_, rest, ok := strings.Cut(host, ".")
			return strings.EqualFold(name, host) || ok && strings.EqualFold(name, "*."+rest)
		})
	}
	return false
}

// kubeconfig makes a file whose names tell the nodes apart when several are merged.
func kubeconfig(node, who, namespace string, cluster *clientcmdapi.Cluster, auth *clientcmdapi.AuthInfo) *clientcmdapi.Config {
	c := clientcmdapi.NewConfig()
	user := who + "@" + node
	c.Clusters[node] = cluster
	c.AuthInfos[user] = auth
	c.Contexts[user] = &clientcmdapi.Context{Cluster: node, AuthInfo: user, Namespace: namespace}
	c.CurrentContext = user
	return c
}

func (f *kubeconfigFlags) write(out io.Writer, c *clientcmdapi.Config) error {
	data, err := clientcmd.Write(*c)
	if err != nil {
		return fmt.Errorf("encode the kubeconfig: %w", err)
	}
	if f.file == "" {
		_, err = out.Write(data)
		return err
	}
	return atomicfile.Write(f.file, data, 0o600)
}

func listAccounts(ctx context.Context, out io.Writer, keeper *accounts.Keeper, format cli.Format) error {
	list, err := keeper.List(ctx)
	if err != nil {
		return err
	}
	if done, err := format.Data(out, list); done {
		return err
	}
	if len(list) == 0 {
		fmt.Fprintln(out, "No accounts.")
		return nil
	}
	now := time.Now()
	grid := cli.NewGrid(out, "account", "role", "namespace", "age", "expires")
	for _, a := range list {
		expires := ""
		switch {
		case a.Expires.IsZero():
		case a.Expires.Before(now):
			expires = "ended"
		default:
			expires = a.Expires.UTC().Format(time.DateTime)
		}
		where := a.Namespace
		if where == "" {
			where = "(all)"
		}
		grid.Row(a.Name, a.Role, where, cli.Age(a.Created, now), expires)
	}
	return grid.Flush()
}
