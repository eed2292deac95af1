// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"slices"
	"strings"

	"github.com/pkg/errors"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ipvsDummy is the interface that holds the addresses of Services where
// kube-proxy is in its mode ipvs.
const ipvsDummy = "kube-ipvs0"

// linkLeftovers finds the bridge of Pods with their ends of veth pairs, and
// kube-proxy's interface. A link of the name but of another kind is
// somebody else's; and a bridge that other links are part of is used.
func linkLeftovers(bridge string) ([]Leftover, error) {
	links, err := dump(netlink.LinkList)
	if err != nil {
		return nil, errors.Wrap(err, "list the network interfaces")
	}
	return ourLinks(links, bridge)
}

func ourLinks(links []netlink.Link, bridge string) ([]Leftover, error) {
	var found []Leftover
	ipvs := false
	for _, l := range links {
		name, kind := l.Attrs().Name, l.Type()
		switch {
		case name == ipvsDummy && kind == "dummy":
			found = append(found, Leftover{Link, name})
			ipvs = true
		case name == bridge && kind == "bridge":
			ports := slices.DeleteFunc(slices.Clone(links), func(p netlink.Link) bool { return p.Attrs().MasterIndex != l.Attrs().Index })
			if slices.ContainsFunc(ports, func(p netlink.Link) bool { return p.Type() != "veth" }) {
				return found, errors.Errorf("the bridge %s stays: other interfaces than those of Pods are part of it", name)
			}
			for _, p := range ports {
				found = append(found, Leftover{Link, p.Attrs().Name})
			}
			found = append(found, Leftover{Link, name})
		}
	}
	if ipvs {
		return found, errors.New("the virtual servers of kube-proxy in its mode ipvs stay, as nothing tells them from others; if there are none, remove them with `ipvsadm --clear`")
	}
	return found, nil
}

// removeLink deletes an interface; one that has gone meanwhile, as the end of
// a veth pair goes with the other, is no error.
func removeLink(name string) error {
	link, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if errors.As(err, &netlink.LinkNotFoundError{}) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// setLeftovers finds kube-proxy's sets of addresses. A kernel without sets has
// none.
func setLeftovers() ([]Leftover, error) {
	sets, err := netlink.IpsetListAll()
	if err != nil {
		return nil, nil //nolint:nilerr // what matters is found by its rules first
	}
	var found []Leftover
	for _, s := range sets {
		if strings.HasPrefix(s.SetName, kubePrefix) {
			found = append(found, Leftover{Sets, s.SetName})
		}
	}
	return found, nil
}

func removeSet(name string) error {
	err := netlink.IpsetDestroy(name)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}
