// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"github.com/pkg/errors"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/host"
)

// ipvsDummy is the interface with the Services' addresses if kube-proxy is in ipvs mode.
const ipvsDummy = "kube-ipvs0"

// linkLeftovers finds the Pods' bridge, and the interfaces of kube-proxy and flannel. A link with such a name but of another type
// is the user's, and a bridge with ports other than veth pairs is in use.
func linkLeftovers(bridge string) ([]host.Leftover, error) {
	links, err := dump(netlink.LinkList)
	if err != nil {
		return nil, errors.Wrap(err, "list the network interfaces")
	}
	return ourLinks(links, bridge)
}

func ourLinks(links []netlink.Link, bridge string) ([]host.Leftover, error) {
	var found []host.Leftover
	ipvs := false
	for _, l := range links {
		name, kind := l.Attrs().Name, l.Type()
		switch {
		case name == ipvsDummy && kind == "dummy":
			found = append(found, host.Leftover{Kind: host.Link, Name: name})
			ipvs = true
		case (name == "flannel.1" || name == "flannel-v6.1") && kind == "vxlan":
			found = append(found, host.Leftover{Kind: host.Link, Name: name})
		case name == bridge && kind == "bridge":
			if _, err := podPorts(links, l); err != nil {
				return found, err
			}
			found = append(found, host.Leftover{Kind: host.Link, Name: name})
		}
	}
	if ipvs {
		return found, errors.New("the virtual servers and sets of kube-proxy in ipvs mode stay, because virtual servers cannot be told from those of other programs; if there are no others, remove them with `ipvsadm --clear`, or restart the machine")
	}
	return found, nil
}

// podPorts returns the ends of Pods' veth pairs that are ports of a bridge. They disappear with their Pods, unless the Pods were
// removed without calling the plugin.
func podPorts(links []netlink.Link, bridge netlink.Link) ([]netlink.Link, error) {
	var ports []netlink.Link
	for _, l := range links {
		switch {
		case l.Attrs().MasterIndex != bridge.Attrs().Index:
		case l.Type() != "veth":
			return nil, errors.Errorf("the bridge %s stays: it has ports that do not belong to Pods", bridge.Attrs().Name)
		default:
			ports = append(ports, l)
		}
	}
	return ports, nil
}

// removeLink deletes an interface, and with a bridge the ports Pods left there. A missing interface isn't an error.
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
