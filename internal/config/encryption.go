// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// The API server's EncryptionConfiguration, if `slipway encryption` looks after it. The directory is mounted, because a mounted file
// would stay the old one once another takes its name.
const (
	EncryptionDir  = "/etc/kubernetes/encryption"
	EncryptionFile = EncryptionDir + "/encryption.yaml"
	// EncryptionKeyring has all keys, sealed.
	EncryptionKeyring = EncryptionDir + "/keyring"

	encryptionFlag = "encryption-provider-config"
	reloadFlag     = "encryption-provider-config-automatic-reload"
	encryptionName = "encryption"
)

func encryptionVolume() HostPathMount {
	return HostPathMount{
		Name: encryptionName, HostPath: EncryptionDir, MountPath: EncryptionDir, ReadOnly: true, PathType: corev1.HostPathDirectoryOrCreate,
	}
}

// EncryptedBy returns the file of the API server's flag --encryption-provider-config; empty without the flag.
func (c *ClusterConfiguration) EncryptedBy() string {
	value, _ := LastArg(c.APIServer.ExtraArgs, encryptionFlag)
	return value
}

// HasEncryptionFile reports whether the API servers read EncryptionFile.
func (c *ClusterConfiguration) HasEncryptionFile() bool {
	reload, _ := LastArg(c.APIServer.ExtraArgs, reloadFlag)
	return c.EncryptedBy() == EncryptionFile && reload == "true" && slices.Contains(c.APIServer.ExtraVolumes, encryptionVolume())
}

// WithEncryptionFile returns the API server's arguments and volumes with those for EncryptionFile.
func (c *ClusterConfiguration) WithEncryptionFile() ([]Arg, []HostPathMount) {
	args := slices.DeleteFunc(slices.Clone(c.APIServer.ExtraArgs), func(a Arg) bool { return a.Name == encryptionFlag || a.Name == reloadFlag })
	args = append(args, Arg{Name: encryptionFlag, Value: EncryptionFile}, Arg{Name: reloadFlag, Value: "true"})
	volumes := slices.Clone(c.APIServer.ExtraVolumes)
	if !slices.Contains(volumes, encryptionVolume()) {
		volumes = append(volumes, encryptionVolume())
	}
	return args, volumes
}
