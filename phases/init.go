// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

// Init makes this host the first node of a new cluster.
func Init() []Phase {
	return []Phase{
		preflightInit(),
		certificates(),
		kubeconfigs(),
		localEtcd(),
		controlPlane(),
		kubeletStart(),
		waitControlPlane(),
		uploadConfig(),
		uploadCerts(),
		markControlPlane(),
		bootstrapToken(),
		kubeletFinalize(),
		addon(),
		showJoinCommand(),
	}
}
