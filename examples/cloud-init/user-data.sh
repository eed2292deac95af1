#!/usr/bin/env bash
# Makes the user-data of a new cluster: user-data.sh HOST:PORT DIRECTORY
# HOST:PORT is how all nodes reach the control plane. DIRECTORY must not exist yet; the secrets in it are for root alone.
set -euo pipefail
if [ $# != 2 ]; then
	echo "usage: $0 HOST:PORT DIRECTORY" >&2
	exit 1
fi
here=$(cd "$(dirname "$0")" && pwd)
umask 077
mkdir "$2"
cd "$2"

slipway init phase certs ca --cert-dir "$PWD/pki"
ENDPOINT=$1
TOKEN=$(slipway token generate)
CERTIFICATE_KEY=$(slipway certs certificate-key)
CA_CERTIFICATE=$(base64 -w 0 pki/ca.crt)
CA_KEY=$(base64 -w 0 pki/ca.key)
CA_HASH=$(openssl x509 -in pki/ca.crt -noout -pubkey | openssl pkey -pubin -outform der | sha256sum | cut -d ' ' -f 1)

# The shell puts the values in by itself: no other program has them among its arguments.
for file in first-control-plane control-plane worker; do
	text=$(<"$here/$file.yaml")
	for name in ENDPOINT TOKEN CERTIFICATE_KEY CA_CERTIFICATE CA_KEY CA_HASH; do
		text=${text//"\${$name}"/"${!name}"}
	done
	printf '%s\n' "$text" >"$file.yaml"
done
