package server

import (
	"cmp"
	"time"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// A Policy says whom the API lets in and what it shows. The zero value is the
// upstream kubelet's default: whoever has a client certificate or a token, and
// whom the cluster's API allows it.
type Policy struct {
	// Anonymous lets requests without any credentials come as system:anonymous;
	// those with bad ones are still refused. What they may do is authorized as ever.
	Anonymous bool
	// NoTokens takes client certificates alone: bearer tokens are not looked at.
	NoTokens bool
	// AlwaysAllow asks nobody what somebody who is known may do: everything.
	AlwaysAllow bool
	// TokenTTL is how long an answer about a token is believed; default 2m.
	// AllowTTL and RefuseTTL are for those about access; default 5m and 30s.
	TokenTTL, AllowTTL, RefuseTTL time.Duration

	// NoDebugging leaves only what the read-only port has: no logs, commands,
	// forwarded ports or configuration. NoSystemLogs, NoProfiling and NoDebugFlags
	// leave out /logs, /debug/pprof and /debug/flags. All answer 405 then, or 404.
	NoDebugging, NoSystemLogs, NoProfiling, NoDebugFlags bool
	// ContentionProfiling has the whole process remember where goroutines wait, for
	// /debug/pprof/block. It costs time.
	ContentionProfiling bool

	// StreamIdle is how long a command or a forwarded port may be silent before its
	// connection is closed. Default 4h; negative: any time.
	StreamIdle time.Duration
}

// PolicyOf is what upstream's configuration says of the API; fields that are not
// set mean upstream's defaults.
func PolicyOf(c *kubeletconfig.KubeletConfiguration) Policy {
	off := func(field *bool) bool { return field != nil && !*field }
	on := func(field *bool) bool { return field != nil && *field }
	return Policy{
		Anonymous:   on(c.Authentication.Anonymous.Enabled),
		NoTokens:    off(c.Authentication.Webhook.Enabled),
		AlwaysAllow: c.Authorization.Mode == kubeletconfig.KubeletAuthorizationModeAlwaysAllow,
		TokenTTL:    c.Authentication.Webhook.CacheTTL.Duration,
		AllowTTL:    c.Authorization.Webhook.CacheAuthorizedTTL.Duration,
		RefuseTTL:   c.Authorization.Webhook.CacheUnauthorizedTTL.Duration,

		NoDebugging:  off(c.EnableDebuggingHandlers),
		NoSystemLogs: off(c.EnableSystemLogHandler),
		NoProfiling:  off(c.EnableProfilingHandler),
		NoDebugFlags: off(c.EnableDebugFlagsHandler),

		ContentionProfiling: c.EnableContentionProfiling,
		StreamIdle:          c.StreamingConnectionIdleTimeout.Duration,
	}
}

func (p Policy) withDefaults() Policy {
	p.TokenTTL = cmp.Or(p.TokenTTL, 2*time.Minute)
	p.AllowTTL = cmp.Or(p.AllowTTL, 5*time.Minute)
	p.RefuseTTL = cmp.Or(p.RefuseTTL, 30*time.Second)
	p.StreamIdle = cmp.Or(p.StreamIdle, 4*time.Hour)
	return p
}
