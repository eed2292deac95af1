// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/lazyregexp"
	"github.com/slipway-k8s/slipway/manifests"
)

const (
	// starting is how long an API server may refuse everybody at its start, until it has written its default roles.
	starting = 20 * time.Second
	// refusing is how long a server that has started must refuse a kubelet, which asks again after seven seconds at most. Nodes'
	// rights don't depend on anything the server writes, and it learns of tokens and CAs within moments.
	refusing = 5 * time.Second
)

// unauthorized finds an API server that rejects requests without credentials, or the kubelet's.
func unauthorized(o *observation) []symptom {
	return append(o.probesRefused(), o.kubeletUnknown()...)
}

// hasDefaultRoles reports whether a default role lets everybody ask for the API server's health. The server writes it after its
// start, which takes a while on a slow host: until then, it forbids everything.
func (p *staticPod) hasDefaultRoles() bool {
	mode, given := p.args["authorization-mode"]
	_, file := p.args["authorization-config"]
	return !file && given && slices.Contains(strings.Split(mode, ","), "RBAC")
}

// probesRefused sends the API server the same request as the kubelet's probe.
func (o *observation) probesRefused() []symptom {
	p := o.pod(apiServerPod)
	if p == nil || !p.running() {
		return nil
	}
	base, found := manifests.ProbeBase(&p.spec)
	if !found || len(p.spec.LivenessProbe.HTTPGet.HTTPHeaders) > 0 { // the headers may hold a token
		return nil
	}
	url := base + p.spec.LivenessProbe.HTTPGet.Path
	answer, err := o.answerOf(url)
	if answer == nil {
		return nil
	}
	f := symptom{Finding: fault.Finding{Subject: apiServerPod, Evidence: []string{err.Error()}}}
	flags := []string{"anonymous-auth", "authentication-config"}
	switch answer.Status {
	case http.StatusUnauthorized:
		f.minDuration = 2 * time.Second
	case http.StatusForbidden:
		if p.hasDefaultRoles() {
			return nil
		}
		f.minDuration = starting
		flags = append(flags, "authorization-config", "authorization-mode")
	default:
		return nil
	}
	f.Message = fmt.Sprintf("refuses the kubelet's probes, which have no credentials, with status %d, so the kubelet will kill it", answer.Status)
	for _, flag := range flags {
		if value, given := p.args[flag]; given && (flag != "anonymous-auth" || value != "true") {
			f.Evidence = append(f.Evidence, fmt.Sprintf("%s: --%s=%s", p.path, flag, value))
		}
	}
	f.Remedy = "allow anonymous requests to /livez and /readyz, and to cluster-info: remove anonymous-auth from apiServer.extraArgs, or list these paths in the " +
		"AuthenticationConfiguration: https://kubernetes.io/docs/reference/access-authn-authz/authentication/#anonymous-requests; then run the same command again"
	return []symptom{f}
}

var credentialsRefused = lazyregexp.New(`(?:[Rr]egister node|certificate signing request).*Unauthorized`)

// kubeletUnknown skips an API server that isn't up: it may not have read its tokens and CAs yet.
func (o *observation) kubeletUnknown() []symptom {
	lines := o.repeatedLines(o.sources[0], credentialsRefused)
	server := o.serverOf()
	if len(lines) == 0 || server == "" || !o.isUp(server) {
		return nil
	}
	return []symptom{{minDuration: refusing, Finding: fault.Finding{
		Subject: kubeletName, Evidence: last(lines, 1),
		Message: "the API server at " + server + " does not accept its credentials",
		Remedy: "join again with a new token (`slipway token create --print-join-command` on a control plane); " +
			"if the CA for clients was replaced, put it into client-ca-file of every API server",
	}}}
}

// isUp reports whether an API server says it's ready, or rejects requests without credentials.
func (o *observation) isUp(server string) bool {
	answer, err := o.answerOf(server + "/readyz")
	return err == nil || answer != nil && (answer.Status == http.StatusUnauthorized || answer.Status == http.StatusForbidden)
}

// answerTimeout is how long a component may take to answer: much shorter than lookTimeout, as a look asks several times.
const answerTimeout = 5 * time.Second

// answerOf asks a server without credentials. answer is nil if all is well, or if there is no answer.
func (o *observation) answerOf(url string) (answer *host.ProbeError, err error) {
	ctx, cancel := context.WithTimeout(o.ctx, answerTimeout)
	defer cancel()
	_, err = o.h.Fetch(ctx, host.Probe{URL: url})
	errors.As(err, &answer)
	return answer, err
}

var (
	// nodeForbidden matches refusals to a kubelet that has its certificate, or asks for it.
	nodeForbidden = lazyregexp.New(`[Rr]egister node.*forbidden.*system:node:|certificate signing request.*forbidden`)
	// otherNode matches refusals to a kubelet with another node's certificate.
	otherNode = lazyregexp.New(`node \\*["']([^"'\\]+)\\*["'] (?:is not allowed to modify node|cannot read) \\*["']([^"'\\]+)`)
)

// forbidden finds an API server that gives nodes no rights.
func forbidden(o *observation) []symptom {
	lines := slices.DeleteFunc(o.repeatedLines(o.sources[0], nodeForbidden), func(line string) bool {
		return otherNode().MatchString(line) || strings.Contains(line, "not yet ready")
	})
	if len(lines) == 0 {
		return nil
	}
	f := symptom{minDuration: refusing, Finding: fault.Finding{Subject: kubeletName, Evidence: last(lines, 1)}}
	f.Message = "the API server denies the rights that a kubelet needs to register its node"
	f.Remedy = "each API server needs Node and RBAC in --authorization-mode (Node,RBAC is the default), or in its AuthorizationConfiguration: fix apiServer.extraArgs; " +
		"https://kubernetes.io/docs/reference/access-authn-authz/node/"
	if p := o.pod(apiServerPod); p != nil {
		if mode, given := p.args["authorization-mode"]; given {
			f.Evidence = append(f.Evidence, p.path+": --authorization-mode="+mode)
		}
	}
	return []symptom{f}
}

// nodeName finds a kubelet whose host was renamed after it got its certificate.
func nodeName(o *observation) []symptom {
	lines := o.repeatedLines(o.sources[0], otherNode)
	if len(lines) == 0 {
		return nil
	}
	m := otherNode().FindStringSubmatch(lines[len(lines)-1])
	certified, now := m[1], m[2]
	return []symptom{{minDuration: 5 * time.Second, Finding: fault.Finding{
		Subject: kubeletName, Evidence: last(lines, 1),
		Message: fmt.Sprintf("takes this host for node %s, but its certificate is of node %s, so the API server refuses it", now, certified),
		Remedy: fmt.Sprintf("give the host its name back (`hostnamectl set-hostname %s`) or the kubelet the flag --hostname-override=%s, and restart the kubelet; "+
			"to rename the node, delete Node %s, run `slipway reset` here, and join again", certified, certified, certified),
	}}}
}

// manifestTwice finds copies of manifests in the kubelet's directory. The kubelet reads every file there, whatever its name, and
// runs two Pods with the same name in turn, never together.
func manifestTwice(o *observation) []symptom {
	var found []symptom
	paths := map[string][]string{}
	for _, p := range o.pods {
		paths[p.pod] = append(paths[p.pod], p.path)
		if same := paths[p.pod]; len(same) == 2 {
			found = append(found, symptom{minDuration: never, Finding: fault.Finding{Subject: p.name}})
		}
	}
	for i := range found {
		same := paths[o.pod(found[i].Subject).pod]
		found[i].Message = "several files are the same Pod, and the kubelet changes between them: " + strings.Join(same, ", ")
		found[i].Remedy = "move the copies to another directory; a name that begins with a dot also hides a file from the kubelet"
	}
	return found
}
