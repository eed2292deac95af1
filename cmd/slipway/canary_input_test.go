// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const (
	shortTimeouts = "timeouts: {controlPlaneComponentHealthCheck: 100ms, kubeletHealthCheck: 100ms, kubernetesAPICall: 100ms, etcdAPICall: 100ms, tlsBootstrap: 100ms, discovery: 100ms}\n"

	canaryInit = `apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: 192.0.2.11}
nodeRegistration: {name: cp-1, criSocket: "unix:///run/nothing.sock", ignorePreflightErrors: [all]}
bootstrapTokens: [{token: ` + nodeToken + `}]
certificateKey: ` + certificateKey + `
` + shortTimeouts + `---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: v1.37.2
encryptionAlgorithm: ECDSA-P256
apiServer: {extraEnvs: [{name: A, value: ` + variable + `}]}
`
	canaryJoin = `apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
nodeRegistration: {name: cp-1, criSocket: "unix:///run/nothing.sock", ignorePreflightErrors: [all]}
discovery:
  bootstrapToken: {apiServerEndpoint: "` + stageServer + `", token: ` + discoveryToken + `, unsafeSkipCAVerification: true}
  tlsBootstrapToken: ` + bootstrapToken + `
controlPlane: {certificateKey: ` + certificateKey + `, localAPIEndpoint: {advertiseAddress: 192.0.2.11}}
` + shortTimeouts
	canaryReset = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ResetConfiguration\nforce: true\n"

	canaryDiscovery = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://198.51.100.1:6443"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
current-context: c
users: [{name: u, user: {token: ` + fileToken + `}}]
`
)

var stageFiles = map[string]string{
	"setup.yaml": strings.Replace(canaryInit, shortTimeouts, "", 1), "init.yaml": canaryInit, "join.yaml": canaryJoin, "reset.yaml": canaryReset,
	"all.yaml":       canaryInit + "---\n" + canaryJoin + "---\n" + canaryReset,
	"discovery.conf": canaryDiscovery, "token": nodeToken + "\n",
}

// badConfigs have secrets in the wrong place, or no secret in the right place.
var badConfigs = []string{
	strings.ReplaceAll(canaryInit, "192.0.2.11", nodeToken),
	strings.ReplaceAll(canaryInit, "name: cp-1", "name: "+nodeToken+", "+certificateKey+": "+discoveryToken),
	strings.ReplaceAll(canaryInit, certificateKey, certificateKey+"0"),
	strings.ReplaceAll(canaryInit, nodeToken, nodeToken+"0") + "networking: {serviceSubnet: " + nodeToken + ", dnsDomain: " + certificateKey + "}\n",
	strings.ReplaceAll(canaryInit, "kind: ClusterConfiguration", "kind: "+nodeToken),
	strings.ReplaceAll(canaryInit, "kubernetesVersion: v1.37.2", "kubernetesVersion: "+nodeToken+"\ncontrolPlaneEndpoint: "+nodeToken+"\nfeatureGates: {"+nodeToken+": true}"),
	canaryInit + "apiServer: {extraArgs: [{name: " + nodeToken + ", value: [" + certificateKey + "]}]}\ncertificatesDir: " + nodeToken + "\nimageRepository: " + nodeToken + "x y\n",
	canaryInit + "&" + nodeToken + " *" + nodeToken + ": %" + nodeToken + "\n\t" + certificateKey,
	strings.ReplaceAll(canaryJoin, stageServer, discoveryToken) + "skipPhases: [" + nodeToken + "]\ncaCertPath: " + nodeToken + "\n",
	strings.ReplaceAll(strings.ReplaceAll(canaryJoin, discoveryToken, discoveryToken+"0"), bootstrapToken, "["+bootstrapToken+"]"),
	strings.ReplaceAll(canaryReset, "force: true", "force: "+nodeToken+"\nunmountFlags: ["+nodeToken+"]\n"+nodeToken+": 1"),
	nodeToken,
}

// flagValues are the scan's values for flags that take a secret or lead a command to some.
var flagValues = map[string]string{
	"token": nodeToken, "discovery-token": discoveryToken, "tls-bootstrap-token": bootstrapToken, "certificate-key": certificateKey,
	"discovery-token-unsafe-skip-ca-verification": "true", "control-plane": "true", "upload-certs": "true", "print-join-command": "true",
	"apiserver-advertise-address": stageNode, "node-name": "cp-1", "ignore-preflight-errors": "all", "client-name": "somebody",
	"cri-socket": "unix:///run/nothing.sock", "force": "true", "new-config": "/tmp/out/new.yaml",
}

// noSecret are flags whose names only sound as if they took a secret.
var noSecret = regexp.MustCompile(`^(skip-(token|certificate-key)-print|token-ttl|token-file|discovery-token-ca-cert-hash|allow-missing-template-keys|public-key|sign-key|password-file)$`)

// givenFlags give a command its secrets, well-formed and malformed. A flag that sounds as if it took a secret must be known here.
func givenFlags(t *testing.T, cmd *cobra.Command) (right, malformed []string) {
	t.Helper()
	sounds := regexp.MustCompile(`token|key|secret|password`)
	visit := func(f *pflag.Flag) {
		value, known := flagValues[f.Name]
		switch {
		case !known && sounds.MatchString(f.Name) && !noSecret.MatchString(f.Name):
			t.Errorf("%s --%s: does it take a secret? Add it to flagValues or noSecret", cmd.CommandPath(), f.Name)
		case known:
			right = append(right, "--"+f.Name+"="+value)
			if sounds.MatchString(f.Name) {
				value += "0"
			}
			malformed = append(malformed, "--"+f.Name+"="+value)
		}
	}
	cmd.LocalFlags().VisitAll(visit)
	cmd.InheritedFlags().VisitAll(visit)
	switch {
	case strings.Contains(cmd.Use, "[TOKEN]"): // a token the cluster doesn't have
		right, malformed = append(right, bootstrapToken), append(malformed, nodeToken+"0")
	case strings.Contains(cmd.Use, "TOKEN"):
		right, malformed = append(right, nodeToken), append(malformed, nodeToken+"0")
	case strings.Contains(cmd.Use, "HOST:PORT"):
		right, malformed = append(right, stageServer), append(malformed, nodeToken+":x")
	}
	return right, malformed
}

func putInputs(t *testing.T) {
	t.Helper()
	for name, text := range stageFiles {
		put(t, filepath.Join(inputs, name), text, 0o600)
	}
}

// repeats answers with garbage that contains a server's secrets.
func repeats(w http.ResponseWriter, _ *http.Request, _ http.HandlerFunc) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"kind": "Secret", "apiVersion": "v1", "data": {"token-secret": ["`+nodeToken+`"]}, "`+certificateKey)
}
