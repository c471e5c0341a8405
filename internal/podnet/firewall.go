package podnet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A chain is one of our chains and the one jump that leads to it.
type chain struct {
	table, name string
	parent      string   // the built-in chain that jumps here, first of its rules
	rules       []string // in iptables' words
}

// chains returns what the firewall must hold for n. Two tables, because only nat
// can masquerade and only filter may accept.
func (n Net) chains() []chain {
	subnet := n.Subnet.Masked()
	var input []string
	for _, port := range n.NodePorts {
		input = append(input, fmt.Sprintf("-i %s -d %s/32 -p tcp -m tcp --dport %d -j ACCEPT", n.Bridge, n.Gateway(), port))
	}
	return []chain{
		{
			table: "filter", name: chainPrefix + n.ID + "-IN", parent: "INPUT",
			// A host with a firewall (ufw, firewalld) drops these. No port but
			// the node's own is opened: what else listens here is the host's.
			rules: input,
		},
		{
			table: "filter", name: chainPrefix + n.ID + forwardSuffix, parent: "FORWARD",
			// Docker, and many a hardened host, drop what is not accepted.
			rules: []string{
				"-i " + n.Bridge + " -j ACCEPT",
				"-o " + n.Bridge + " -j ACCEPT",
			},
		},
		{
			table: "nat", name: chainPrefix + n.ID + "-NAT", parent: "POSTROUTING",
			// The network outside has no route back to pods. Between pods, and
			// for multicast, the address must stay what it is.
			rules: []string{
				fmt.Sprintf("-s %s -d 224.0.0.0/4 -j RETURN", subnet),
				fmt.Sprintf("-s %s ! -d %s -j MASQUERADE", subnet, subnet),
			},
		},
	}
}

const (
	chainPrefix   = "HOLDFAST-"
	forwardSuffix = "-FWD"
)

// restoreInput is what iptables-restore --noflush reads to fill c at once: a
// declared chain is emptied first, others are left alone.
func (c chain) restoreInput() string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%s\n:%s - [0:0]\n", c.table, c.name)
	for _, r := range c.rules {
		fmt.Fprintf(&b, "-A %s %s\n", c.name, r)
	}
	b.WriteString("COMMIT\n")
	return b.String()
}

func (n Net) ensureFirewall(ctx context.Context) (changed bool, err error) {
	if err := n.noteHostPortChains(ctx); err != nil {
		return false, err
	}
	for _, c := range n.chains() {
		if !c.complete(ctx) {
			changed = true
			if _, err := run(ctx, "iptables-restore", c.restoreInput(), "-w", "--noflush"); err != nil {
				return true, err
			}
		}
		if has(ctx, c.table, c.parent, "-j "+c.name) {
			continue
		}
		changed = true
		if _, err := iptables(ctx, c.table, "-I "+c.parent+" 1 -j "+c.name); err != nil {
			return true, err
		}
	}
	return changed, nil
}

// complete reports whether the chain is there with every rule.
func (c chain) complete(ctx context.Context) bool {
	if len(c.rules) == 0 {
		_, err := iptables(ctx, c.table, "-S "+c.name)
		return err == nil
	}
	for _, r := range c.rules {
		if !has(ctx, c.table, c.name, r) {
			return false
		}
	}
	return true
}

// removeFirewall removes n's chains and reports whether another instance's are
// still there. Without one, the host port chains go too, if they came with us.
func (n Net) removeFirewall(ctx context.Context) (others bool, err error) {
	for _, c := range n.chains() {
		for has(ctx, c.table, c.parent, "-j "+c.name) { // more than once after a race of two agents
			if _, err := iptables(ctx, c.table, "-D "+c.parent+" -j "+c.name); err != nil {
				return false, err
			}
		}
		listing, err := iptables(ctx, c.table, "-S")
		if err != nil {
			return false, err
		}
		if !strings.Contains(listing, "-N "+c.name+"\n") {
			continue
		}
		if _, err := iptables(ctx, c.table, "-F "+c.name); err != nil {
			return false, err
		}
		if _, err := iptables(ctx, c.table, "-X "+c.name); err != nil {
			return false, err
		}
	}
	if err := n.removeMappings(ctx); err != nil {
		return false, err
	}
	listing, err := iptables(ctx, "filter", "-S")
	if err != nil {
		return false, err
	}
	if hasInstance(listing) {
		return true, nil
	}
	return false, n.removeHostPortChains(ctx)
}

// hasInstance reports whether a listing of the filter table (iptables -S) holds
// the chain of any instance.
func hasInstance(listing string) bool {
	for line := range strings.Lines(listing) {
		name, ok := strings.CutPrefix(strings.TrimSpace(line), "-N "+chainPrefix)
		if ok && strings.HasSuffix(name, forwardSuffix) {
			return true
		}
	}
	return false
}

// has reports whether chain holds rule. iptables answers a missing chain and a
// missing rule alike; another trouble shows when the rule is then added.
func has(ctx context.Context, table, chain, rule string) bool {
	_, err := iptables(ctx, table, "-C "+chain+" "+rule)
	return err == nil
}

// iptables runs one command in table; words are separated by spaces.
func iptables(ctx context.Context, table, command string) (string, error) {
	return run(ctx, "iptables", "", append([]string{"-w", "-t", table}, strings.Fields(command)...)...)
}

func run(ctx context.Context, name, stdin string, args ...string) (string, error) {
	path, err := find(name)
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return "", fmt.Errorf("%s %s: %s: %w", name, strings.Join(args, " "), strings.TrimSpace(string(exit.Stderr)), err)
	}
	return string(out), err
}

// find looks name up in PATH and in the folders of administrator's programs,
// which an ordinary user's PATH, kept by sudo, may lack.
func find(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/sbin", "/sbin", "/usr/local/sbin"} {
		candidate := filepath.Join(dir, name)
		if info, err := os.Stat(candidate); err == nil && info.Mode()&0o111 != 0 {
			return candidate, nil
		}
	}
	return "", fmt.Errorf("%w: install it (Debian: apt-get install iptables)", err)
}
