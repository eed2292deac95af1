// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"context"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/dial"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
	"github.com/slipway-k8s/slipway/internal/lazyregexp"
)

const lookupTimeout = 3 * time.Second

var lookupFailed = lazyregexp.New(`lookup ([A-Za-z0-9][\w.-]*)(?: on \S+)?: `)

// nameUnknown looks up again the names a component couldn't resolve and, outside a wait, the names in kubeconfigs.
func nameUnknown(o *observation) []symptom {
	suspects := o.unresolvedNames()
	if !o.t.Waiting {
		for file, server := range o.servers() {
			if _, known := suspects[server]; !known && net.ParseIP(server) == nil {
				suspects[server] = []string{file + " names it"}
			}
		}
	}
	var found []symptom
	needed := o.neededNames()
	for _, name := range slices.Sorted(maps.Keys(suspects)) {
		err := o.resolve(name)
		if err == nil {
			continue
		}
		f := symptom{minDuration: never, Finding: fault.Finding{Subject: name, Evidence: suspects[name]}}
		f.Message = "this host cannot resolve the name: " + err.Error()
		f.Remedy = "add the name to /etc/hosts or to DNS, or fix /etc/resolv.conf; `getent hosts " + name + "` shows when it works"
		if strings.Contains(needed, "//"+name+":") {
			f.minDuration = unresolved(err)
		}
		found = append(found, f)
	}
	return found
}

// unresolvedNames maps names a component couldn't resolve to the lines that show it. Registries' names belong to another cause.
func (o *observation) unresolvedNames() map[string][]string {
	names := map[string][]string{}
	for _, src := range o.sources {
		for _, line := range matching(src.lines, lookupFailed) {
			if !pullFailed().MatchString(line) && !sandboxFailed().MatchString(line) {
				names[lookupFailed().FindStringSubmatch(line)[1]] = []string{src.subject + ": " + line}
			}
		}
	}
	return names
}

// unresolved returns how long a name must fail to resolve: shorter if a server denies it, longer if no server answers.
func unresolved(err error) time.Duration {
	var answer *net.DNSError
	if errors.As(err, &answer) && answer.IsNotFound {
		return 4 * time.Second
	}
	return 8 * time.Second
}

// neededNames returns the URLs a node can't work without: the API's in kubeconfigs, and etcd's, but no identity provider's.
func (o *observation) neededNames() string {
	var urls strings.Builder
	for _, server := range o.servers() {
		urls.WriteString("//" + server + ": ")
	}
	for _, p := range o.pods {
		switch p.name {
		case apiServerPod:
			urls.WriteString(p.args["etcd-servers"])
		case etcdPod:
			for _, value := range p.args {
				urls.WriteString(value + " ")
			}
		}
	}
	return urls.String()
}

// resolve looks up each name only once per look, as it takes long if no server answers.
func (o *observation) resolve(name string) error {
	if err, asked := o.resolved[name]; asked {
		return err
	}
	ctx, cancel := context.WithTimeout(o.ctx, lookupTimeout)
	defer cancel()
	_, err := o.h.LookupHost(ctx, name)
	o.resolved[name] = err
	return err
}

// kubeconfigs lists the files a node's components use to find the API.
func kubeconfigs() []string {
	return []string{"kubelet.conf", "bootstrap-kubelet.conf", "controller-manager.conf", "scheduler.conf", "admin.conf"}
}

// servers maps kubeconfigs' paths to the hosts they name.
func (o *observation) servers() map[string]string {
	hosts := map[string]string{}
	for _, name := range kubeconfigs() {
		path := filepath.Join(o.t.Kubeconfigs, name)
		data, err := o.h.ReadFile(path)
		if err != nil {
			continue
		}
		server, err := kubeconfig.URL(data)
		if u, parseErr := url.Parse(server); err == nil && parseErr == nil && u.Hostname() != "" {
			hosts[path] = u.Hostname()
		}
	}
	return hosts
}

var proxied = lazyregexp.New(`proxyconnect tcp|Proxy Authentication Required|socks connect`)

func proxy(o *observation) []symptom {
	var found []symptom
	for _, src := range o.sources {
		// A failed pull went through the runtime's proxy.
		lines := slices.DeleteFunc(o.repeatedLines(src, proxied), pullFailed().MatchString)
		if len(lines) == 0 {
			continue
		}
		where := "the environment of its static Pod, which comes from the command that wrote it"
		if src.subject == kubeletName {
			where = "the environment of its unit (`systemctl show -p Environment kubelet`)"
		}
		found = append(found, symptom{Finding: fault.Finding{
			Subject: src.subject, Evidence: last(lines, 1),
			Message: "sends requests to the cluster through a proxy (HTTPS_PROXY), which does not forward them",
			Remedy:  "add the addresses of the nodes and the networks of Pods and Services to NO_PROXY, or remove the proxy from " + where,
			// This ends a wait at once: the log has repeated it, and health endpoints don't show it.
		}})
	}
	return found
}

var (
	// failingOpen matches failures that the API server ignores.
	failingOpen = lazyregexp.New(`failing open`)
	// needsAPI matches requests a kubelet can't do without. Rejected events and mirror Pods do no harm.
	needsAPI = lazyregexp.New(`[Rr]egister node|certificate signing request|signed certificate`)
)

var webhookFailed = lazyregexp.New(`failed calling webhook \\*"([^"\\]+)|admission webhook \\*"([^"\\]+)\\*" denied`)

func webhook(o *observation) []symptom {
	var found []symptom
	for _, src := range o.sources {
		lines := slices.DeleteFunc(o.repeatedLines(src, webhookFailed), failingOpen().MatchString)
		if len(lines) == 0 {
			continue
		}
		m := webhookFailed().FindStringSubmatch(lines[len(lines)-1])
		name := m[1] + m[2]
		f := symptom{minDuration: never, Finding: fault.Finding{
			Subject: src.subject, Evidence: last(lines, 1),
			Message: "the admission webhook " + name + " fails or rejects its requests to the API server",
			Remedy: "check that the webhook's Pods run; or find it with `kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations` " +
				"and exclude this kind of object, set failurePolicy: Ignore, or delete it",
		}}
		if src.subject == kubeletName && needsAPI().MatchString(lines[len(lines)-1]) {
			f.minDuration = 3 * time.Second
		}
		found = append(found, f)
	}
	return found
}

// serverOf returns the API's URL from the kubelet's kubeconfig.
func (o *observation) serverOf() string {
	for _, name := range []string{"kubelet.conf", "bootstrap-kubelet.conf"} {
		data, err := o.h.ReadFile(filepath.Join(o.t.Kubeconfigs, name))
		if err != nil {
			continue
		}
		if server, err := kubeconfig.URL(data); err == nil {
			return strings.TrimSuffix(server, "/")
		}
	}
	return ""
}

// unreachable matches requests of the kubelet that nobody has answered.
var unreachable = lazyregexp.New(`dial tcp \S+: (?:i/o timeout|connect: )|TLS handshake timeout|Client\.Timeout exceeded|context deadline exceeded`)

// apiServerUnreachable asks the API server of a kubelet that uses another host's, or a load balancer. In a wait, the kubelet has to
// complain first: the API server may have a moment without an answer.
func apiServerUnreachable(o *observation) []symptom {
	server := o.serverOf()
	u, err := url.Parse(server)
	if err != nil || u.Hostname() == "" || o.isThisHost(u.Hostname()) {
		return nil
	}
	lines := mentioning(o.repeatedLines(o.sources[0], unreachable), u.Host)
	if o.t.Waiting && len(lines) == 0 {
		return nil
	}
	_, err = o.answerOf(server + "/readyz")
	if !isUnreachable(err) {
		return nil
	}
	f := symptom{minDuration: never, Finding: fault.Finding{Subject: u.Host, Evidence: append(last(lines, 1), err.Error())}}
	switch {
	case errors.As(err, new(dial.RefusedError)):
		f.Message = "a host has the address of the API server, but nothing listens there"
		f.Remedy = "see if the API server runs there (`slipway diagnose` on that host); if the address is a load balancer's, see if it runs, and has servers that work"
	case errors.As(err, new(dial.SilentError)):
		f.Message = "nobody answers at the address of the API server"
		f.Remedy = "see if that host is on, if this host has a route there (`ip route get`), and if a firewall on the way drops TCP to this port; a virtual address needs a host that has it"
	default:
		f.Message = "the API server does not answer this host"
		f.Remedy = "see if the API server works (`slipway diagnose` on a control plane), and what is on the way: a firewall, a proxy, or a load balancer without a server that works"
	}
	return []symptom{f}
}

// isThisHost reports whether a name or address leads here; a name that doesn't resolve leads nowhere.
func (o *observation) isThisHost(name string) bool {
	own, err := o.h.Addresses()
	if err != nil {
		return true // it isn't known
	}
	addresses := []netip.Addr{}
	if ip, err := netip.ParseAddr(name); err == nil {
		addresses = append(addresses, ip)
	} else {
		ctx, cancel := context.WithTimeout(o.ctx, lookupTimeout)
		defer cancel()
		if addresses, err = o.h.LookupHost(ctx, name); err != nil {
			return false
		}
	}
	return slices.ContainsFunc(addresses, func(a netip.Addr) bool { return a.IsLoopback() || slices.Contains(own, a.Unmap()) })
}
