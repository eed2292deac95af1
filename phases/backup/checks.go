// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package backup

const (
	KubeletEditsCheck = "KubeletConfigEdits"
	CertificatesCheck = "CertificateExpiration"
	CAKeyCheck        = "CertificateAuthorityKey"
	StrayCheck        = "StrayManifest"
	ImagesCheck       = "ImagesPresent"
	EtcdHealthCheck   = "EtcdHealth"
	EtcdAlarmCheck    = "EtcdAlarm"
	EtcdLearnerCheck  = "EtcdLearner"
	EtcdSpaceCheck    = "EtcdSpace"
	SnapshotCheck     = "EtcdSnapshotSpace"
)
