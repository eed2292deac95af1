// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"encoding/base64"
	"strings"
	"testing"
)

const awsSecret = "u8Vp0Yk3Q1z9fLw7XbT2nGc5RrHsEaJdMiKqOo4P"

// TestTextHides: the canary, or the row's secret, is hidden, and the words around it stay.
func TestTextHides(t *testing.T) {
	for name, test := range map[string]struct{ in, secret, stays string }{
		"a cookie":             {"Cookie: a=1; session=canary", "canary", "Cookie: "},
		"a cookie with quotes": {`Set-Cookie: a="canary"; Path=/; b=canary`, "canary", "Set-Cookie: "},
		"curl with a cookie":   {`curl -H "Cookie: a=\"canary\"; b=canary" https://x/y`, "canary", "curl -H "},
		"curl, single quotes":  {`curl -H 'Authorization: Basic canary' https://x/y`, "canary", "curl -H "},
		"curl with a user":     {`curl -u me:canary https://x/y`, "canary", "https://x/y"},
		"curl, quoted user":    {`curl --user "me:can canary" https://x/y`, "canary", "https://x/y"},
		"headers of Go":        {"map[Accept:[*/*] Authorization:[Bearer canary] Cookie:[canary]]", "canary", "Accept"},
		"a list of headers":    {`{"Authorization":["Negotiate canary"],"Set-Cookie":["canary","b=canary"],"Accept":["*/*"]}`, "canary", "Accept"},
		"headers in a string":  {`msg="{\"authorization\":\"canary \\\"canary\"}"`, "canary", "msg="},
		"any header's name":    {"AUTHORIZATION:canary", "canary", "AUTHORIZATION"},
		"of HTTP/2":            {`header "authorization" = "canary canary"`, "canary", "header"},
		"a header for GitLab":  {"PRIVATE-TOKEN: canary", "canary", "PRIVATE"},
		"a header for AWS":     {"X-Amz-Security-Token: canary", "canary", "X-Amz"},
		"bearer":               {"sent bearer can4ry00 to it", "can4ry00", "sent bearer "},
		"a signed URL of AWS":  {"GET https://b.s3.amazonaws.com/k?X-Amz-Expires=60&X-Amz-Signature=canary", "canary", "https://b.s3.amazonaws.com/k?"},
		"a signed URL, Azure":  {"https://a.blob.core.windows.net/c?sv=2022-11-02&se=x&sig=can%2Bcanary%3D", "canary", "sv=2022-11-02"},
		"an Azure account":     {"DefaultEndpointsProtocol=https;AccountName=a;AccountKey=canary==;x", "canary", "AccountName=a"},
		"an Azure key":         {"found " + strings.Repeat("Canary0+", 10) + "canary== there", "anary", " there"},
		"an AWS secret":        {"key " + awsSecret + " is", awsSecret, " is"},
		"two AWS secrets":      {awsSecret + " " + awsSecret, awsSecret, " "},
		"a user in a URL":      {"cloned https://canary@git.example.org/x", "canary", "@git.example.org/x"},
		"a name in capitals":   {"export MY_API_KEY=canary,canary x", "canary", "export MY_API_KEY="},
		"an unclosed quote":    {`password="can canary`, "canary", "password="},
		"an escaped quote":     {`{"password":"a\"canary","b":1}`, "canary", `"b":1`},
		"a backslash":          {`password=a\canary`, "canary", "password="},
		"a list of tokens":     {`"tokens":["canary", "canary"],"b":1`, "canary", `"b":1`},
		"a numeric password":   {"password: 12345678", "12345678", "password: "},
		"a path it is not":     {"secretKey=/cab/canary", "canary", "secretKey="},
		"one dash":             {"run -password canary x", "canary", " x"},
		"registry in Go":       {"AuthConfig{Username:me,Password:canary,Auth:canary,IdentityToken:canary}", "canary", "Username:me"},
		"registry in TOML":     {`auth = "canary"`, "canary", "auth = "},
		"registry login":       {"docker login -u me -p canary reg", "canary", "docker login"},
		"variables in JSON":    {`{"name":"MY_VAR","value":"canary"},{"name":"PATH","value":"/bin"}`, "canary", `"/bin"`},
		"variables in Go":      {"EnvVar{Name:MY_VAR,Value:can canary,ValueFrom:nil,}", "canary", "ValueFrom:nil"},
		"variables of etcd":    {`{"msg":"used","variable-name":"ETCD_X","variable-value":"canary"}`, "canary", "ETCD_X"},
		"key without its head": {"MHcCAQEEIcanaryAbcdef\nMHcCcanary\n-----END EC PRIVATE KEY-----\nb", "canary", "\nb"},
		"a random word":        {"got Xq3vT9bLm2Rz7KpWc4Ys8NdJ1 now", "Xq3vT9bLm2Rz7KpWc4Ys8NdJ1", " now"},
		"one behind a path":    {"/secrets/of/the/cluster/Xq3vT9bLm2Rz7KpWc4Ys8NdJ1", "Xq3vT9bLm2Rz7KpWc4Ys8NdJ1", ""},
		"base64 of words":      {"got " + base64.StdEncoding.EncodeToString([]byte("nothing but canary words")), "Y2FuYXJ5", "got "},
		"base64 in lines":      {base64.StdEncoding.EncodeToString([]byte(key))[:64] + "\n  " + base64.StdEncoding.EncodeToString([]byte(key))[64:], base64.StdEncoding.EncodeToString([]byte(key))[68:80], ""},
		"base64 of any text":   {base64.StdEncoding.EncodeToString([]byte("passwörter: müllcanary")), "Y2FuYXJ5", ""},
		"base64 of a token":    {"x " + base64.StdEncoding.EncodeToString([]byte("my token: canary000")), "Y2FuYXJ5", "x "},
		"base64 of base64":     {base64.StdEncoding.EncodeToString([]byte("b: " + base64.StdEncoding.EncodeToString([]byte(`{"password":"canary0"}`)))), "WTJ", ""},
		"base64 of a user":     {`config: {"x":"` + base64.StdEncoding.EncodeToString([]byte("someuser:canary")) + `"}`, "YXJ5", "config"},
		"base64 behind a path": {"/a/b/" + base64.StdEncoding.EncodeToString([]byte("-----BEGIN PRIVATE KEY-----\ncanary")), "LS0t", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := Text(test.in)
			if strings.Contains(got, test.secret) || !strings.Contains(got, test.stays) {
				t.Errorf("%q is shown as %q", test.in, got)
			}
			if again := Text(got); again != got {
				t.Errorf("%q is shown as %q at first, then as %q", test.in, got, again)
			}
		})
	}
}

// TestTextKeeps: words people need to understand a node stay, even if they're long and look random.
func TestTextKeeps(t *testing.T) {
	id := strings.Repeat("0123456789abcdef", 4)
	for name, text := range map[string]string{
		"container ID":     `"Container not found" containerID="containerd://` + id + `" and ` + id,
		"containerd's log": `msg="StartContainer for \"` + id + `\" returns successfully"`,
		"a sandbox":        `msg="RunPodSandbox returns sandbox id \"` + id + `\""`,
		"a shim":           `msg="shim disconnected" id=` + id + ` namespace=k8s.io`,
		"a mount":          "overlay /run/containerd/io.containerd.runtime.v2.task/k8s.io/" + id + "/rootfs",
		"a shim's socket":  "unix:///run/containerd/s/" + id,
		"a cgroup":         "cri-containerd-" + id + ".scope",
		"PLEG":             `event={"ID":"9f86d081-884c-7d65-9a2f-eaa0c55ad015","Type":"ContainerStarted","Data":"` + id + `"}`,
		"a digest":         "registry.k8s.io/kube-apiserver@sha256:" + id,
		"a hash of a CA":   "--discovery-token-ca-cert-hash sha256:" + id,
		"UID and version":  `podUID="9f86d081-884c-7d65-9a2f-eaa0c55ad015" resourceVersion="123456"`,
		"static Pod's UID": `pod "etcd-cp-1" (UID: "9f86d081884c7d659a2feaa0c55ad015")`,
		"log directories":  "/var/log/pods/kube-system_etcd-cp-1_9f86d081884c7d659a2feaa0c55ad015/etcd/0.log",
		"Pods' cgroups":    "kubepods-burstable-pod9f86d081884c7d659a2feaa0c55ad015.slice kubepods-pod9f86d081_884c_7d65_9a2f_eaa0c55ad015.slice",
		"Pods' names":      "coredns-5dd5756b68-x7k2p kube-api-access-x7k2p cp-1.18eb80f06b6332e1",
		"etcd's members":   `"local-member-id":"8e9e05c52164694d","cluster-id":"cdf818194e3a8c32"`,
		"a cipher":         "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
		"a method":         "/runtime.v1.RuntimeService/RunPodSandbox /api/v1/namespaces/kube-system/serviceaccounts/Ab1/token",
		"times":            "2026-11-26T09:00:43.772912023Z 2562047h47m16.854775807s",
		"a commit":         "Built at 9f86d081884c7d659a2feaa0c55ad0159f86d081",
		"flags":            "--authorization-mode=Node,RBAC --anonymous-auth=false --client-cert-auth=true --requestheader-extra-headers-prefix=X-Remote-Extra- --requestheader-username-headers=X-Remote-User",
		"settings":         "authentication:\n  anonymous:\n    enabled: false\nauthorization:\n  mode: Webhook\n",
		"settings in JSON": `{"authentication":{"x509":{}},"authorization":{"mode":"Webhook"},"imagePullSecrets":[{"name":"x"}]}`,
		"a mounted secret": "volumes:\n- secret:\n    secretName: x\n",
		"words":            "Basic authentication failed; the bearer authenticator refused",
		"a long name":      "io.containerd.internal.v1.OptGrpcUnixServerHandlers2 operationExecutorVerifyControllerAttachedVolume1",
		"a path":           "/usr/share/Doc1/Some/Thing/Other/Path/To/X/y/z",
		"an ssh address":   "git@example.org and root@10.0.0.1:22",
	} {
		t.Run(name, func(t *testing.T) {
			if got := Text(text); got != text {
				t.Errorf("got  %s\nwant %s", got, text)
			}
		})
	}
}

// TestIssued has one token from most issuers, built here so that no scanner takes them for real.
func TestIssued(t *testing.T) {
	hex, word := strings.Repeat("0123456789abcdef", 6), strings.Repeat("aB3dE5fG7h", 12)
	for _, form := range [][2]string{
		{"AKIA", "QYLPMN5HHHFPZAM2"}, {"ASIA", "QYLPMN5HHHFPZAM2"}, {"IQoJb3JpZ2lu", word}, {"FwoGZXIvYXdz", word},
		{"AIza", word[:35]}, {"ya29.", word}, {"1//0", word}, {"GOCSPX-", word[:28]}, {"dop_v1_", hex[:64]}, {"LTAI", word[:20]},
		{"ghp_", word[:36]}, {"gho_", word[:36]}, {"ghs_", word[:36]}, {"github_pat_", word[:82]}, {"glpat-", word[:20]}, {"glrt-", word[:20]}, {"ATBB", word[:32]},
		{"npm_", word[:36]}, {"pypi-AgEIcHlwaS5vcmc", word[:60]}, {"dckr_pat_", word[:27]}, {"hvs.", word[:90]}, {"hvb.", word}, {"s.", word[:24]},
		{"xoxb-", "123456789012-" + word[:24]}, {"xapp-1-", word}, {"SG.", word[:22] + "." + word[:43]}, {"sk_live_", word[:24]}, {"hf_", word[:34]}, {"sk-", word[:40]},
		{"glsa_", word[:32] + "_12345678"}, {"dapi", hex[:32]}, {"shpat_", hex[:32]}, {"shippo_live_", hex[:40]}, {"PMAK-", hex[:24] + "-" + hex[:34]}, {"sgp_", hex[:40]}, {"SK", hex[:32]}, {"NRAK-", strings.ToUpper(word[:27])}, {"SCW", "0QYLPMN5HHHFPZAM2"},
		{"AGE-SECRET-KEY-1", strings.ToUpper(word[:58])},
	} {
		for _, text := range []string{form[0] + form[1], "x=" + form[0] + form[1] + ";", `"` + form[0] + form[1] + `"`, "https://git/" + form[0] + form[1] + "/"} {
			if got := Text(text); strings.Contains(got, form[1][2:12]) {
				t.Errorf("%s is shown as %s", text, got)
			}
		}
	}
}
