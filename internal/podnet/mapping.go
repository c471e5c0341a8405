package podnet

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// A mapping is one port of the host that the portmap plugin leads to a pod.
type mapping struct {
	network, sandbox string // whose it is: the CNI network's name, the pod sandbox's ID
	chain            string
	hostPort
}

// A hostPort is a port of one address of the host, or of all.
type hostPort struct {
	protocol string     // tcp, udp or sctp
	addr     netip.Addr // the zero value: every one
	port     int
}

func (p hostPort) String() string {
	text := strings.ToUpper(p.protocol) + " port " + strconv.Itoa(p.port)
	if p.addr.IsValid() {
		text += " of " + p.addr.String()
	}
	return text
}

func (p hostPort) overlaps(q hostPort) bool {
	return p.protocol == q.protocol && p.port == q.port && (!p.addr.IsValid() || !q.addr.IsValid() || p.addr == q.addr)
}

// A jump is a rule that leads to the chain of one pod's mappings.
type jump struct {
	words            []string // of iptables, without "-A"
	network, sandbox string
	chain            string
}

// jumps returns the jumps to pods' mappings in a nat table listed by
// iptables -S, in the order in which the kernel tries them.
func jumps(listing string) []jump {
	var all []jump
	for line := range strings.Lines(listing) {
		words := splitWords(line)
		if len(words) < 2 || words[0] != "-A" || words[1] != hostPortChains[0] {
			continue
		}
		j := jump{words: words[1:], chain: after(words, "-j")}
		// The plugin writes: dnat name: "NETWORK" id: "SANDBOX".
		if _, rest, ok := strings.Cut(after(words, "--comment"), `name: "`); ok {
			j.network, rest, _ = strings.Cut(rest, `" id: "`)
			j.sandbox = strings.TrimSuffix(rest, `"`)
		}
		all = append(all, j)
	}
	return all
}

// mappings returns every mapping of a listed nat table, the one that counts
// first.
func mappings(listing string) []mapping {
	ports := map[string][]hostPort{} // by chain
	for line := range strings.Lines(listing) {
		words := splitWords(line)
		if len(words) < 2 || words[0] != "-A" || after(words, "-j") != "DNAT" {
			continue
		}
		port, err := strconv.Atoi(after(words, "--dport"))
		if err != nil {
			continue
		}
		p := hostPort{protocol: after(words, "-p"), port: port}
		if dst, err := netip.ParsePrefix(after(words, "-d")); err == nil {
			p.addr = dst.Addr()
		}
		ports[words[1]] = append(ports[words[1]], p)
	}
	var all []mapping
	for _, j := range jumps(listing) {
		for _, p := range ports[j.chain] {
			all = append(all, mapping{j.network, j.sandbox, j.chain, p})
		}
		delete(ports, j.chain) // a chain has one jump for each protocol
	}
	return all
}

// after returns the word behind word, or nothing.
func after(words []string, word string) string {
	i := slices.Index(words, word)
	if i < 0 || i+1 >= len(words) {
		return ""
	}
	return words[i+1]
}

// network is the name of the instance's CNI network, by which the portmap plugin
// marks what it makes.
func (n Net) network() string { return "holdfast-" + n.ID }

// removeMappings removes what is left of the host ports of n's pods. The plugin
// does it for a pod that is stopped, nobody for one that was killed.
func (n Net) removeMappings(ctx context.Context) error {
	listing, err := iptables(ctx, "nat", "-S")
	if err != nil {
		return err
	}
	var chains []string
	for _, j := range jumps(listing) {
		if j.network != n.network() {
			continue
		}
		if err := natRule(ctx, append([]string{"-D"}, j.words...)); err != nil {
			return err
		}
		if !slices.Contains(chains, j.chain) {
			chains = append(chains, j.chain)
		}
	}
	for _, c := range chains {
		for _, do := range []string{"-F", "-X"} {
			if err := natRule(ctx, []string{do, c}); err != nil {
				return fmt.Errorf("chain of a host port: %w", err)
			}
		}
	}
	return nil
}

func natRule(ctx context.Context, args []string) error {
	_, err := run(ctx, "iptables", "", append([]string{"-w", "-t", "nat"}, args...)...)
	return err
}
