// Program for the lab's Pods, never part of the product: what the tests run in a Pod.
module github.com/slipway-k8s/slipway/test/lab/components/probe

go 1.26.0
