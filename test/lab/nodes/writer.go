// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package nodes

import "strings"

// WriterManifest is a Pod on a node that writes to the API 10 times a second and logs the results (see components/probe). url
// points at an API server or the Service kubernetes.
func WriterManifest(name, node, url string) string {
	return strings.NewReplacer("NAME", name, "URL", url, "NODE", node, "IMAGE", ProbeImage).Replace(writerManifest)
}

const writerManifest = `---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: NAME, namespace: default}
rules:
- {apiGroups: [""], resources: [configmaps], verbs: [patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: NAME, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: NAME}
subjects: [{kind: ServiceAccount, name: default, namespace: default}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: NAME, namespace: default}
---
apiVersion: v1
kind: Pod
metadata: {name: NAME, namespace: default}
spec:
  terminationGracePeriodSeconds: 0
  tolerations: [{operator: Exists}]
  nodeName: NODE
  containers:
  - {name: writer, image: IMAGE, imagePullPolicy: Never, args: [write, "URL/api/v1/namespaces/default/configmaps/NAME"]}
`
