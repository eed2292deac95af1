// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"strings"

	"github.com/pkg/errors"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ipvsDummy is the interface that holds the addresses of Services where
// kube-proxy is in its mode ipvs.
const ipvsDummy = "kube-ipvs0"

// linkLeftovers finds the bridge of Pods, and kube-proxy's interface. A link of
// the name but of another kind is somebody else's; and a bridge that other
// links are part of than ends of veth pairs is used.
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
			if _, err := podPorts(links, l); err != nil {
				return found, err
			}
			found = append(found, Leftover{Link, name})
		}
	}
	if ipvs {
		return found, errors.New("the virtual servers of kube-proxy in its mode ipvs stay, as nothing tells them from others; if there are none, remove them with `ipvsadm --clear`")
	}
	return found, nil
}

// podPorts are the ends of Pods' veth pairs that are part of a bridge. They go
// with their Pods, unless somebody has removed these without asking the plugin.
func podPorts(links []netlink.Link, bridge netlink.Link) ([]netlink.Link, error) {
	var ports []netlink.Link
	for _, l := range links {
		switch {
		case l.Attrs().MasterIndex != bridge.Attrs().Index:
		case l.Type() != "veth":
			return nil, errors.Errorf("the bridge %s stays: other interfaces than those of Pods are part of it", bridge.Attrs().Name)
		default:
			ports = append(ports, l)
		}
	}
	return ports, nil
}

// removeLink deletes an interface, and with a bridge what Pods have left there.
// One that has gone meanwhile is no error.
func removeLink(name string) error {
	link, err := netlink.LinkByName(name)
	doomed := []netlink.Link{link}
	if err == nil && link.Type() == "bridge" {
		var links, ports []netlink.Link
		if links, err = dump(netlink.LinkList); err == nil {
			ports, err = podPorts(links, link)
		}
		doomed = append(ports, link)
	}
	for _, l := range doomed {
		if err == nil {
			err = unlessGone(netlink.LinkDel(l))
		}
	}
	return unlessGone(err)
}

func unlessGone(err error) error {
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
