// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"context"
	"errors"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/kubeconfig"
)

// lookupTime bounds the resolution of a name.
const lookupTime = 3 * time.Second

var lookupFailed = lazy(`lookup ([A-Za-z0-9][\w.-]*)(?: on \S+)?: `)

// nameUnknown resolves the names again that somebody could not resolve, and
// without a wait those of the kubeconfigs, too. Names of registries belong to
// another cause.
func nameUnknown(s *scene) []Finding {
	said := map[string]Finding{}
	var names []string
	for _, src := range s.sources {
		for _, line := range matching(src.lines, lookupFailed) {
			if pullFailed().MatchString(line) || sandboxFailed().MatchString(line) {
				continue
			}
			name := lookupFailed().FindStringSubmatch(line)[1]
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
			said[name] = Finding{Subject: name, Evidence: []string{src.subject + ": " + line}}
		}
	}
	if !s.t.Waiting {
		for file, server := range s.servers() {
			if net.ParseIP(server) == nil && !slices.Contains(names, server) {
				names = append(names, server)
				said[server] = Finding{Subject: server, Evidence: []string{file + " names it"}}
			}
		}
	}
	slices.Sort(names)
	var found []Finding
	needed := s.neededNames()
	for _, name := range names {
		err := s.resolve(name)
		if err == nil {
			continue
		}
		f := said[name]
		f.Message = "this host cannot resolve the name: " + err.Error()
		f.Next = "add the name to /etc/hosts or to DNS, or fix /etc/resolv.conf; `getent hosts " + name + "` shows when it works"
		f.lasts = never
		if strings.Contains(needed, "//"+name+":") {
			f.lasts = unresolved(err)
		}
		found = append(found, f)
	}
	return found
}

// unresolved is for how long a name must not resolve: a server that says that
// it does not know it is believed sooner than one that says nothing.
func unresolved(err error) time.Duration {
	var answer *net.DNSError
	if errors.As(err, &answer) && answer.IsNotFound {
		return 4 * time.Second
	}
	return 8 * time.Second
}

// neededNames are the URLs without which there is no node: those of the API in
// kubeconfigs, and of etcd. Whatever else a component asks for, such as an
// identity provider, it starts without.
func (s *scene) neededNames() string {
	var urls strings.Builder
	for _, server := range s.servers() {
		urls.WriteString("//" + server + ": ")
	}
	for _, p := range s.pods {
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

// resolve asks once a look: where no server answers, it takes its time.
func (s *scene) resolve(name string) error {
	if err, asked := s.resolved[name]; asked {
		return err
	}
	ctx, cancel := context.WithTimeout(s.ctx, lookupTime)
	defer cancel()
	_, err := s.h.LookupHost(ctx, name)
	s.resolved[name] = err
	return err
}

// kubeconfigs are the files by which a node's components find the API.
func kubeconfigs() []string {
	return []string{"kubelet.conf", "bootstrap-kubelet.conf", "controller-manager.conf", "scheduler.conf", "admin.conf"}
}

// servers are the hosts that the kubeconfigs name, by file.
func (s *scene) servers() map[string]string {
	hosts := map[string]string{}
	for _, name := range kubeconfigs() {
		path := filepath.Join(s.t.Kubeconfigs, name)
		data, err := s.h.ReadFile(path)
		if err != nil {
			continue
		}
		server, _, err := kubeconfig.Server(data)
		if u, parseErr := url.Parse(server); err == nil && parseErr == nil && u.Hostname() != "" {
			hosts[path] = u.Hostname()
		}
	}
	return hosts
}

var proxied = lazy(`proxyconnect tcp|Proxy Authentication Required|socks connect`)

func proxy(s *scene) []Finding {
	var found []Finding
	for _, src := range s.sources {
		// What the kubelet says of a pull, the runtime has said.
		lines := slices.DeleteFunc(s.insists(src, proxied), pullFailed().MatchString)
		if len(lines) == 0 {
			continue
		}
		where := "the environment of its static Pod, which has that of the command that wrote it"
		if src.subject == kubeletName {
			where = "the environment of its unit (`systemctl show -p Environment kubelet`)"
		}
		found = append(found, Finding{
			Subject: src.subject, Message: "it asks through a proxy (HTTPS_PROXY), which does not pass it on", Evidence: last(lines, 1),
			Next: "put the addresses of the nodes and the networks of Pods and Services into NO_PROXY, or take the proxy out of " + where,
			// It insists on it, and health endpoints do not show it: the wait
			// may be over soon.
		})
	}
	return found
}

var (
	// failingOpen are failures that the API server goes on without.
	failingOpen = lazy(`failing open`)
	// needsAPI are words on what a kubelet cannot do without. Events, and the
	// images of its static Pods in the API, are refused without harm.
	needsAPI = lazy(`[Rr]egister node|certificate signing request|signed certificate`)
)

var webhookFailed = lazy(`failed calling webhook \\*"([^"\\]+)|admission webhook \\*"([^"\\]+)\\*" denied`)

func webhook(s *scene) []Finding {
	var found []Finding
	for _, src := range s.sources {
		lines := slices.DeleteFunc(s.insists(src, webhookFailed), failingOpen().MatchString)
		if len(lines) == 0 {
			continue
		}
		m := webhookFailed().FindStringSubmatch(lines[len(lines)-1])
		name := m[1] + m[2]
		f := Finding{
			Subject: src.subject, Message: "the API server asks the admission webhook " + name + " first, which fails or refuses", Evidence: last(lines, 1),
			Next: "see that its Pods run; or find it with `kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations`, " +
				"let it leave this kind of object out or set failurePolicy: Ignore, or delete it",
			lasts: never,
		}
		if src.subject == kubeletName && needsAPI().MatchString(lines[len(lines)-1]) {
			f.lasts = 3 * time.Second
		}
		found = append(found, f)
	}
	return found
}

// serverOf reads the API's URL from the kubelet's kubeconfig.
func (s *scene) serverOf() string {
	for _, name := range []string{"kubelet.conf", "bootstrap-kubelet.conf"} {
		data, err := s.h.ReadFile(filepath.Join(s.t.Kubeconfigs, name))
		if err != nil {
			continue
		}
		if server, _, err := kubeconfig.Server(data); err == nil {
			return strings.TrimSuffix(server, "/")
		}
	}
	return ""
}
