// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package phases has the workflows made of others: up, which prepares a host and then runs init or join, and down, its way back.
//
// Each workflow is a list of phases that reads like a runbook; subcommands, --skip-phases, help and the timeline derive from it:
//
//	phases/bootstrap  init and join
//	phases/upgrade    upgrade apply and upgrade node
//	phases/rollback   upgrade rollback
//	phases/renew      certs renew, and the restarts of --restart
//	phases/reset      reset
//	phases/machine    host prepare and host reset
//
// These never import each other. They share phases/kubelet, phases/addon and phases/backup, which are made of phases/node (static
// Pods, the kubelet's unit, local etcd, the turn to restart a control plane) and phases/step (Env, Phase, Run).
package phases
