// Program for the lab's Pods, never part of the product: holds the namespaces of each.
module github.com/slipway-k8s/slipway/test/lab/components/pause

go 1.26.0
