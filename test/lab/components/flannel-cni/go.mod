// Program for the lab's Pods, never part of the product: the plugin of the Pod network flannel, from the last release of
// the plugins that had it, with the library of today's. `go mod tidy` ends with an error: the plugin's part for Windows,
// which nothing builds, needs the old library.
module github.com/slipway-k8s/slipway/test/lab/components/flannel-cni

go 1.26.0

tool github.com/containernetworking/plugins/plugins/meta/flannel

require (
	github.com/containernetworking/cni v1.3.0 // indirect
	github.com/containernetworking/plugins v0.9.1 // indirect
	github.com/vishvananda/netns v0.0.4 // indirect
	golang.org/x/sys v0.23.0 // indirect
)
