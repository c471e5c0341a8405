package localapi

import (
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/apiserver/pkg/server/routes"
	"k8s.io/apiserver/pkg/util/openapi"
	openapicommon "k8s.io/kube-openapi/pkg/common"
	generatedopenapi "k8s.io/kubernetes/pkg/generated/openapi"
)

// openAPIKept is how long a document stays in memory after its last use. It
// takes a fraction of a second to build again.
const openAPIKept = time.Minute

// documents are the OpenAPI documents of a server. Upstream builds them at
// the start and keeps them, which is half of a small server's memory; here
// they are built when somebody asks, as kubectl does for explain and apply,
// and dropped after a while.
type documents struct {
	schemes []*runtime.Scheme
	version string
}

// v2Config and v3Config are made anew for each use: they hold the schemas of
// every type there is.

func (d documents) v2Config() *openapicommon.Config {
	c := genericapiserver.DefaultOpenAPIConfig(definitions(), d.namer())
	c.Info.Title, c.Info.Version = "Kubernetes", d.version
	return c
}

func (d documents) v3Config() *openapicommon.OpenAPIV3Config {
	c := genericapiserver.DefaultOpenAPIV3Config(definitions(), d.namer())
	c.Info.Title, c.Info.Version = "Kubernetes", d.version
	return c
}

func (d documents) namer() *openapinamer.DefinitionNamer {
	return openapinamer.NewDefinitionNamer(d.schemes...)
}

func definitions() openapicommon.GetOpenAPIDefinitions {
	return openapi.GetOpenAPIDefinitionsWithoutDisabledFeatures(generatedopenapi.GetOpenAPIDefinitions)
}

// install serves the documents of everything that server serves.
func (d documents) install(server *genericapiserver.GenericAPIServer) {
	container, paths := server.Handler.GoRestfulContainer, server.Handler.NonGoRestfulMux
	v2 := &onDemand{build: func() http.Handler {
		m := mux.NewPathRecorderMux("openapi-v2")
		routes.OpenAPI{Config: d.v2Config()}.InstallV2(container, m)
		return m
	}}
	v3 := &onDemand{build: func() http.Handler {
		m := mux.NewPathRecorderMux("openapi-v3")
		routes.OpenAPI{V3Config: d.v3Config()}.InstallV3(container, m)
		return m
	}}
	paths.Handle("/openapi/v2", v2)
	paths.Handle("/openapi/v3", v3)
	paths.UnlistedHandlePrefix("/openapi/v3/", v3)
}

// onDemand is a handler that is built when it is used and dropped when it was
// not used for openAPIKept.
type onDemand struct {
	build func() http.Handler

	mu sync.Mutex
	// mu guards the fields below.
	built http.Handler // nil: not built
	drop  *time.Timer
}

func (o *onDemand) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.get().ServeHTTP(w, r)
}

func (o *onDemand) get() http.Handler {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.built == nil {
		o.built = o.build()
	}
	if o.drop == nil {
		o.drop = time.AfterFunc(openAPIKept, o.forget)
	} else {
		o.drop.Reset(openAPIKept)
	}
	return o.built
}

func (o *onDemand) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.built = nil
	debug.FreeOSMemory() // an idle node would keep it for minutes
}
