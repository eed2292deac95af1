// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package renew renews certificates (certs renew), and restarts the components using them if asked, one at a time.
package renew
