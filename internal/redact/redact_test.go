// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"encoding/base64"
	"strings"
	"testing"
)

const (
	hex64 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	key   = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIcanary\n-----END EC PRIVATE KEY-----\n"
	jwt   = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJjYW5hcnkifQ.c2lnbmF0dXJlY2FuYXJ5"
)

func TestText(t *testing.T) {
	for name, test := range map[string]struct{ in, want string }{
		"nothing":        {"the kubelet is healthy", "the kubelet is healthy"},
		"a key":          {"a\n" + key + "b", "a\n-----BEGIN EC PRIVATE KEY-----[redacted]\nb"},
		"a key cut off":  {key[:50], "-----BEGIN EC PRIVATE KEY-----[redacted]"},
		"a certificate":  {"-----BEGIN CERTIFICATE-----\nMII\n", "-----BEGIN CERTIFICATE-----\nMII\n"},
		"base64 of keys": {"x: " + base64.StdEncoding.EncodeToString([]byte(key)), "x: [redacted]=="},
		"a token":        {"token abcdef.0123456789abcdef!", "token abcdef.[redacted]!"},
		"no token":       {"file.0123456789abcdefg", "file.0123456789abcdefg"},
		"a JWT":          {"got " + jwt, "got [redacted]"},
		"a header":       {"Authorization: Bearer abcdefgh12345", "Authorization: [redacted]"},
		"a proxy":        {"HTTPS_PROXY=http://me:hunter2@proxy:3128", "HTTPS_PROXY=http://[redacted]@proxy:3128"},
		"a bare proxy":   {"HTTPS_PROXY=me:hunter2@proxy:3128 https_proxy: me:hunter2@proxy", "HTTPS_PROXY=[redacted]@proxy:3128 https_proxy: [redacted]@proxy"},
		"proxy in JSON":  {`{"name":"HTTP_PROXY","value":"me:hunt/er2@proxy"}`, `{"name":"HTTP_PROXY","value":"[redacted]@proxy"}`},
		"proxy in YAML":  {"- name: HTTP_PROXY\n  value: http://me:hunt@er2@proxy\n", "- name: HTTP_PROXY\n  value: http://[redacted]@proxy\n"},
		"user and host":  {"dial me:hunter2@proxy:3128", "dial [redacted]@proxy:3128"},
		"any character":  {"through http://me:hunt#er2@proxy:3128 or http://me:hunt/er2@proxy:3128", "through http://[redacted]@proxy:3128 or http://[redacted]@proxy:3128"},
		"an image":       {"nginx:1.2@sha256:" + hex64, "nginx:1.2@sha256:" + hex64},
		"a URL":          {"https://api.example.org:6443/x@y", "https://api.example.org:6443/x@y"},
		"a flag":         {"--discovery-token=secret1 --v=3", "--discovery-token=[redacted] --v=3"},
		"flag and value": {"--certificate-key secret1 x", "--certificate-key [redacted] x"},
		"any flag":       {"--client-secret hunter2 --v=3", "--client-secret [redacted] --v=3"},
		"flag in quotes": {`--password "a hunter2" x`, `--password [redacted] x`},
		"flag in JSON":   {`["--client-secret","hunter2","x"]`, `["--client-secret",[redacted],"x"]`},
		"flag in a list": {"- --password\n- hunter2\n- x", "- --password\n- [redacted]\n- x"},
		"flag of a file": {"--token-auth-file=/etc/tokens --service-account-key-file=/sa.pub", "--token-auth-file=/etc/tokens --service-account-key-file=/sa.pub"},
		"TOML":           {`password = "hunter2"`, `password = [redacted]`},
		"JSON":           {`{"token":"hunter2","a":1}`, `{"token":[redacted],"a":1}`},
		"JSON in a line": {`body="{\"secretKey\":\"hunter2\",\"a\":1}"`, `body="{\"secretKey\":[redacted]\",\"a\":1}"`},
		"a switch":       {"--enable-bootstrap-token-auth=true automountServiceAccountToken: false", "--enable-bootstrap-token-auth=true automountServiceAccountToken: false"},
		"a hex key":      {"key " + hex64, "key [redacted]"},
		"a digest":       {"image@sha256:" + hex64, "image@sha256:" + hex64},
		"a container":    {"container " + strings.Repeat("a", 64), "container " + strings.Repeat("a", 64)},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Text(test.in, strings.Repeat("a", 64)); got != test.want {
				t.Errorf("%q is shown as %q, want %q", test.in, got, test.want)
			}
		})
	}
}

func TestYAML(t *testing.T) {
	in := `apiVersion: v1
kind: Config
users:
- name: a
  user: {client-certificate-data: Q0VSVA==, client-key-data: canary1, token: canary2, password: canary3, username: canary4}
- name: b
  user: {exec: {command: get, env: [{name: X, value: canary5}, {name: https_proxy, value: "http://u:canary6@p:1"}]}, tokenFile: /var/token}
---
apiVersion: v1
kind: Secret
metadata: {name: s, annotations: {kubectl.kubernetes.io/last-applied-configuration: canary7}}
data: {a: canary8}
stringData: {b: canary9}
---
kind: InitConfiguration
certificateKey: canary10
bootstrapTokens: [{token: abcdef.0123456789abcdef}]
---
[not YAML: canary11
`
	got := string(YAML([]byte(in)))
	if strings.Contains(got, "canary") || strings.Contains(got, "0123456789abcdef") {
		t.Errorf("shows a secret:\n%s", got)
	}
	for _, kept := range []string{"client-certificate-data: Q0VSVA==", "tokenFile: /var/token", "# [redacted]: ", "kind: Config"} {
		if !strings.Contains(got, kept) {
			t.Errorf("lacks %q:\n%s", kept, got)
		}
	}
}

// TestYAMLArguments: a secret may be the item after its flag. If a program gets credentials, any argument may be secret.
func TestYAMLArguments(t *testing.T) {
	in := `kind: Pod
spec:
  containers:
  - command: [run, --client-secret, canary1, --v=2, "--password=canary2, canary3", --secret-key]
    args: [--token, --password, canary4, --private-key, /canary5, --config=/etc/x]
    env: [{name: PATH, value: /bin}, {name: NO_PROXY, value: "a,b"}, {name: A, value: canary15}, {name: https_proxy, value: "http://u:canary16@p:1"}, {name: KUBELET_X_ARGS, value: --password canary6 --v=4}]
---
kind: Config
users:
- name: a
  user: {exec: {command: get, args: [get-token, --client-secret, canary7, --user=canary8, -pcanary9, canary10]}}
- name: b
  user: {auth-provider: {name: oidc, config: {extra: canary11}}}
---
kind: KubeletConfiguration
staticPodURLHeader: {Authorization: [canary12]}
---
kind: ClusterConfiguration
apiServer: {extraArgs: [{name: client-secret, value: canary13}, {name: v, value: "5"}], extraEnvs: [{name: A, value: canary14}]}
`
	got := string(YAML([]byte(in)))
	if strings.Contains(got, "canary") {
		t.Errorf("shows a secret:\n%s", got)
	}
	for _, kept := range []string{"- run\n", "--v=2", "--config=/etc/x", "value: /bin", "value: a,b", "http://[redacted]@p:1", "--v=4", "--client-secret", "--password=[redacted]", "Authorization:", "name: KUBELET_X_ARGS"} {
		if !strings.Contains(got, kept) {
			t.Errorf("lacks %q:\n%s", kept, got)
		}
	}
}

func TestUnit(t *testing.T) {
	for name, test := range map[string]struct{ in, want string }{
		"flags":         {`Environment="KUBELET_CONFIG_ARGS=--config=/x --password canary"`, `Environment="KUBELET_CONFIG_ARGS=--config=/x --password [redacted]"`},
		"any":           {"[Service]\nEnvironment=APP=canary\nType=notify\n", "[Service]\nEnvironment=APP=[redacted]\nType=notify\n"},
		"blanks":        {" Environment = APP = canary", "Environment=[redacted]"},
		"blanks around": {"Environment = APP=canary", "Environment=APP=[redacted]"},
		"a proxy":       {"Environment=HTTPS_PROXY=http://u:canary@p:1 B=canary", "Environment=HTTPS_PROXY=http://[redacted]@p:1 B=[redacted]"},
		"a bare proxy":  {"Environment='https_proxy=u:can#ary@p'", "Environment='https_proxy=[redacted]@p'"},
		"behind a path": {`Environment=PATH=/bin "B=canary canary" C='canary canary'`, `Environment=PATH=/bin "B=[redacted]" C='[redacted]'`},
		"continued":     {"Environment=PATH=/bin \\\n# note\n  B=canary \\\n  C=canary\nType=e", "# comments: [redacted]\nEnvironment=PATH=/bin B=[redacted] C=[redacted]\nType=e"},
		"never ends":    {"Environment=B=canary \\", "Environment=[redacted]"},
		"open quote":    {`Environment=PATH=/bin "B=canary canary`, `Environment=PATH=/bin "B=[redacted]`},
		"a comment":     {"# Environment=B=canary \\\nEnvironment=C=canary", "# comments: [redacted]\nEnvironment=C=[redacted]"},
		"a command":     {"ExecStart=/bin/x --password \\\n canary $A", "ExecStart=/bin/x --password [redacted] $A"},
		"files":         {"EnvironmentFile=-/etc/default/kubelet", "EnvironmentFile=-/etc/default/kubelet"},
		"several":       {`Environment=GOMAXPROCS=2 A=canary "B=canary canary" LANG=C`, `Environment=GOMAXPROCS=2 A=[redacted] "B=[redacted]" LANG=C`},
		"any path":      {"Environment=X_PATH=/canary X_ARGS=canary", "Environment=X_PATH=[redacted] X_ARGS=[redacted]"},
		"broken value":  {"Environment=HTTP_PROXY=http://u:12 canary@p:1", "Environment=[redacted]"},
		"a proxy's end": {"Environment=HTTP_PROXY=http://p:1/canary", "Environment=HTTP_PROXY=[redacted]"},
		"commented":     {"#Environment=PATH=/bin \\\n#  B=canary\nType=e", "# comments: [redacted]\nType=e"},
		"badly joined":  {"Description=a \\ \n  B=canary", "Description=a \\\n[redacted]"},
		"not joined":    {"  B=canary\ncanary\nhttp_proxy=canary canary", "[redacted]\n[redacted]\n[redacted]"},
		"names only":    {"PassEnvironment=A B=canary", "PassEnvironment=A B=[redacted]"},
		"unset":         {"UnsetEnvironment=A=canary", "UnsetEnvironment=A=[redacted]"},
		"credential":    {"SetCredential=a:canary", "SetCredential=[redacted]"},
		"input":         {"StandardInputData=Y2FuYXJ5", "StandardInputData=[redacted]"},
		"before it":     {"ExecStart=/usr/bin/env A=canary PATH=/bin kubelet --v=2", "ExecStart=/usr/bin/env A=[redacted] PATH=/bin kubelet --v=2"},
		"a shell":       {`ExecStart=/bin/sh -c "A='canary canary' exec kubelet --token canary"`, "ExecStart=/bin/sh -c \"A='[redacted]"},
		"flag with one": {"ExecStart=/bin/x --env=A_B=canary -eCD=canary --feature-gates=EtcdX=true", "ExecStart=/bin/x --env=[redacted] -eCD=[redacted] --feature-gates=EtcdX=true"},
		"kubelet":       {"ExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_EXTRA_ARGS", "ExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_EXTRA_ARGS"},
		"base64":        {"# QUtJQcanary==", "# comments: [redacted]\n"},
		"emptied":       {"Environment=\n", "Environment=\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Unit(test.in); got != test.want {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}

func TestVariables(t *testing.T) {
	for name, test := range map[string]struct{ in, want string }{
		"any":            {"AWS_SECRET_ACCESS_KEY=canary\nexport B = canary", "AWS_SECRET_ACCESS_KEY=[redacted]\nB=[redacted]\n"},
		"flags":          {"KUBELET_EXTRA_ARGS=--token=canary --client-secret canary --v=2\n", "KUBELET_EXTRA_ARGS=--token=[redacted] --client-secret [redacted] --v=2\n"},
		"quoted flags":   {`KUBELET_KUBEADM_ARGS="--node-ip=192.0.2.1 --password 'a canary'"`, `KUBELET_KUBEADM_ARGS="--node-ip=192.0.2.1 --password [redacted] [redacted]"` + "\n"},
		"paths, proxies": {"PATH=/bin\nHTTP_PROXY=u:canary@p:1\nno_proxy=a,b\n", "PATH=/bin\nHTTP_PROXY=[redacted]@p:1\nno_proxy=a,b\n"},
		"on one line":    {"PATH=/bin B=canary\nHTTP_PROXY=http://p B=canary\n", "PATH=[redacted]\nHTTP_PROXY=[redacted]\n"},
		"continued":      {"KUBELET_A_ARGS=--v=2 \\\n --password \\\n canary\nB=a\\\ncanary\n", "KUBELET_A_ARGS=--v=2 --password [redacted]\nB=[redacted]\n"},
		"in quotes":      {"A=\"a\ncanary\"\nB_ARGS='--v\ncanary'\n", "A=\"[redacted]\"\nB_ARGS='[redacted]'\n"},
		"an apostrophe":  {"A_ARGS=it's\nB=canary\n", "A_ARGS=[redacted]\n"},
		"a comment":      {"# don't\n#B=canary\n; note\n\nC=canary\n", "# comments: [redacted]\nC=[redacted]\n"},
		"any path":       {"X_PATH=/canary\nX_ARGS=--v=canary\npath=canary\n", "X_PATH=[redacted]\nX_ARGS=[redacted]\npath=[redacted]\n"},
		"operands":       {"KUBELET_EXTRA_ARGS=--v=2 canary $MORE --v 3 canary B=canary\n", "KUBELET_EXTRA_ARGS=--v=2 [redacted] $MORE --v 3 [redacted] [redacted]\n"},
		"escaped":        {`KUBELET_EXTRA_ARGS=--password\ canary\x20canary`, "KUBELET_EXTRA_ARGS=[redacted] [redacted]\n"},
		"its headers":    {"KUBELET_EXTRA_ARGS=--manifest-url-header=X:canary --v=2\n", "KUBELET_EXTRA_ARGS=--manifest-url-header=[redacted] --v=2\n"},
		"two quoted":     {`KUBELET_EXTRA_ARGS="--a=b" --password "canary"`, `KUBELET_EXTRA_ARGS="--a=b" --password [redacted]"` + "\n"},
		"long comment":   {"#A=\"a\n#canary\n#cANARY==\n", "# comments: [redacted]\n"},
		"harmless":       {"LANG=C\nTZ='Europe/Paris'\nGOMAXPROCS=2\nGODEBUG=a=1,b=0\nNO_PROXY=10.0.0.0/8,.svc\nEMPTY=\n", "LANG=C\nTZ='Europe/Paris'\nGOMAXPROCS=2\nGODEBUG=a=1,b=0\nNO_PROXY=10.0.0.0/8,.svc\nEMPTY=\n"},
		"not their form": {"LANG=C canary\nGODEBUG=canary\nTZ=a;B=canary\n", "LANG=[redacted]\nGODEBUG=[redacted]\nTZ=[redacted]\n"},
		"an end":         {"canary\nB=canary\n", "[redacted]\nB=[redacted]\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Variables(test.in); got != test.want {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}

func TestProxy(t *testing.T) {
	for in, want := range map[string]string{
		"":                                  "",
		"http://proxy:3128":                 "http://proxy:3128",
		"http://u:hunter2@proxy:3128":       "http://[redacted]@proxy:3128",
		"u:hunter2@proxy:3128":              "[redacted]@proxy:3128",
		"hunter2@proxy":                     "[redacted]@proxy",
		"HTTPS://u:hunt/#?@er2@proxy":       "HTTPS://[redacted]@proxy",
		"u:hunter2://@proxy":                "[redacted]@proxy",
		"http://http://u:hunt#er2@proxy:12": "http://[redacted]@proxy:12",
	} {
		if got := Proxy(in); got != want {
			t.Errorf("%q is shown as %q, want %q", in, got, want)
		}
	}
}

// FuzzText looks for surroundings that reveal a secret.
func FuzzText(f *testing.F) {
	f.Add("token=", "&x")
	f.Add("\"", "\\n")
	f.Add("--token ", "")
	f.Fuzz(func(t *testing.T, before, after string) {
		for _, secret := range []string{"\nabcdef.0123456789abcdef\n", " " + hex64 + " ", "\n" + key} {
			text := Text(before + secret + after)
			for _, part := range []string{"0123456789abcdef0123456789", ".0123456789abcdef", "IcanaryX"[:7]} {
				if strings.Contains(text, part) && !strings.Contains(before+after, part) && !strings.Contains(before, "sha256:") && !hexID().MatchString(before+" ") {
					t.Errorf("%q is shown as %q", before+secret+after, text)
				}
			}
		}
	})
}

// FuzzEnvironment looks for values revealed by the text around them. Text before them may turn the line into something other than
// an assignment.
func FuzzEnvironment(f *testing.F) {
	f.Add("PATH=/bin ", "\nB=c")
	f.Add("# it's \\\n", "")
	f.Add("A_ARGS=--v=2 \\\n\"", "\"")
	f.Fuzz(func(t *testing.T, before, after string) {
		for _, line := range []string{"Environment=B=canary123", "Environment = \"B=canary123\""} {
			if text := Unit(before + "\n" + line + "\n" + after); strings.Contains(text, "canary123") && !strings.Contains(before+after, "canary") && !strings.HasSuffix(strings.TrimRight(before, " \t\r\n"), `\`) {
				t.Errorf("%q and %q show %q", before, line, text)
			}
		}
		if text := Variables(before + "\nB=canary123\n" + after); strings.Contains(text, "canary123") && !strings.ContainsAny(before, "'\"\\") {
			t.Errorf("%q shows %q", before, text)
		}
	})
}
