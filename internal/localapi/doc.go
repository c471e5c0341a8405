// Package localapi is the embedded Kubernetes API of `holdfast up`: an etcd
// of its own on a unix socket, and one API server in this process with
// upstream's registries, so that defaulting, validation, printing, watch,
// server-side apply and OpenAPI are upstream's own code.
//
// # Use
//
//	api, err := localapi.New(localapi.Config{
//		DataDir: "/var/lib/holdfast/etcd", PKIDir: "/var/lib/holdfast/pki",
//		RunDir: "/run/holdfast/ID", NodeName: "node1",
//		Listen: []string{"127.0.0.1:6443"}, Names: []string{"10.88.0.1"},
//		Log: log,
//	})
//	group.AddReady("api", api.Run, api.Ready())
//	group.Add("api on the bridge", func(ctx context.Context) error {
//		l, err := net.Listen("tcp", "10.88.0.1:6443") // once the bridge is there
//		…
//		return api.Serve(ctx, l)
//	})
//
// New makes the certificates and opens the listeners, so that Address, Port,
// AdminKubeconfig, KubeletConfig, ClientConfig, KubeletServing, ClientCA and
// CACert answer at once; it starts nothing. Run blocks until everything that
// it started has ended. Close releases the listeners of a Server that is
// never run.
//
// # Reads and writes
//
// DataDir holds the store (etcd's files, a lock, a format version), PKIDir
// the certificates (see package pki), RunDir the socket of the store. Nothing
// else is touched.
//
// # Promises
//
// What was acknowledged is there after kill -9. Anonymous requests are
// refused (401), also those for /healthz and /version. Requests are
// authorized by RBAC with upstream's default roles; group system:nodes is
// bound to system:node, as there is no node authorizer. A store that is in
// use, damaged or newer than this program is an error that says what to do.
//
// # What is served, and what is not
//
// Services get a cluster IP (from 10.96.0.0/16 unless configured), but
// nothing routes it, and no controller makes their endpoints. There is no
// `kubernetes` service: pods find the API by the environment that the kubelet
// gives them. Workload kinds (Deployment, Job and so on), custom resources,
// ingresses, network policies, resource quotas, admission webhooks and
// policies are not served: their kinds answer 404.
//
// # Controllers
//
// Run keeps upstream's controllers going for namespaces, service accounts,
// the root CA's config map, aggregated cluster roles, claims and volumes
// (binding and protection), disruption budgets, pods that ended, and
// dependents of deleted owners. Package binder binds pods that name no node to the only node.
//
// A Server's methods may be called from any goroutine.
package localapi
