// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
)

// opening is a port, or a range of ports, that other nodes have to reach.
type opening struct {
	port, protocol string
	use            string // who needs it, unless every node does
}

// openings are all a firewall has to let through.
type openings struct {
	ports   []opening
	subnets []netip.Prefix // the Pod network, whose packets this host forwards; none if it's unknown
}

const flannelUse = "between nodes, with flannel"

// preparedOpenings are those of any node: the preparation knows neither its role nor the Pod network.
func preparedOpenings(m *config.Machine) openings {
	return openings{ports: []opening{
		{fmt.Sprint(config.DefaultBindPort), "tcp", "on a control plane"},
		etcdOpening,
		{fmt.Sprint(kubeletPort(m)), "tcp", ""},
		{flannelPorts, "udp", flannelUse},
	}}
}

// flannelPorts is where the kernel's VXLAN receives flannel's packets. Their source port is a hash, so no firewall takes them for answers.
const flannelPorts = "8472"

var etcdOpening = opening{"2379-2380", "tcp", "between control planes"}

func nodeOpenings(n *config.Node) openings {
	o := openings{subnets: n.PodSubnets()}
	if n.ControlPlane {
		o.ports = append(o.ports, opening{fmt.Sprint(n.BindPort), "tcp", ""})
		if n.Cluster.Etcd.External == nil {
			o.ports = append(o.ports, etcdOpening)
		}
	}
	o.ports = append(o.ports, opening{fmt.Sprint(kubeletPort(&n.Machine)), "tcp", ""})
	switch n.NetworkAddOn.Name {
	case config.Flannel:
		o.ports = append(o.ports, opening{flannelPorts, "udp", "between nodes"})
	case "": // another may be installed later; nodes that join don't know
		o.ports = append(o.ports, opening{flannelPorts, "udp", flannelUse})
	}
	return o
}

// String lists the ports for a message.
func (o openings) String() string {
	return o.each(", ", func(p opening) string {
		text := p.port + "/" + p.protocol
		if p.use != "" {
			text += " (" + p.use + ")"
		}
		return text
	})
}

func (o openings) each(between string, text func(opening) string) string {
	var texts []string
	for _, p := range o.ports {
		texts = append(texts, text(p))
	}
	return strings.Join(texts, between)
}

// anySubnet stands for an unknown Pod network in a command.
const (
	anySubnet   = "POD-SUBNET"
	whereSubnet = ", where " + anySubnet + " is your Pod network"
)

// podSubnets are the Pod networks for a command, or a word in their place.
func (o openings) podSubnets() []string {
	if len(o.subnets) == 0 {
		return []string{anySubnet}
	}
	var list []string
	for _, s := range o.subnets {
		list = append(list, s.String())
	}
	return list
}

const firewallChecked = "neither firewalld nor ufw is on, nor nftables' own service with rules that may drop packets; " +
	"otherwise, ports have to be opened, and the packets of Pods forwarded (warning)"

func firewalld(ctx context.Context, h View, o openings) []fault.Finding {
	unseen := func(err error) []fault.Finding {
		return warn("cannot check whether a firewall blocks ports that other nodes must be able to reach: %s: %v", o, err).
			remedy("make sure that other nodes can reach these ports of this host, and that it forwards the packets of Pods")
	}
	unit, err := h.Unit(ctx, "firewalld.service")
	if err != nil {
		return unseen(err)
	}
	const active = "%s is active, and other nodes must be able to reach these ports of this host: %s"
	switch {
	case unit.ActiveState == "active":
		return warn(active, "firewalld", o).remedy("%s", o.firewalldCommand()+o.caution())
	case usesUFW(h):
		return warn(active, "ufw", o).remedy("%s", o.ufwCommand()+o.caution())
	}
	r, found, err := nftablesRules(ctx, h)
	switch {
	case err != nil:
		return unseen(err)
	case !found:
		return nil
	}
	return warn(active+"%s", "nftables", o, r.forwarding()).remedy("%s", r.commands(o)+o.caution())
}

// caution ends a remedy.
func (o openings) caution() string {
	if !slices.ContainsFunc(o.ports, func(p opening) bool { return p.port == flannelPorts }) {
		return ""
	}
	return ". If other hosts can reach this one, open " + flannelPorts + "/udp only to the nodes' addresses, since VXLAN authenticates nobody"
}

// firewalldCommand also trusts Pods, because firewalld rejects forwarded packets, too.
func (o openings) firewalldCommand() string {
	open := "firewall-cmd --permanent " + o.each(" ", func(p opening) string { return "--add-port=" + p.port + "/" + p.protocol })
	var trust []string
	for _, s := range o.podSubnets() {
		trust = append(trust, "firewall-cmd --permanent --zone=trusted --add-source="+s)
	}
	return o.commands(open, strings.Join(trust, " && "), " && firewall-cmd --reload")
}

// commands are for a remedy: one that opens the ports, and one that lets the Pod networks' packets through. Both run last.
func (o openings) commands(open, trust, last string) string {
	if len(o.subnets) == 0 {
		return "open them with `" + open + last + "`, and let Pods' packets through with `" + trust + last + "`" + whereSubnet
	}
	return "open them, and let Pods' packets through, with `" + open + " && " + trust + last + "`"
}

func (o openings) ufwCommand() string {
	open := o.each(" && ", func(p opening) string {
		return "ufw allow " + strings.Replace(p.port, "-", ":", 1) + "/" + p.protocol
	})
	var route []string
	for _, s := range o.podSubnets() {
		route = append(route, "ufw route allow from "+s+" && ufw route allow to "+s)
	}
	return o.commands(open, strings.Join(route, " && "), "")
}

// usesUFW reads what Ubuntu's firewall does at boot: its unit is active even where it's off.
func usesUFW(h View) bool {
	text, err := h.ReadFile("/etc/ufw/ufw.conf")
	return err == nil && slices.Contains(strings.Split(string(text), "\n"), "ENABLED=yes")
}
