package node

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/holdfast-dev/holdfast/internal/instance"
	"github.com/holdfast-dev/holdfast/internal/localapi"
	"github.com/holdfast-dev/holdfast/internal/podnet"
	"github.com/holdfast-dev/holdfast/internal/runtimehost"
)

// podSubnet returns what podCIDR says; the zero value where it says nothing.
func (c Config) podSubnet() (netip.Prefix, error) {
	if c.PodCIDR == "" {
		return netip.Prefix{}, nil
	}
	if c.ContainerRuntimeEndpoint != "" {
		return netip.Prefix{}, errors.New("podCIDR has no meaning with containerRuntimeEndpoint: the network configuration of that runtime says which addresses pods get")
	}
	p, err := netip.ParsePrefix(c.PodCIDR)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("podCIDR %q: it is no subnet, such as 10.77.0.0/24", c.PodCIDR)
	}
	err = podnet.CheckSubnet(p)
	if err == nil && p.Overlaps(netip.MustParsePrefix(localapi.DefaultServiceCIDR)) {
		err = fmt.Errorf("it overlaps %s, the addresses of services", localapi.DefaultServiceCIDR)
	}
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("podCIDR %q: %w", c.PodCIDR, err)
	}
	return p, nil
}

// open opens or makes the instance, locks it, and settles its subnet. The
// register is locked meanwhile: of two that start at once, the second sees what
// the first has chosen.
func open(cfg Config) (in *instance.Instance, release func() error, err error) {
	unlock, err := instance.DefaultRegister.Lock()
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	others, err := instance.DefaultRegister.Others(cfg.RootDir)
	if err != nil {
		return nil, nil, err
	}
	var choice podnet.Choice
	for _, other := range others {
		choice.Claims = append(choice.Claims, podnet.Used{Prefix: other.Subnet, By: "the node in " + other.Root})
	}
	if choice.Wanted, err = cfg.podSubnet(); err != nil {
		return nil, nil, err
	}
	in, err = instance.OpenOrCreate(cfg.RootDir, func() (p netip.Prefix, err error) {
		if choice.Routes, err = podnet.UsedSubnets(""); err != nil {
			return p, err
		}
		return choice.Choose()
	})
	if err != nil {
		return nil, nil, err
	}
	if release, err = in.Lock(); err != nil {
		return nil, nil, err
	}
	if in, err = finishRestore(in); err != nil {
		return nil, nil, errors.Join(err, release())
	}
	if cfg.ContainerRuntimeEndpoint == "" {
		in, err = settle(cfg, in, choice)
	}
	if err = errors.Join(err, instance.DefaultRegister.Add(in)); err != nil {
		return nil, nil, errors.Join(err, release())
	}
	return in, release, nil
}

// settle gives an instance that is there already another subnet if it must have
// one and can.
func settle(cfg Config, in *instance.Instance, choice podnet.Choice) (*instance.Instance, error) {
	var err error
	if choice.Routes, err = podnet.UsedSubnets(in.Bridge()); err != nil {
		return in, err
	}
	if choice.Running, err = runtimehost.New(hostConfig(in, cfg.Log, nil)).Left(); err != nil {
		return in, err
	}
	choice.Current = in.Subnet
	subnet, err := choice.Choose()
	if err != nil {
		return in, fmt.Errorf("choose a subnet for the pods: %w", err)
	}
	if subnet == in.Subnet {
		return in, nil
	}
	cfg.Log.Warn("the pods get other addresses", "from", in.Subnet, "to", subnet)
	return in.Move(subnet)
}
